#!/usr/bin/env python3
"""Something goes wrong at one tenant's, or in the gateway: what neighbours wait meanwhile, and what is left.

    faults.py master|spawner|supervisor|bomb|leak NEIGHBOURS     at tenant victim0; neighbours warm0 …

The supervisor that is killed is that of a gateway of this program's own: with it go its neighbours as well.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pools
from pools import groups, p

VICTIM = "victim0.lab"


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def victim():
    found = [pool.get("pid") for pool in pools.pools() if pool["tenant"] == "victim0"]
    return [pid for pid in found if pid]


async def master():
    for _ in range(10):
        for pid in await asyncio.to_thread(victim):
            kill(pid)
        await pools.asked(VICTIM)
        await asyncio.sleep(0.2)


async def spawner():
    for _ in range(4):
        for pid in p.named(p.PID, "nagaya spawner"):
            kill(pid)
        await pools.asked(VICTIM)
        await asyncio.sleep(1)


async def bomb():
    await asyncio.gather(*(pools.asked(VICTIM, "/bomb.php") for _ in range(2)), asyncio.sleep(5))


async def leak():
    for _ in range(3):
        await asyncio.gather(pools.asked(VICTIM, "/leak.php"), asyncio.sleep(1))


async def trouble(kind, count):
    pools.ask(VICTIM)
    neighbours = pools.Neighbours([f"warm{number}.lab" for number in range(count)])
    await pools.beside(neighbours, kind, 6)
    p.eventually("a spawner that stops pools", stopped)
    started = time.monotonic()
    p.eventually("the end of the victim's", lambda: not in_groups("tenant-victim0"), 60)
    p.tell(left_processes=len(in_groups("tenant-victim0")), gone_after_us=(time.monotonic() - started) * 1e6)


def stopped():
    try:
        pools.nagaya("pools", "stop", VICTIM)
        return True
    except subprocess.CalledProcessError:
        return False


def in_groups(name):
    """Processes in groups below one of this name."""
    lists = [path / "cgroup.procs" for path in groups.of_gateways() if name in str(path)]
    found = set()
    for file in lists:
        try:
            found.update(file.read_text().split())
        except OSError:
            pass
    return found


def supervisor():
    """Kills one whose pools run, starts another with the same configuration, and looks a second later."""
    home = Path(os.environ["LAB_HOME"], "killed")
    home.mkdir(exist_ok=True)
    port = p.PORT + 1
    config = home / "nagaya.toml"
    text = Path(pools.CONFIG).read_text().replace(os.environ["LAB_HOME"], str(home))
    config.write_text(text.replace(f":{p.PORT}\"", f":{port}\"").replace(f"{home}/php-fpm", f"{home.parent}/php-fpm"))
    first = serve(config, port)
    for host in (VICTIM, "warm0.lab", "warm1.lab"):
        pools.ask(host, port=port)
    left = [pid for pid in p.tree(first.pid) if pid != first.pid]
    kill(first.pid)
    first.wait()
    second = serve(config, port)
    time.sleep(1)
    remaining = [pid for pid in left if is_there(pid)]
    answered = pools.ask(VICTIM, port=port).status
    second.terminate()
    second.wait(timeout=30)
    p.tell(left_processes=len(remaining), were_processes=len(left), unanswered_requests=int(answered != 200))


def serve(config, port):
    server = subprocess.Popen([p.PROGRAM, "serve", "-c", config])
    p.eventually("an answer", lambda: is_up(port))
    return server


def is_up(port):
    try:
        return pools.ask(VICTIM, "/hello.txt", port).status
    except OSError:
        return 0


def is_there(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def main(kind, count):
    pools.go_first()
    if kind == "supervisor":
        supervisor()
    else:
        asyncio.run(trouble({"master": master, "spawner": spawner, "bomb": bomb, "leak": leak}[kind], int(count)))


main(*sys.argv[1:])
