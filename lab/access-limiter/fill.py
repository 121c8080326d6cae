#!/usr/bin/env python3
"""Sends one request for each of many keys, and says what memory a key has taken.

    fill.py COUNT [MARK]     with MARK, a file: only where it is not there, and then it is made
"""

import os
import socket
import sys
from pathlib import Path

PORT, PID = int(os.environ["LAB_PORT"]), int(os.environ["LAB_PID"])
AT_ONCE = 50


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


def send(first, last):
    """One request a key, pipelined over one connection."""
    with socket.create_connection(("127.0.0.1", PORT), timeout=30) as connection:
        for start in range(first, last, AT_ONCE):
            keys = range(start, min(last, start + AT_ONCE))
            heads = [f"GET /respond HTTP/1.1\r\nHost: lab\r\nX-Key: k{key}\r\n\r\n" for key in keys]
            connection.sendall("".join(heads).encode())
            read = b""
            while read.count(b"HTTP/1.1 200") < len(keys) or not read.endswith((b"hello, world!", b";")):
                data = connection.recv(1 << 16)
                if not data:
                    sys.exit(f"the server closed the connection after key {start}: {read[-300:]!r}")
                read += data


def main(count, mark=None):
    if mark and Path(mark).exists():
        return
    # What the first requests allocate is no key's; these keys are among the others.
    send(0, 1000)
    before = pss_bytes()
    send(1000, int(count))
    print("key_bytes", (pss_bytes() - before) / (int(count) - 1000), "bytes")
    if mark:
        Path(mark).touch()


main(*sys.argv[1:])
