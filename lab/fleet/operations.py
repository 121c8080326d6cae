#!/usr/bin/env python3
"""How often the store was asked for each request of a slice.

    operations.py [begin]
"""

import json
import os
import re
import socket
import sys
from pathlib import Path

ASKED = ("evalsha", "eval", "blpop", "incr", "decr")
STORE, PORT = int(os.environ.get("LAB_BACKEND_STORE_PORT", "0")), int(os.environ["LAB_PORT"])
KEPT = Path(os.environ["LAB_HOME"]) / "operations"


def said(port, question):
    with socket.create_connection(("127.0.0.1", port), 10) as link:
        link.sendall(question)
        return b"".join(iter(lambda: link.recv(65536), b"")).decode()


def counts():
    """Calls of the store and requests so far, by their own counts."""
    text = said(STORE, b"INFO commandstats\r\nQUIT\r\n")
    calls = {name: int(count) for name, count in re.findall(r"cmdstat_(\w+):calls=(\d+)", text)}
    asked = sum(calls.get(name, 0) for name in ASKED)
    if "nagaya" not in os.environ["LAB_VARIANT"]:
        return asked, calls.get("incr", 0)
    text = said(PORT, b"GET / HTTP/1.1\r\nHost: figures.lab\r\nConnection: close\r\n\r\n")
    return asked, sum(float(count) for count in re.findall(r"(?m)^nagaya_requests_total\S* (\S+)$", text))


if any(word in os.environ["LAB_VARIANT"] for word in ("fleet", "Redis")):
    if sys.argv[1:] == ["begin"]:
        KEPT.write_text(json.dumps(counts()))
    else:
        begun, ended = json.loads(KEPT.read_text()), counts()
        print("operations", f"{(ended[0] - begun[0]) / max(ended[1] - begun[1], 1):.6g}", "1")
