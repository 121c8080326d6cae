#!/usr/bin/env python3
"""What the back end counted since the last look, as figures of a slice.

    stats.py PORT [SCHEDULE]     with what is to change of it, and when: 30:slots=10,60:slots=20
"""

import sys
import urllib.request

with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/stats?{','.join(sys.argv[2:])}", timeout=10) as reply:
    seen = dict(line.split() for line in reply.read().decode().splitlines())
print("most_at_once", seen["most"])
print("wasted_share", int(seen["wasted"]) / max(1, int(seen["started"])), "share")
