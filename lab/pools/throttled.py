#!/usr/bin/env python3
"""A tenant with half a core who is asked for five times as much: what is served, and how long each page takes.

    throttled.py HOST SECONDS     of tenant fixed0 the kernel gets the quota from here, and the gateway knows nothing of it
"""

import asyncio
import json
import os
import sys
import time
from pathlib import Path

import pools
from pools import Client, groups, p

QUOTA = 0.5
TIMES = 5


def set_quota(tenant):
    """A quota that is the kernel's affair alone."""
    for path in groups.of_gateways():
        if path.name == f"tenant-{tenant}" and (path / "cpu.max").exists():
            (path / "cpu.max").write_text(f"{int(QUOTA * 100000)} 100000")
        elif path.name == f"tenant-{tenant}" and (path / "cpu.cfs_quota_us").exists():
            (path / "cpu.cfs_quota_us").write_text(str(int(QUOTA * 100000)))


def page_times(host, since):
    """How long PHP took for each page of status 200 from then on, in seconds."""
    found = []
    for line in Path(os.environ["LAB_HOME"], "access.log").read_text().splitlines()[since:]:
        record = json.loads(line)
        if record.get("host") == host and record.get("status") == 200:
            found.append(record["upstream_us"] / 1e6)
    return found


async def main(host, seconds):
    pools.ask(host, "/work.php")
    master = [pool.get("pid") for pool in pools.pools() if pools.host_of(pool) == host][0]
    before = p.cpu_seconds(p.tree(master))
    for _ in range(10):
        pools.ask(host, "/work.php")
    cost = (p.cpu_seconds(p.tree(master)) - before) / 10
    if host.startswith("fixed"):
        set_quota("fixed0")
    client = Client(p.PORT, host, "/work.php", TIMES * QUOTA / cost)
    running = asyncio.create_task(client.run())
    await asyncio.sleep(4)
    since, start = lines(), time.monotonic()
    await asyncio.sleep(seconds)
    end = time.monotonic()
    pages = page_times(host, since)
    client.over = True
    await running
    answered = [seconds for _, seconds, status in client.between(start, end) if status == 200]
    p.tell(page_p50_us=pools.quantile(pages, 0.5) * 1e6, served_per_second=len(pages) / (end - start),
           response_p50_us=pools.quantile(answered, 0.5) * 1e6, asked_per_second=client.rate)


def lines():
    return len(Path(os.environ["LAB_HOME"], "access.log").read_text().splitlines())


pools.go_first()
asyncio.run(main(sys.argv[1], float(sys.argv[2])))
