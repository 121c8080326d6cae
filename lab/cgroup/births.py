#!/usr/bin/env python3
"""One way into a control group: microseconds from start to exit of a program.

    births.py WAY COUNT     own v2 join move live busy

`birth` (crates/lab/examples) does it; here are the groups it needs. `busy` is `live`, a living
process moved to and fro, beside two hundred forks a second.
"""

import os
import subprocess
import sys
import threading

import groups
import processes as p


def birth(*arguments):
    """Runs the example; its line is `p50 p99` in microseconds."""
    said = subprocess.run([p.PROGRAM, *map(str, arguments)], capture_output=True, text=True, check=True)
    p50, p99 = map(float, said.stdout.split())
    p.tell(p50_us=p50, p99_us=p99)


def v2(count):
    mounted = groups.unified()
    if mounted is None:
        sys.exit("version 2 of control groups is not mounted here")
    place = mounted / f"nagaya-lab-{os.getpid()}-v2"
    place.mkdir()
    try:
        birth("into", count, place)
    finally:
        p.eventually("the v2 group to be empty", lambda: groups.removed(place))


def live(count):
    with groups.Group("one") as one, groups.Group("other") as other:
        birth("live", count, *(file for pair in zip(one.procs, other.procs) for file in pair))


def busy(count):
    stop = threading.Event()
    forks = threading.Thread(target=fork_on, args=(stop,))
    forks.start()
    try:
        live(count)
    finally:
        stop.set()
        forks.join()


def fork_on(stop):
    while not stop.wait(0.005):
        subprocess.run(["/bin/true"], check=False)


def main(way, count):
    if way in ("v2", "live", "busy"):
        {"v2": v2, "live": live, "busy": busy}[way](count)
    elif way == "own":
        birth(way, count)
    else:
        with groups.Group("birth") as group:
            birth(way, count, *group.procs)


main(*sys.argv[1:])
