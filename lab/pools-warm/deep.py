#!/usr/bin/env python3
"""Runs a command in a control group that lies as deep as that of a pool, and removes it at the end.

    deep.py COMMAND...
"""

import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "cgroup"))

import groups  # noqa: E402

BELOW = ("pool", "a", "run")


def main(*command):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with groups.Group("pool", ("cpu", "cpuacct")) as group, ExitStack() as inner:
        for outer in group.paths:
            for depth in range(1, len(BELOW) + 1):
                path = outer.joinpath(*BELOW[:depth])
                path.mkdir()
                inner.callback(groups.processes.eventually, f"{path} to be empty",
                               lambda path=path: groups.removed(path))
        server = subprocess.Popen(command)
        try:
            for outer in group.paths:
                outer.joinpath(*BELOW, "cgroup.procs").write_text(str(server.pid))
            server.wait()
        finally:
            server.terminate()
            server.wait()


main(*sys.argv[1:])
