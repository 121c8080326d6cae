#!/usr/bin/env python3
"""Ten pages without end of one tenant whose group has half a core: what they take, what others wait, when they end.

    runaways.py LOOPS NEIGHBOURS     of tenant hog0, whose pages may take 12 s; neighbours warm0 …
"""

import asyncio
import sys
import time

import pools
from pools import p


def loops():
    """Children of the tenant's pool that run."""
    master = [pool.get("pid") for pool in pools.pools() if pool["tenant"] == "hog0"][0]
    return [pid for pid in p.tree(master) if pid != master and p.cpu_seconds([pid]) > 0.2]


async def main(count, others):
    pools.ask("hog0.lab")
    neighbours = pools.Neighbours([f"warm{number}.lab" for number in range(others)])
    asked = []

    async def go_round():
        asked.extend(asyncio.create_task(pools.asked("hog0.lab", "/loop.php")) for _ in range(count))
        # A fresh group has a full quota.
        await asyncio.sleep(2)
        return await asyncio.to_thread(share_and_other_pages)

    def share_and_other_pages():
        group = p.tree([pool.get("pid") for pool in pools.pools() if pool["tenant"] == "hog0"][0])
        before, start = p.cpu_seconds(group), time.monotonic()
        time.sleep(4)
        share = (p.cpu_seconds(group) - before) / (time.monotonic() - start)
        return share, [pools.ask("hog0.lab") for _ in range(5)]
    share, answers = await pools.beside(neighbours, go_round, 6)
    for task in asked[: count // 2]:
        task.cancel()
    began = time.monotonic()
    await asyncio.to_thread(p.eventually, "loops to end", lambda: not loops(), 60)
    await asyncio.gather(*asked, return_exceptions=True)
    p.tell(used_of_a_core_share=share, unanswered_requests=sum(answer.status != 200 for answer in answers),
           other_page_us=pools.quantile([answer.seconds for answer in answers], 0.5) * 1e6,
           loops_end_after_us=(time.monotonic() - began) * 1e6)


pools.go_first()
asyncio.run(main(*map(int, sys.argv[1:])))
