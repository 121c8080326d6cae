"""What measures of pools share: how they ask, load, wait, and speak with the gateway.

The idea: each program beside this file is one measure of a gateway that runs; it prints figures.
What reads /proc is the same as for control groups, and clients that keep a rate as for overload.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / "cgroup"), str(HERE.parent / "overload")]

import groups  # noqa: E402, F401
import processes as p  # noqa: E402
from trial import Client, go_first  # noqa: E402, F401

CONFIG = os.environ.get("LAB_CONFIG", "")
PATIENCE_SECONDS = 90


def nagaya(*words):
    return subprocess.run([p.PROGRAM, *words, "-c", CONFIG], capture_output=True, text=True, check=True).stdout


def pools():
    """How each pool stands."""
    told = json.loads(nagaya("pools", "--json"))
    return told["pools"] if isinstance(told, dict) else told


def host_of(pool):
    return pool["name"].rpartition(" of ")[2]


def all_cold(hosts=None):
    """Ends the pools of these hosts, or all, and waits for their end."""
    def running():
        warm = [host_of(pool) for pool in pools() if pool["state"] != "cold"]
        return {host for host in warm if hosts is None or host in hosts}
    for host in running():
        nagaya("pools", "stop", host)
    p.eventually("pools to end", lambda: not running(), PATIENCE_SECONDS)


def masters(root=None):
    """Masters of php-fpm below the gateway."""
    return p.named(root or p.PID, "php-fpm: master")


class Answer:
    """When the first byte came, in seconds after the request, and what was said."""

    def __init__(self, status, seconds, text=b""):
        self.status, self.seconds, self.text = status, seconds, text


def ask(host, path="/hello.php", port=None, address=None):
    began = time.monotonic()
    with connect(port or p.PORT, address) as stream:
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        text = stream.recv(65536)
        seconds = time.monotonic() - began
        while more := stream.recv(65536):
            text += more
    words = text.split(b" ", 2)
    return Answer(int(words[1]) if len(words) > 1 else 0, seconds, text)


def connect(port, address=None):
    if address is None:
        return socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(PATIENCE_SECONDS)
    stream.connect(address)
    return stream


async def asked(host, path="/hello.php"):
    """The same beside others."""
    began, writer = time.monotonic(), None
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", p.PORT)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        line = (await asyncio.wait_for(reader.readline(), PATIENCE_SECONDS)).split()
        seconds = time.monotonic() - began
        await reader.read(-1)
        return Answer(int(line[1]) if len(line) > 1 else 0, seconds)
    except (OSError, asyncio.TimeoutError):
        return Answer(0, time.monotonic() - began)
    finally:
        if writer:
            writer.close()


def quantile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * share))] if values else 0.0


def jain(values):
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


class Neighbours:
    """Tenants that are asked at a steady rate, together, while others do what they do."""

    def __init__(self, hosts, core_share=0.2, rate_most=400):
        self.clients = [Client(p.PORT, host, "/hello.php", 1) for host in hosts]
        cost = self.cost(hosts)
        for client in self.clients:
            client.rate = min(rate_most, core_share / cost) / len(hosts)
        self.running = []

    @staticmethod
    def cost(hosts):
        """Seconds of processor time of one request; all are warm afterwards."""
        for host in hosts:
            ask(host)
        before = p.cpu_seconds(p.tree(p.PID))
        for number in range(100):
            ask(hosts[number % len(hosts)])
        return max(1e-4, (p.cpu_seconds(p.tree(p.PID)) - before) / 100)

    async def __aenter__(self):
        self.running = [asyncio.create_task(client.run()) for client in self.clients]
        await asyncio.sleep(1)
        return self

    async def __aexit__(self, *_):
        for client in self.clients:
            client.over = True
        await asyncio.gather(*self.running)

    def between(self, start, end):
        """99th percentile, and how many were lost."""
        seen = [one for client in self.clients for one in client.between(start, end)]
        return quantile([seconds for _, seconds, _ in seen], 0.99), sum(status != 200 for *_, status in seen)


async def beside(neighbours, trouble, quiet_seconds):
    """What neighbours wait in a quiet while and in one of trouble: ratio of the 99th percentiles, both, and losses."""
    async with neighbours:
        quiet_from = time.monotonic()
        await asyncio.sleep(quiet_seconds)
        quiet_until = time.monotonic()
        found = await trouble()
        trouble_until = time.monotonic()
        # Whoever was due within it has an answer.
        await asyncio.sleep(1)
    quiet, _ = neighbours.between(quiet_from, quiet_until)
    troubled, lost = neighbours.between(quiet_until, trouble_until)
    p.tell(p99_ratio=troubled / max(quiet, 1e-6), quiet_p99_us=quiet * 1e6, troubled_p99_us=troubled * 1e6, lost_requests=lost)
    return found
