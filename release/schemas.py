"""Checks workflows, issue forms, Dependabot's settings and CITATION.cff against their published schemas.

The schemas come with check-jsonschema, so that nothing is fetched. The exit status is 1 where a file does not fit.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Name of the schema in check-jsonschema, and the files that it is for.
FILES = {
    "vendor.github-workflows": ".github/workflows/*.yml",
    # A job that hangs would run for six hours.
    "custom.github-workflows-require-timeout": ".github/workflows/*.yml",
    "vendor.github-issue-config": ".github/ISSUE_TEMPLATE/config.yml",
    "vendor.github-issue-forms": ".github/ISSUE_TEMPLATE/[!c]*.yml",
    "vendor.dependabot": ".github/dependabot.yml",
    "vendor.citation-file-format": "CITATION.cff",
}


CHECK = [sys.executable, "-m", "check_jsonschema", "--default-filetype", "yaml", "--builtin-schema"]

if __name__ == "__main__":
    calls = [[*CHECK, schema, *map(str, sorted(ROOT.glob(pattern)))] for schema, pattern in FILES.items()]
    # A call without files ends with an error of its own.
    sys.exit(max(subprocess.run(call, check=False).returncode for call in calls))
