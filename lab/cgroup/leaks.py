#!/usr/bin/env python3
"""Programs that end, are left, and are cut off: what of them remains.

    leaks.py COUNT

A quarter runs into a time limit of 100 ms with a child of its own, a quarter is left after 2 ms.
"""

import asyncio
import os
import re
import sys
from pathlib import Path

import groups
import processes as p

AT_ONCE = 32


async def one_program(number):
    path = "/sleep.cgi" if number % 4 == 1 else "/hello.cgi"
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", p.PORT)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: limited.lab\r\nConnection: close\r\n\r\n".encode())
        if number % 4 == 2:
            await asyncio.sleep(0.002)
        elif number % 8 == 5:
            await asyncio.sleep(0.02)
        else:
            await reader.read(-1)
        writer.close()
    except OSError:
        pass


async def batch(first, last):
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(number):
        async with turn:
            await one_program(number)
    await asyncio.gather(*(one(number) for number in range(first, last)))


def state():
    p.eventually("programs to end", lambda: not p.named(p.PID, ".cgi"))
    pids = p.tree(p.PID)
    status = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return {
        "processes": len(pids),
        "zombies": sum("State:\tZ" in text for text in status),
        "groups": len(groups.of_gateways()),
        "descriptors": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
        "kib": sum(int(found[1]) for text in status if (found := re.search(r"VmRSS:\s+(\d+)", text))),
    }


def main(count):
    # What is made once, with the first programs, is no leak.
    asyncio.run(batch(0, 200))
    before = state()
    for first in range(0, int(count), 500):
        asyncio.run(batch(first, min(int(count), first + 500)))
    after = state()
    p.tell(**{f"left_{what}": after[what] - before[what] for what in before})


main(*sys.argv[1:])
