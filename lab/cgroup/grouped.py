#!/usr/bin/env python3
"""Runs the field report's server, rebuilt, with a control group of its own.

    grouped.py PERCENT HOW COMMAND...

PERCENT of a core is the group's quota, 0 for none. HOW says who enters: `attach`, the server by
itself before every answer (the group's files are added to the command); `sit`, once at its start;
`deep`, likewise, in a group that lies as deep as a pool's; `none`, nobody. Ends, and removes the group, when told to.
"""

import signal
import subprocess
import sys
from pathlib import Path

import groups


def main(percent, how, *command):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    below = ("pool", "a", "run") if how == "deep" else ()
    controllers = ("cpu", "cpuacct") if how == "deep" else ("cpu",)
    with groups.Group("report", controllers, below) as group:
        group.quota(int(percent))
        server = subprocess.Popen([*command, *(group.procs if how == "attach" else [])])
        try:
            if how in ("sit", "deep"):
                for file in group.procs:
                    Path(file).write_text(str(server.pid))
            server.wait()
        finally:
            server.terminate()
            server.wait()


main(*sys.argv[1:])
