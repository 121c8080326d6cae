#!/usr/bin/env python3
"""A back end that is killed, clients that leave, a server's process that dies: what stays counted.

    kills.py nagaya|nginx LIMIT SECONDS PORT

The back end on this port counts what it has in flight. It is killed every two seconds and started
again; of nginx the busiest worker as well, once, after a third of the time.
30 % of the clients leave within 60 ms. Then all is quiet, Nagaya is asked for its counters, and as
many requests as the limit allows are made at once: those that are refused are what is stuck.
"""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).parent
PORT, PID = int(os.environ["LAB_PORT"]), int(os.environ["LAB_PID"])
CLIENTS, LEAVING = 200, 0.3
BETWEEN_KILLS = 2
COUNTERS_WAIT = 10
PROBE_MS = 1500


class BackEnd:
    """It, and the most it has seen at once in all its lives."""

    def __init__(self, port):
        self.port, self.most = port, 0
        self.start()

    def start(self):
        words = [sys.executable, HERE / "backend.py", str(self.port), "20", "50", "notices"]
        self.running = subprocess.Popen(words)

    def end(self):
        self.running.kill()
        self.running.wait()

    def kill(self):
        self.look()
        self.end()
        self.start()

    def look(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/stats", timeout=1) as reply:
                seen = dict(line.split() for line in reply.read().decode().splitlines())
            self.most = max(self.most, int(seen["most"]))
        except (OSError, ValueError, KeyError):
            pass  # It is not up yet.


class Load:
    def __init__(self):
        self.served = self.left = self.refused = self.broken = 0
        self.over = False

    async def client(self, number):
        while not self.over:
            try:
                await asyncio.wait_for(self.ask(number), 5)
            except (OSError, asyncio.TimeoutError, ValueError):
                self.broken += 1
            await asyncio.sleep(random.uniform(0.01, 0.1))

    async def ask(self, number):
        reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
        try:
            writer.write(request("/", f"10.2.{number}.7"))
            if random.random() < LEAVING:
                await asyncio.sleep(random.uniform(0, 0.06))
                self.left += 1
                return writer.transport.abort()
            status = await status_of(reader)
            self.served += status == 200
            self.refused += status == 503
        finally:
            writer.close()


def request(path, address):
    head = f"GET {path} HTTP/1.1\r\nHost: shared.lab\r\nX-Forwarded-For: {address}\r\nConnection: close\r\n\r\n"
    return head.encode()


async def status_of(reader):
    fields = (await reader.readline()).split()
    await reader.read(-1)
    if len(fields) < 2:
        raise ConnectionResetError("closed before a reply")
    return int(fields[1])


def busiest_worker():
    """The child with the most connections."""
    children = Path(f"/proc/{PID}/task/{PID}/children").read_text().split()
    return int(max(children, key=lambda pid: len(os.listdir(f"/proc/{pid}/fd"))))


async def disturb(seconds, back_end, kind):
    """Kills one after another; returns how many."""
    killed, began, worker_is_due = 0, time.monotonic(), kind == "nginx"
    while (passed := time.monotonic() - began) < seconds:
        if passed >= killed * BETWEEN_KILLS:
            await asyncio.to_thread(back_end.kill)
            killed += 1
        # Between two kills of the back end, so that something is in flight.
        if worker_is_due and passed > seconds / 3 + BETWEEN_KILLS / 2:
            worker_is_due = False
            os.kill(busiest_worker(), signal.SIGKILL)
        await asyncio.to_thread(back_end.look)
        await asyncio.sleep(0.1)
    return killed + (kind == "nginx")


def counted(value):
    """What a look at the limits has in flight or waiting, wherever in it that stands."""
    if isinstance(value, dict):
        own = sum(value.get(name, 0) for name in ("in_flight", "queued") if isinstance(value.get(name, 0), int))
        return own + sum(counted(inner) for inner in value.values() if isinstance(inner, (dict, list)))
    return sum(counted(inner) for inner in value) if isinstance(value, list) else 0


def counters():
    words = [os.environ["LAB_PROGRAM"], "limits", "list", "--json", "-c", os.environ["LAB_CONFIG"]]
    return counted(json.loads(subprocess.run(words, capture_output=True, check=True).stdout))


def wait_for_zero():
    began = time.monotonic()
    while True:
        left, passed = counters(), time.monotonic() - began
        if left == 0 or passed > COUNTERS_WAIT:
            return left, passed
        time.sleep(0.02)


async def admitted_at_once(limit):
    """How many of `limit` requests are let in together."""
    async def one(number):
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
            writer.write(request(f"/?ms={PROBE_MS}", f"10.3.{number}.7"))
            status = await status_of(reader)
            writer.close()
            return status == 200
        except (OSError, ValueError):
            return False
    return sum(await asyncio.gather(*(one(number) for number in range(limit))))


async def measure(kind, limit, seconds, back_end):
    load = Load()
    clients = [asyncio.create_task(load.client(number)) for number in range(CLIENTS)]
    killed = await disturb(seconds, back_end, kind)
    load.over = True
    await asyncio.gather(*clients)
    if kind == "nagaya":
        left, passed = await asyncio.to_thread(wait_for_zero)
        print("left_in_counters", left)
        print("zero_after_seconds", f"{passed:.3f}", "s")
    await asyncio.sleep(1)
    print("stuck_slots", limit - await admitted_at_once(limit))
    back_end.look()
    print("most_at_once", back_end.most)
    print("served_requests", load.served)
    print("left_requests", load.left)
    print("refused_requests", load.refused)
    print("broken_requests", load.broken)
    print("killed_processes", killed)


def main(kind, limit, seconds, port):
    back_end = BackEnd(int(port))
    try:
        time.sleep(1)
        asyncio.run(measure(kind, int(limit), float(seconds), back_end))
    finally:
        back_end.end()


main(*sys.argv[1:])
