#!/usr/bin/env python3
"""Says what memory scripts keep.

    memory.py parked COUNT PATH        of each request that waits, beyond its idle connection;
                                       PATH is not answered while this looks
    memory.py grown FIRST ALL PATH     after all requests, over what it was after the first of them
"""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

PORT, PID, PROGRAM = int(os.environ["LAB_PORT"]), int(os.environ["LAB_PID"]), os.environ["LAB_PROGRAM"]
# The first that wait take what is taken once: pages of the allocator, of the Ruby heap.
FIRST = 100


def tree(root):
    found = [root]
    for pid in found:
        for thread in os.listdir(f"/proc/{pid}/task"):
            found += [int(child) for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split()]
    return found


def pss_bytes():
    total = 0
    for pid in tree(PID):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def settled():
    """Memory once it has stayed the same for a second, or nearly so for ten."""
    before, since, start = pss_bytes(), time.monotonic(), time.monotonic()
    while time.monotonic() - since < 1 and time.monotonic() - start < 10:
        time.sleep(0.1)
        now = pss_bytes()
        if now != before:
            before, since = now, time.monotonic()
    return before


def send(connections, path):
    for connection in connections:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: lab\r\n\r\n".encode())


def idle(count):
    """So many connections that have each had an answer."""
    connections = [socket.create_connection(("127.0.0.1", PORT), timeout=30) for _ in range(count)]
    send(connections, "/respond")
    for connection in connections:
        if not connection.recv(1 << 16).startswith(b"HTTP/1.1 200"):
            sys.exit("the server did not answer /respond")
    return connections


def refuse_answers(connections):
    for connection in connections:
        connection.setblocking(False)
        try:
            sys.exit(f"answered at once: {connection.recv(200)!r}")
        except BlockingIOError:
            pass


def parked(count, path):
    connections = idle(FIRST + int(count))
    send(connections[:FIRST], path)
    before = settled()
    send(connections[FIRST:], path)
    after = settled()
    refuse_answers(connections)
    print("parked_bytes", (after - before) / int(count), "bytes")


def load(count, path):
    bench = [PROGRAM, "bench", "-k", "-c", "64", "-n", str(count), f"http://127.0.0.1:{PORT}{path}"]
    done = subprocess.run(bench, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(bench)}: {done.stderr}")


def grown(first, every, path):
    load(int(first), path)
    before = settled()
    load(int(every) - int(first), path)
    after = settled()
    print("after_first_bytes", before, "bytes")
    print("after_all_bytes", after, "bytes")
    print("grown_share", after / before, "share")


{"parked": parked, "grown": grown}[sys.argv[1]](*sys.argv[2:])
