"""Has Python keep what it compiles, here and in the processes that tests start; `conftest.py` imports it before torch.

Where `PYTHONDONTWRITEBYTECODE` is set, each of these processes would compile torch again, which takes ten seconds.
"""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
