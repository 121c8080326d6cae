#!/usr/bin/env python3
"""Whose pools start first where many are wanted at once.

    turns.py even TENANTS POOLS     all pools of tenants even0 … at once: Jain's index of what starts of each
                                    have cost when half of them are answered
    turns.py greedy POOLS OTHERS    all pools of greedy0, and meanwhile one of each of other0 …, one after another:
                                    how much longer these wait than when they are alone
"""

import asyncio
import sys

import pools
from pools import p


def cost_of_tenants():
    costs = {}
    for pool in pools.pools():
        costs[pool["tenant"]] = costs.get(pool["tenant"], 0) + pool.get("cpu_us", 0)
    return costs


async def even(tenants, each):
    pools.all_cold()
    before = cost_of_tenants()
    hosts = [f"even{tenant}-{pool}.lab" for tenant in range(tenants) for pool in range(each)]
    asked = [asyncio.create_task(pools.asked(host)) for host in hosts]
    answered = asyncio.as_completed(asked)
    for _ in range(len(hosts) // 2):
        await next(answered)
    costs = await asyncio.to_thread(cost_of_tenants)
    spent = [costs[name] - before[name] for name in (f"even{tenant}" for tenant in range(tenants))]
    answers = await asyncio.gather(*asked)
    p.tell(first_half_jain=pools.jain(spent),
           unanswered_requests=sum(answer.status != 200 for answer in answers),
           longest_us=max(answer.seconds for answer in answers) * 1e6)


async def greedy(each, others):
    hosts = [f"other{number}.lab" for number in range(others)]
    pools.all_cold()
    lone = [(await pools.asked(host)).seconds for host in hosts]
    pools.all_cold()
    asked = [asyncio.create_task(pools.asked(f"greedy0-{pool}.lab")) for pool in range(each)]
    await asyncio.sleep(0.1)
    beside = [await pools.asked(host) for host in hosts]
    are_under_way = sum(not task.done() for task in asked)
    answers = await asyncio.gather(*asked)
    lone_p50 = pools.quantile(lone, 0.5)
    p.tell(slowest_ratio=max(answer.seconds for answer in beside) / lone_p50,
           usual_ratio=pools.quantile([answer.seconds for answer in beside], 0.5) / lone_p50,
           lone_us=lone_p50 * 1e6, under_way_pools=are_under_way,
           unanswered_requests=sum(answer.status != 200 for answer in [*beside, *answers]))


kind, *counts = sys.argv[1:]
pools.go_first()
asyncio.run({"even": even, "greedy": greedy}[kind](*map(int, counts)))
