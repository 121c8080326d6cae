#!/usr/bin/env python3
"""Runs the experiments on programs and control groups, and prints their tables.

    lab/cgroup/run.py [NAME ...]      quota beside spawn birth attach slow leaks; default: all

Needs a release build (`NAGAYA=PATH` for another binary) and what `scripts/bootstrap.sh lab`
installs. Writes lab/results/cgroup.md when all are run. Takes about ten minutes.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import bed  # noqa: E402
import birth  # noqa: E402
import clients  # noqa: E402
import quota  # noqa: E402
import spawn  # noqa: E402

EXPERIMENTS = {
    "quota": quota.share,
    "beside": quota.beside,
    "spawn": spawn.latency,
    "birth": birth.places,
    "attach": birth.attach,
    "slow": clients.slow,
    "leaks": clients.leaks,
}


def main():
    names = sys.argv[1:] or list(EXPERIMENTS)
    unknown = [name for name in names if name not in EXPERIMENTS]
    if unknown or not bed.NAGAYA.exists():
        sys.exit(__doc__ if unknown else f"lab: no {bed.NAGAYA}; run cargo build --release first")
    sections = []
    for name in names:
        sections.append(EXPERIMENTS[name]())
        bed.progress("")
        print(sections[-1], flush=True)
    if not sys.argv[1:]:
        target = bed.HERE.parent / "results" / "cgroup.md"
        target.write_text("# Programs and control groups\n\nPrinted by `lab/cgroup/run.py`.\n\n" + "\n".join(sections))


main()
