#!/usr/bin/env python3
"""What each of the gateway's processes took for a reply of a slice.

    took.py before     remembers
    took.py after      prints how much more it is now, for each request that the server counted between

Times are those of the scheduler (/proc/PID/task/TID/schedstat), in nanoseconds, of threads that live.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

NAMES = {"nagaya-server": "server", "nagaya-recorder": "recorder"}
MEMORY = Path(os.environ["LAB_HOME"], "took.json")


def children(pid):
    """All processes below one, and it."""
    below = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid] + [found for child in below for found in children(child)]


def took_ns(pid):
    threads = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads)


def status():
    """What the server counts of all requests, and of what it told the recorder."""
    words = [os.environ["LAB_PROGRAM"], "status", "--json", "-c", os.environ["LAB_CONFIG"]]
    told = json.loads(subprocess.run(words, check=True, capture_output=True).stdout)
    recorder = told.get("recorder") or {}
    return {
        "replies": sum(worker["ended"] for worker in told["workers"]),
        "dropped": sum(recorder.get("dropped", {}).values()),
    }


def now():
    # The recorder looks 20 times a second: what was told shall have been read.
    time.sleep(0.2)
    seen = status() | {name: 0 for name in NAMES.values()}
    for pid in children(os.environ["LAB_PID"]):
        name = NAMES.get(Path(f"/proc/{pid}/comm").read_text().strip())
        if name:
            seen[name] += took_ns(pid)
    return seen


if sys.argv[1] == "before":
    MEMORY.write_text(json.dumps(now()))
else:
    seen, before = now(), json.loads(MEMORY.read_text())
    more = {name: seen[name] - before[name] for name in seen}
    for name in NAMES.values():
        print(f"{name}_cpu_us {more[name] / 1000 / more['replies']:.4f} us")
    print(f"not_recorded {more['dropped']}")
