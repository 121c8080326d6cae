#!/usr/bin/env python3
"""From zero to the first byte of a page, over and over.

    starts.py nagaya HOST PATH COUNT            its pool is ended before each request
    starts.py children HOST PATH COUNT WORD     of another server, whose processes with this word are killed
    starts.py fpm CONFIG SOCKET SCRIPT COUNT    php-fpm is started for each request, which is spoken to at its socket
"""

import os
import signal
import struct
import subprocess
import sys
import time

import pools
from pools import p


def of_pool(host, path):
    pools.all_cold({host})
    return checked(pools.ask(host, path))


def of_children(host, path, word):
    for pid in p.named(p.PID, word):
        os.kill(pid, signal.SIGKILL)
    p.eventually("their end", lambda: not p.named(p.PID, word))
    # Their master has to see it, too.
    time.sleep(3)
    return checked(pools.ask(host, path))


def checked(answer):
    if answer.status != 200:
        sys.exit(f"status {answer.status}: {answer.text[:500]}")
    return answer.seconds


def of_fpm(config, address, script):
    began = time.monotonic()
    master = subprocess.Popen([p.PROGRAM, "-F", "-y", config], stderr=subprocess.DEVNULL)
    try:
        while True:
            try:
                stream = pools.connect(0, address)
                break
            except OSError:
                time.sleep(0.0005)
        with stream:
            stream.sendall(request(script))
            if not stream.recv(8):
                sys.exit("php-fpm says nothing")
            return time.monotonic() - began
    finally:
        master.send_signal(signal.SIGTERM)
        master.wait()


def request(script):
    """FastCGI's records of a GET."""
    variables = {"SCRIPT_FILENAME": script, "REQUEST_METHOD": "GET", "REQUEST_URI": "/", "SERVER_PROTOCOL": "HTTP/1.1"}
    pairs = b"".join(bytes([len(name), len(value)]) + name.encode() + value.encode() for name, value in variables.items())
    return record(1, struct.pack(">HB5x", 1, 0)) + record(4, pairs) + record(4, b"") + record(5, b"")


def record(kind, content):
    return struct.pack(">BBHHBx", 1, kind, 1, len(content), 0) + content


def main(way, *words):
    *words, count = words if way != "children" else (*words[:2], words[3], words[2])
    one = {"nagaya": of_pool, "children": of_children, "fpm": of_fpm}[way]
    one(*words)
    seconds = [one(*words) for _ in range(int(count))]
    p.tell(first_byte_p50_us=pools.quantile(seconds, 0.5) * 1e6, first_byte_p99_us=pools.quantile(seconds, 0.99) * 1e6)


pools.go_first()
main(*sys.argv[1:])
