#!/usr/bin/env python3
"""What a load of names needs beside it.

    names.py warm COUNT    asks for each of so many names once, if this server was not asked before
    names.py look          prints what the server has come to know, and its memory
"""

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "cgroup"))

import processes as p  # noqa: E402

AT_ONCE = 64
HOME = Path(os.environ["LAB_HOME"])


def warm(count):
    memory = HOME / "warm.json"
    if memory.exists() and json.loads(memory.read_text())["pid"] == p.PID:
        return
    empty = p.settled_bytes(p.PID, "Pss")
    streams = [socket.create_connection(("127.0.0.1", p.PORT), 60) for _ in range(AT_ONCE)]
    began = time.monotonic()
    for first in range(0, count, AT_ONCE):
        asked = streams[:min(AT_ONCE, count - first)]
        for at, stream in enumerate(asked):
            stream.sendall(f"GET /proxy/13 HTTP/1.1\r\nHost: n{first + at:08}.example\r\n\r\n".encode())
        for stream in asked:
            reply = b""
            while not is_whole(reply):
                more = stream.recv(65536)
                if not more:
                    sys.exit(f"no whole reply for one of the names from {first} on: {reply[:300]}")
                reply += more
                if b" 503 " in reply[:15]:
                    sys.exit(f"one of the names from {first} on: {reply.decode()}")
    seconds = time.monotonic() - began
    more = p.settled_bytes(p.PID, "Pss") - empty
    memory.write_text(json.dumps({"pid": p.PID, "asked": count, "seconds": seconds, "bytes": more}))


def is_whole(reply):
    head, end, body = reply.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    return bool(end and length and len(body) >= int(length[1]))


def look():
    words = [p.PROGRAM, "status", "--json", "-c", os.environ["LAB_CONFIG"]]
    told = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    for directory in told.get("directories", []):
        asked = json.loads((HOME / "warm.json").read_text())
        looks = directory["fresh"] + directory["old"]
        p.tell(questions=directory["asked"], hosts=directory["hosts"], kept_bytes=directory["bytes"],
               row_bytes=asked["bytes"] / asked["asked"], warm_seconds=asked["seconds"],
               looks=looks, busy=directory["busy"], gave_up=directory["gave_up"])
    p.tell(server_bytes=p.held_bytes(p.PID, "Pss"))


class Answer:
    def __init__(self, status, seconds, text):
        self.status, self.seconds, self.text = status, seconds, text


def ask(host, path="/proxy/13", port=None):
    began, text = time.monotonic(), b""
    try:
        with socket.create_connection(("127.0.0.1", port or p.PORT), 60) as stream:
            stream.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            while more := stream.recv(65536):
                text += more
    except OSError:
        pass
    words = text.split(b" ", 2)
    return Answer(int(words[1]) if len(words) > 1 else 0, time.monotonic() - began, text)


if __name__ == "__main__":
    warm(int(sys.argv[2])) if sys.argv[1] == "warm" else look()
