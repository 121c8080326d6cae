#!/usr/bin/env python3
"""Slow clients that must not hold PHP: as many senders as readers of a large page.

    slow.py COUNT HELD     HELD is the file where the page notes how long it held a process
"""

import asyncio
import sys
import time
from pathlib import Path

import processes as p

SIZE, RATE = 2_000_000, 10_000


async def send_slowly():
    reader, writer = await asyncio.open_connection("127.0.0.1", p.PORT)
    writer.write(f"POST /held.php HTTP/1.1\r\nHost: x\r\nContent-Length: {SIZE}\r\nConnection: close\r\n\r\n".encode())
    for _ in range(SIZE // RATE):
        writer.write(b"x" * RATE)
        await writer.drain()
        await asyncio.sleep(1)
    head = await reader.readline()
    writer.close()
    return b" 200 " in head


async def read_slowly():
    # A small buffer, or the kernel takes what the client does not read.
    reader, writer = await asyncio.open_connection("127.0.0.1", p.PORT, limit=RATE)
    writer.get_extra_info("socket").setsockopt(1, 8, 16384)
    writer.write(b"GET /held.php?big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    read, start = 0, time.monotonic()
    while data := await reader.read(RATE):
        read += len(data)
        await asyncio.sleep(max(0, start + read / RATE - time.monotonic()))
    return read > SIZE


async def all_of_them(count):
    work = [send_slowly() for _ in range(count)] + [read_slowly() for _ in range(count)]
    return await asyncio.gather(*work, return_exceptions=True)


def main(count, held):
    file = Path(held)
    file.unlink(missing_ok=True)
    outcomes = asyncio.run(all_of_them(int(count)))
    times = [float(line) for line in file.read_text().splitlines()] if file.exists() else [0.0]
    p.tell(unserved_clients=sum(outcome is not True for outcome in outcomes), held_longest_us=max(times) * 1000,
           held_median_us=p.median(times) * 1000, seen_requests=len(times))


main(*sys.argv[1:])
