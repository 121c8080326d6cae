#!/usr/bin/env python3
"""Requests for a page that a second of processor time does: without the time of PHP, and with it.

    warm.py BENCH HOST PATH SECONDS     BENCH is `nagaya`, whose bench asks
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "cgroup"))

import processes as p  # noqa: E402

CONNECTIONS = 8


def servers_and_php():
    """Processor time of the server's processes, and of PHP's, wherever these are."""
    own = p.tree(p.PID)
    php = {pid for pid in own if name(pid).startswith("php-fpm")}
    if outside := os.environ.get("LAB_BACKEND_PHP_HOME"):
        php.update(p.tree(int(Path(outside, "php-fpm.pid").read_text())))
    return seconds_of([pid for pid in own if pid not in php]), seconds_of(php)


def seconds_of(pids):
    """Processor time of these, and of those of their children that have ended."""
    return p.cpu_seconds(pids) + sum(map(ended_seconds, pids))


def ended_seconds(pid):
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0


def name(pid):
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return ""


def load(bench, host, path, *length):
    words = [bench, "bench", f"http://127.0.0.1:{p.PORT}{path}", "--header", f"Host: {host}",
             "--connections", str(CONNECTIONS), "--warm-up", "none", *length, "--quiet", "--json", "-"]
    return json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)


def main(bench, host, path, seconds):
    load(bench, host, path, "--requests", "2000")
    before, start = servers_and_php(), time.monotonic()
    told = load(bench, host, path, "--duration", f"{seconds}s")
    passed = time.monotonic() - start
    server, php = (after - earlier for after, earlier in zip(servers_and_php(), before))
    done = told["completed"]
    p.tell(per_cpu_second=done / server, whole_per_cpu_second=done / (server + php), per_second=done / passed,
           failed_requests=told["failed"])


main(*sys.argv[1:])
