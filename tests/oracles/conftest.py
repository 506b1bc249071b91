"""The programs `make_*.py` run other simulators, each in an environment of its own; no test imports them."""

collect_ignore_glob = ["make_*.py"]
