"""`make fuzz`: random ops, layers and files for as long as asked, each kind in a process of its own.

    python tests/helpers/fuzz_run.py [--seconds 60] [--first SEED] [--keep build/fuzz]

A case follows from its kind and seed alone. What fails is kept as `<kind>-<seed>.txt` with the error, and damaged files
as `<kind>-<seed>.bin` too; the next run tries the kept cases first and drops those that pass. A crash or a call that
does not end counts as a failure of the case that was running. The exit status is 1 where a case failed.
"""

from __future__ import annotations

import argparse
import re
import secrets
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

KINDS = ("ops", "layers", "files")
# No case takes as long: one that does, does not end.
LONGEST = 120


def run_case(kind: str, seed: int, keep: Path) -> None:
    """Raises where the case fails."""
    # Each child imports what it needs.
    if kind == "files":
        import fuzz_files  # noqa: PLC0415

        case = fuzz_files.file_case(seed)
        try:
            with tempfile.TemporaryDirectory() as folder:
                fuzz_files.check(case, Path(folder))
        except BaseException:
            (keep / f"{kind}-{seed}.bin").write_bytes(case.data)
            raise
    else:
        import fuzz  # noqa: PLC0415
        import fuzz_layers  # noqa: PLC0415

        fuzz.check((fuzz.op_case if kind == "ops" else fuzz_layers.layer_case)(seed))


def child(kind: str, seeds: list[int], first: int, seconds: float, keep: Path) -> None:
    """Runs the seeds, then those from `first` on; a line on standard output for each case, before and after it."""
    import torch  # noqa: PLC0415

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    end = time.monotonic() + seconds
    following = iter(range(first, sys.maxsize))
    while seeds or time.monotonic() < end:
        seed = seeds.pop(0) if seeds else next(following)
        print(seed, flush=True)
        kept = keep / f"{kind}-{seed}.txt"
        try:
            run_case(kind, seed, keep)
        except Exception:
            kept.write_text(traceback.format_exc())
        else:
            kept.unlink(missing_ok=True)
            kept.with_suffix(".bin").unlink(missing_ok=True)


def fuzz_kind(kind: str, first: int, seconds: float, keep: Path) -> int:
    """Cases that were run; after a crash a new process goes on with the seed behind it."""
    known = {
        int(match[1]) for path in keep.glob("*.txt") if (match := re.fullmatch(rf"{kind}-(\d+)", path.stem))
    }
    seeds, end, done = sorted(known), time.monotonic() + seconds, 0
    while seeds or time.monotonic() < end:
        left = max(end - time.monotonic(), 0)
        command = [sys.executable, __file__, "--child", kind, "--first", str(first), "--seconds", str(left)]
        command += ["--keep", str(keep), "--seeds", *map(str, seeds)]
        try:
            found = subprocess.run(
                command, stdout=subprocess.PIPE, text=True, check=False, timeout=left + LONGEST
            )
            output, status = found.stdout, found.returncode
        except subprocess.TimeoutExpired as late:
            output, status = (late.stdout or b"").decode(), "no end"
        begun = [int(line) for line in output.split()]
        done += len(begun)
        if status == 0:
            break
        if not begun:
            raise SystemExit(f"fuzz of {kind} did not start: exit status {status}")
        (keep / f"{kind}-{begun[-1]}.txt").write_text(f"the process ended with status {status}\n")
        seeds = [seed for seed in seeds if seed not in begun]
        first = max(first, *(seed + 1 for seed in begun if seed not in known))
    return done


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=60, help="for all kinds together")
    parser.add_argument("--first", type=int, help="first seed; default: drawn anew, and printed")
    parser.add_argument("--keep", type=Path, default=Path("build/fuzz"))
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--seeds", type=int, nargs="*", default=[], help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.keep.mkdir(parents=True, exist_ok=True)
    first = secrets.randbelow(10**9) if args.first is None else args.first
    if args.child:
        child(args.child, args.seeds, first, args.seconds, args.keep)
        return 0
    for kind in KINDS:
        done = fuzz_kind(kind, first, args.seconds / len(KINDS), args.keep)
        failed = len(list(args.keep.glob(f"{kind}-*.txt")))
        print(f"{kind}: {done} cases from seed {first}, {failed} failed", flush=True)
    failures = sorted(args.keep.glob("*.txt"))
    for path in failures:
        print(f"\n{path}\n{path.read_text().strip()[-2000:]}")
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
