#!/usr/bin/env python3
"""A hog on all cores for a while: who is sent away, when it begins and when it is over.

    hog.py ON_SECONDS OFF_SECONDS PORT

A modest tenant asks 20 times a second, a greedy one 200 times, for replies that a back end on this port sleeps 50 ms for.
Then a dozen busy loops run, and end. Refusals are counted by the clients; changes of state are read from the error log.
The kernel's own notice of pressure (a trigger on /proc/pressure/cpu) and the load average are watched beside it.
"""

import asyncio
import os
import re
import select
import subprocess
import sys
import threading
import time
from pathlib import Path

from trial import Client, busy_loops, go_first, load1, quiet

HERE = Path(__file__).parent
PORT, HOME = int(os.environ["LAB_PORT"]), Path(os.environ["LAB_HOME"])
BEFORE_SECONDS = 8
HOGS = 12
DEADLINE_SECONDS = 0.5
# As much as the rule takes for too much, in the smallest window that does not take a capability.
TRIGGER = b"some 800000 2000000\0"
CHANGE = re.compile(r"shedding goes from (\w+) to (\w+)")


class Watch:
    """What else would have noticed, and when: changes of state, the kernel's trigger, a load average above 3."""

    def __init__(self):
        self.changes, self.triggered, self.high = [], [], []
        self.over = False

    async def log(self):
        seen = 0
        while not self.over:
            text = (HOME / "error.log").read_text()
            found = CHANGE.findall(text)
            self.changes += [(time.monotonic(), before, after) for before, after in found[seen:]]
            seen = len(found)
            if load1() > 3:
                self.high.append(time.monotonic())
            await asyncio.sleep(0.02)

    def trigger(self):
        try:
            pressure = os.open("/proc/pressure/cpu", os.O_RDWR | os.O_NONBLOCK)
            os.write(pressure, TRIGGER)
        except OSError as error:
            return print(f"no trigger: {error}", file=sys.stderr)
        waits = select.poll()
        waits.register(pressure, select.POLLPRI)
        while not self.over:
            if waits.poll(100):
                self.triggered.append(time.monotonic())
        os.close(pressure)


def first_after(times, instant):
    return next((at - instant for at in times if at >= instant), -1.0)


def tell(watch, modest, greedy, on, off, end):
    refused = [at for at, _, status in greedy.seen if status == 503]
    everybody = refused + [at for at, _, status in modest.seen if status == 503]
    print("shed_after_seconds", first_after([at for at, _, _ in watch.changes], on))
    print("back_after_seconds", max([at - off for at in everybody if at >= off], default=0.0))
    print("changes_on", sum(1 for at, _, _ in watch.changes if on <= at < off))
    print("changes_off", sum(1 for at, _, _ in watch.changes if at >= off))
    within = modest.between(on, end)
    print("modest_refused", sum(1 for _, _, status in within if status != 200))
    print("modest_useful_share", modest.useful_share(on, off, DEADLINE_SECONDS))
    taken = sorted(seconds for _, seconds, status in modest.between(on, off) if status == 200)
    print("modest_p99_us", 1e6 * taken[int(len(taken) * 0.99)] if taken else -1)
    print("greedy_useful_share", greedy.useful_share(on, off, DEADLINE_SECONDS))
    print("greedy_before_share", greedy.useful_share(0, on, DEADLINE_SECONDS))
    print("trigger_seconds", first_after(watch.triggered, on))
    print("load_above_3_seconds", first_after(watch.high, on))
    print("load_below_3_seconds", max([at - off for at in watch.high if at >= off], default=0.0))


async def trial(on_seconds, off_seconds):
    watch, hogs = Watch(), busy_loops()
    modest = Client(PORT, "t1.lab", "/", 20)
    greedy = Client(PORT, "t0.lab", "/", 200)
    threading.Thread(target=watch.trigger, daemon=True).start()
    running = [asyncio.create_task(work) for work in (modest.run(), greedy.run(), watch.log())]
    try:
        await asyncio.sleep(BEFORE_SECONDS)
        on = time.monotonic()
        hogs.set(HOGS)
        await asyncio.sleep(on_seconds)
        off = time.monotonic()
        hogs.set(0)
        await asyncio.sleep(off_seconds)
        modest.over = greedy.over = watch.over = True
        await asyncio.gather(*running)
        tell(watch, modest, greedy, on, off, time.monotonic())
    finally:
        hogs.set(0)


def main(on_seconds, off_seconds, port):
    quiet()
    go_first()
    back_end = subprocess.Popen([sys.executable, HERE / "backend.py", port, "20", "50", "notices"])
    try:
        time.sleep(1)
        asyncio.run(trial(float(on_seconds), float(off_seconds)))
    finally:
        back_end.kill()
        back_end.wait()


main(*sys.argv[1:])
