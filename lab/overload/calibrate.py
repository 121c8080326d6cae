#!/usr/bin/env python3
"""What sensors say when a server comes to its end: their values at 100, 90 and 80 % of useful replies.

    calibrate.py rate|processors|disk PORT

Step by step more is asked for (rate), or more programs take the cores (processors) or the disk (disk) away, while clients ask steadily.
A reply is useful within half a second. Of the first step that is below 90 and 80 %, the value is interpolated from the one before.
"""

import asyncio
import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

from trial import Client, Hogs, busy_loops, go_first, sensors

HERE = Path(__file__).parent
PORT = int(os.environ["LAB_PORT"])
STEP_SECONDS, SETTLE_SECONDS = 6, 2
DEADLINE_SECONDS = 0.5
WATCHED = {
    "rate": ["queue_age", "in_flight", "loop_lag", "cpu_pressure"],
    "processors": ["cpu_pressure", "loop_lag", "load1", "in_flight"],
    "disk": ["io_pressure", "io_pressure_full", "load1", "in_flight"],
}
RATES = [200, 300, 360, 400, 440, 500, 600, 800]
STEADY_RATE = 40
HOGS = [0, 1, 2, 4, 8, 16, 32]


def disk_hogs():
    script = 'while :; do dd if=/dev/zero of="$0.$$" bs=1M count=64 oflag=direct 2>/dev/null; done'
    return Hogs(["sh", "-c", script, str(Path(os.environ["LAB_HOME"]) / "hog")])


async def step(rate, watched):
    """Useful share, and the mean of each sensor, over some seconds."""
    client = Client(PORT, "t0.lab", "/", rate)
    running = asyncio.create_task(client.run())
    await asyncio.sleep(SETTLE_SECONDS)
    began, readings = time.monotonic(), []
    while time.monotonic() - began < STEP_SECONDS - SETTLE_SECONDS:
        readings.append(await asyncio.to_thread(sensors))
        await asyncio.sleep(0.5)
    ended, client.over = time.monotonic(), True
    await running
    useful = client.useful_share(began, ended, DEADLINE_SECONDS)
    return useful, {name: mean(readings, name) for name in watched}


def mean(readings, name):
    values = [reading[name] for reading in readings if reading.get(name) is not None]
    return sum(values) / len(values) if values else float("nan")


def at_share(steps, share, name):
    """The sensor's value where useful replies fall to this share; -1 where they never do."""
    for (before, values_before), (after, values_after) in zip(steps, steps[1:]):
        if before >= share > after:
            part = (before - share) / (before - after)
            return values_before[name] + part * (values_after[name] - values_before[name])
    return -1.0


def tell(steps, watched):
    whole = list(itertools.takewhile(lambda step: step[0] >= 0.995, steps))
    for name in watched:
        print(f"{name}_at_100", whole[-1][1][name] if whole else -1.0)
        print(f"{name}_at_90", at_share(steps, 0.9, name))
        print(f"{name}_at_80", at_share(steps, 0.8, name))


async def ramp(kind):
    steps, watched = [], WATCHED[kind]
    hogs = disk_hogs() if kind == "disk" else busy_loops()
    try:
        for number in RATES if kind == "rate" else HOGS:
            if kind != "rate":
                hogs.set(number)
            steps.append(await step(number if kind == "rate" else STEADY_RATE, watched))
            print(kind, number, steps[-1], file=sys.stderr)
            if steps[-1][0] < 0.6:
                break
    finally:
        hogs.set(0)
        for left in Path(os.environ["LAB_HOME"]).glob("hog.*"):
            left.unlink()
    tell(steps, watched)


def back_end(kind, port):
    if kind == "rate":
        return [sys.executable, HERE / "backend.py", port, "20", "50", "degrades"]
    return [sys.executable, HERE / "worker.py", port, kind]


def main(kind, port):
    # The back end is one of those that the hogs are to disturb; the clients are not.
    running = subprocess.Popen(back_end(kind, port))
    go_first()
    try:
        time.sleep(1)
        asyncio.run(ramp(kind))
    finally:
        running.kill()
        running.wait()


main(*sys.argv[1:])
