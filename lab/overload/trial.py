"""What trials with hogs share: clients that ask at a steady rate, programs that take what they can get, the gateway's sensors.

Clients run at a better priority than the hogs (as root), so that what they see is the server, not their own wait for a core.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from pathlib import Path

TIMEOUT_SECONDS = 5
AT_ONCE = 400


def go_first():
    """A better priority than the hogs' for this process and those it starts from here on."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -15)
    except PermissionError:
        print("not root: clients wait for a core like everybody", file=sys.stderr)


class Client:
    """Asks for `path` of `host`, `rate` times a second whatever the answers; remembers (due, seconds, status)."""

    def __init__(self, port, host, path, rate):
        self.port, self.rate, self.seen = port, rate, []
        head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        self.request = head.encode()
        self.over = False
        self.room = asyncio.Semaphore(AT_ONCE)

    async def run(self):
        began, number, asked = time.monotonic(), 0, set()
        while not self.over:
            due = began + number / self.rate
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            task = asyncio.create_task(self.ask(due))
            asked.add(task)
            task.add_done_callback(asked.discard)
            number += 1
        await asyncio.gather(*asked)

    async def ask(self, due):
        async with self.room:
            try:
                status = await asyncio.wait_for(self.status(), TIMEOUT_SECONDS)
            except (OSError, asyncio.TimeoutError, ValueError):
                status = 0
        self.seen.append((due, time.monotonic() - due, status))

    async def status(self):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(self.request)
            fields = (await reader.readline()).split()
            await reader.read(-1)
            return int(fields[1]) if len(fields) > 1 else 0
        finally:
            writer.close()

    def between(self, start, end):
        return [seen for seen in self.seen if start <= seen[0] < end]

    def useful_share(self, start, end, deadline_seconds):
        """Of what was asked for between the two, how much was served in time."""
        asked = self.between(start, end)
        good = sum(1 for _, seconds, status in asked if status == 200 and seconds <= deadline_seconds)
        return good / max(1, len(asked))


class Hogs:
    """Programs that take what they can get, at everybody's priority and on all cores."""

    def __init__(self, command):
        self.command, self.running = command, []

    def set(self, number):
        while len(self.running) < number:
            self.running.append(subprocess.Popen(self.command, preexec_fn=as_everybody, stderr=subprocess.DEVNULL))
        while len(self.running) > number:
            hog = self.running.pop()
            hog.kill()
            hog.wait()


def as_everybody():
    os.sched_setaffinity(0, range(os.cpu_count()))
    if os.getuid() == 0:
        os.setpriority(os.PRIO_PROCESS, 0, 0)


def busy_loops():
    return Hogs([sys.executable, "-c", "while True: pass"])


def quiet(longest_seconds=240):
    """Waits for a load average below 0.7, so that every trial begins alike."""
    began = time.monotonic()
    while load1() > 0.7 and time.monotonic() - began < longest_seconds:
        time.sleep(1)


def load1():
    return float(Path("/proc/loadavg").read_text().split()[0])


def sensors():
    """Name to value, as the running gateway has them."""
    words = [os.environ["LAB_PROGRAM"], "sensors", "--json", "-c", os.environ["LAB_CONFIG"]]
    told = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    return {name: sensor.get("value") for name, sensor in told["sensors"].items()}
