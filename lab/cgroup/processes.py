"""What the measures here read of /proc, and how they wait and speak.

The idea: each program beside this file is one measure. `nagaya-lab` starts the servers, says in the
environment where they are, and reads `name value unit` from what the program prints.
"""

import os
import sys
import time
from pathlib import Path

PORT = int(os.environ.get("LAB_PORT", "0"))
PID = int(os.environ.get("LAB_PID", "0"))
PROGRAM = os.environ.get("LAB_PROGRAM", "")


def tell(**figures):
    """Prints figures; the last word of a name is its unit."""
    for name, value in figures.items():
        print(name, f"{value:.6g}", name.rpartition("_")[2])


def eventually(what, probe, seconds=30):
    end = time.monotonic() + seconds
    while True:
        found = probe()
        if found:
            return found
        if time.monotonic() > end:
            sys.exit(f"waited {seconds} s in vain for {what}")
        time.sleep(0.01)


def tree(root):
    """The pids of a process and all below it."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry))
            except OSError:
                pass
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def named(root, word):
    """The processes below `root` whose command line holds `word`."""
    def line(pid):
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("latin-1")
        except OSError:
            return ""
    return [pid for pid in tree(root) if word in line(pid)]


def cpu_seconds(pids):
    """CPU time used so far by all threads of these processes."""
    total = 0
    for pid in pids:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
        except (OSError, IndexError):
            pass
    return total / 1e9


def settled_bytes(root, kind):
    """Memory of a process and all below it once that stands still: `Pss`, or `Pss_Anon`, which no file could give back."""
    seen = held_bytes(root, kind)
    for _ in range(20):
        time.sleep(0.5)
        before, seen = seen, held_bytes(root, kind)
        if before == seen:
            break
    return seen


def held_bytes(root, kind):
    total = 0
    for pid in tree(root):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith(f"{kind}:"))
        except (OSError, ValueError):
            pass
    return total * 1024


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2
