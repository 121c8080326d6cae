#!/usr/bin/env python3
"""Many tenants at zero are asked once each, all at once, beside ten that are warm and busy.

    crowd.py COLD WARM     tenants cold0 … and warm0 …
"""

import asyncio
import sys

import pools
from pools import p


async def main(cold, warm):
    cold = [f"cold{number}.lab" for number in range(cold)]
    pools.all_cold(set(cold))
    neighbours = pools.Neighbours([f"warm{number}.lab" for number in range(warm)])

    async def all_at_once():
        return await asyncio.gather(*(pools.asked(host) for host in cold))
    answers = await pools.beside(neighbours, all_at_once, 8)
    waits = [answer.seconds for answer in answers]
    p.tell(unanswered_requests=sum(answer.status != 200 for answer in answers),
           wait_p50_us=pools.quantile(waits, 0.5) * 1e6, wait_longest_us=max(waits) * 1e6)


pools.go_first()
asyncio.run(main(*map(int, sys.argv[1:])))
