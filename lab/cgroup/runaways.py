#!/usr/bin/env python3
"""Runaway programs: what they get of a core, and what their neighbours lose.

    runaways.py share HOST COUNT SECONDS     so many `while.cgi` of that host: their share of a core
    runaways.py beside HOST PATH COUNT       a second of requests for PATH beside so many of them

The second counts the CPU time of the process that serves, not of the programs below it.
"""

import http.client
import re
import subprocess
import sys
import time

import processes as p


class Runaways:
    """Requests for `while.cgi` that last until closed."""

    def __init__(self, host, count):
        self.links = [http.client.HTTPConnection("127.0.0.1", p.PORT, timeout=60) for _ in range(count)]
        for link in self.links:
            link.request("GET", "/while.cgi", headers={"Host": host})
        self.pids = p.eventually(f"{count} programs", lambda: self.running(count))

    @staticmethod
    def running(count):
        pids = p.named(p.PID, "while.cgi")
        return pids or [0] if len(pids) == count else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for link in self.links:
            link.close()
        p.eventually("the programs to end", lambda: not p.named(p.PID, "while.cgi"))


def cpu_share(pids, seconds):
    before, start = p.cpu_seconds(pids), time.monotonic()
    time.sleep(seconds)
    return (p.cpu_seconds(pids) - before) / (time.monotonic() - start)


def share(host, count, seconds):
    with Runaways(host, int(count)) as runaways:
        # The first period of a fresh group has a full quota whenever it began.
        cpu_share(runaways.pids, 1)
        p.tell(used_of_a_core_share=cpu_share(runaways.pids, float(seconds)))


def beside(host, path, count):
    server = p.named(p.PID, "nagaya server")
    with Runaways(host, int(count)):
        before = p.cpu_seconds(server)
        command = [p.PROGRAM, "bench", "-q", "-k", "-c", "64", "-t", "1", "-n", "100000000",
                   "-H", f"Host: {host}", f"http://127.0.0.1:{p.PORT}{path}"]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        used = p.cpu_seconds(server) - before
    done = int(re.search(r"Complete requests:\s+(\d+)", said)[1])
    p.tell(per_cpu_second=done / used)


{"share": share, "beside": beside}[sys.argv[1]](*sys.argv[2:])
