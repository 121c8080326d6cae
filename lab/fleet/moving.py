#!/usr/bin/env python3
"""Three gateways with one limit, and demand that is at another of them each second.

    moving.py LIMIT

The gateways run with the variant's configuration, each with ports of its own. The back end is here: it takes 200 ms, and
counts what it has in flight.
"""

import asyncio
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "cgroup"))

import processes as p  # noqa: E402

LIMIT = int(sys.argv[1])
MACHINES, CLIENTS, SERVICE_S, TURN_S, TURNS = 3, 150, 0.2, 1.0, 18
HOME = Path(os.environ["LAB_HOME"])
CONFIG = Path(os.environ["LAB_CONFIG"])
REPLY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class BackEnd:
    """Counts what is in flight."""

    def __init__(self):
        self.now = self.most = self.served = self.above = 0

    async def serve(self, reader, writer):
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                self.now += 1
                self.most = max(self.most, self.now)
                self.above += self.now > LIMIT
                await asyncio.sleep(SERVICE_S)
                self.now -= 1
                self.served += 1
                writer.write(REPLY)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


class Crowd:
    """Clients of one machine, who ask while they are wanted."""

    def __init__(self, port):
        self.port, self.wanted, self.refused = port, asyncio.Event(), 0
        self.tasks = [asyncio.create_task(self.ask()) for _ in range(CLIENTS)]

    async def ask(self):
        link = None
        while True:
            await self.wanted.wait()
            try:
                link = link or await asyncio.open_connection("127.0.0.1", self.port)
                link[1].write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
                head = await link[0].readuntil(b"\r\n\r\n")
                length = re.search(rb"(?i)content-length: (\d+)", head)
                await link[0].readexactly(int(length[1]) if length else 0)
                if head.startswith(b"HTTP/1.1 200"):
                    continue
                self.refused += 1
                if length is None or b"close" in head.lower():
                    link[1].close()
                    link = None
            except (asyncio.IncompleteReadError, ConnectionError):
                link = None
            await asyncio.sleep(0.01)


def free_ports(count):
    held = [socket.socket() for _ in range(count)]
    for one in held:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports


def gateways(back_end):
    """Starts the machines, and gives their ports."""
    ports, peers = free_ports(MACHINES), free_ports(MACHINES)
    origin, own = os.environ["LAB_BACKEND_ORIGIN_PORT"], os.environ["LAB_PORT"]
    children = []
    for port in ports:
        text = CONFIG.read_text().replace(f"127.0.0.1:{origin}", f"127.0.0.1:{back_end}")
        text = re.sub(rf"\b(web|127\.0\.0\.1:|control-|nginx-){own}\b", rf"\g<1>{port}", text)
        others = "\n".join(f"  peer web{a} 127.0.0.1:{b}" for a, b in zip(ports, peers))
        text = re.sub(r"  peer .*\n  # more peers", others, text)
        path = HOME / f"{port}{CONFIG.suffix}"
        path.write_text(text)
        command = {".toml": ["serve", "-c"], ".cfg": ["-db", "-f"], ".conf": ["-p", str(HOME), "-e", "stderr", "-c"]}
        children.append(subprocess.Popen([os.environ["LAB_PROGRAM"], *command[CONFIG.suffix], str(path)]))
    return ports, children


def answers(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


async def main():
    counted = BackEnd()
    server = await asyncio.start_server(counted.serve, "127.0.0.1", 0, backlog=4096)
    ports, children = gateways(server.sockets[0].getsockname()[1])
    try:
        for port in ports:
            p.eventually(f"port {port}", lambda: answers(port))
        crowds = [Crowd(port) for port in ports]
        # Machines hear of each other, and of the store.
        await moved(crowds, 6)
        counted.most = counted.above = 0
        began, before = time.monotonic(), counted.served
        refused = sum(crowd.refused for crowd in crowds)
        await moved(crowds, TURNS)
        seconds, served = time.monotonic() - began, counted.served - before
        refused = sum(crowd.refused for crowd in crowds) - refused
        p.tell(used_share=served * SERVICE_S / seconds / LIMIT, in_flight_most=counted.most,
               above_share=counted.above / max(served, 1), refused_per_second=refused / seconds)
    finally:
        for child in children:
            child.terminate()
        for child in children:
            child.wait(30)


async def moved(crowds, turns):
    for turn in range(turns):
        for at, crowd in enumerate(crowds):
            crowd.wanted.set() if at == turn % MACHINES else crowd.wanted.clear()
        await asyncio.sleep(TURN_S)


asyncio.run(main())
