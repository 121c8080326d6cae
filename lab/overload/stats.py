#!/usr/bin/env python3
"""What the back end counted since the last look, as figures of a slice.

    stats.py PORT
"""

import sys
import urllib.request

with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/stats", timeout=10) as reply:
    seen = dict(line.split() for line in reply.read().decode().splitlines())
print("most_at_once", seen["most"])
print("wasted_share", int(seen["wasted"]) / max(1, int(seen["started"])), "share")
