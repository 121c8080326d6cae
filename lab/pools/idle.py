#!/usr/bin/env python3
"""Tenants that nobody asks: what each takes, before they were ever asked, and after.

    idle.py COUNT     tenants idle0 …; memory is what this server has more than one without them

What the kernel could not throw away counts: anonymous memory, and files that are nowhere but in memory, as the
configuration's text is. The program's own pages are left out: all processes here share them, those of both servers,
and none has more of them for a tenant. So is what the kernel has for a pool: a socket, and three directories' names.
"""

import asyncio
import os
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pools
from pools import p

# What figures call them.
PARTS = {"nagaya": "supervisor", "nagaya-spawner": "spawner", "nagaya-server": "server", "files": "files"}


def held_bytes(root):
    """By the name of the process, and of files by `files`."""
    held, files = Counter(), {}
    for pid in p.tree(root):
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            held[name] += sum(int(line.split()[1]) * 1024 for line in rollup.splitlines() if line.startswith("Pss_Anon:"))
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                if os.readlink(descriptor).startswith("/memfd:"):
                    facts = descriptor.stat()
                    files[facts.st_ino] = facts.st_blocks * 512
        except (OSError, ValueError):
            pass
    held["files"] = sum(files.values())
    return held


def settled_bytes(root):
    """Once it stands still."""
    seen = held_bytes(root)
    for _ in range(20):
        time.sleep(0.5)
        before, seen = seen, held_bytes(root)
        if abs(before.total() - seen.total()) < 4096:
            break
    return seen


def without(count):
    """The same gateway, with one tenant."""
    home = Path(os.environ["LAB_HOME"], "few")
    home.mkdir(exist_ok=True)
    port = free_port()
    text = Path(pools.CONFIG).read_text().partition("\n[tenants.idle1]")[0]
    text = text.replace(os.environ["LAB_HOME"], str(home)).replace(f":{p.PORT}\"", f":{port}\"")
    config = home / "nagaya.toml"
    config.write_text(text)
    server = subprocess.Popen([p.PROGRAM, "serve", "-c", config])
    try:
        p.eventually("an answer", lambda: answers(port))
        return settled_bytes(server.pid)
    finally:
        server.terminate()
        server.wait(timeout=30)


def free_port():
    with pools.socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def answers(port):
    try:
        return pools.ask("idle0.lab", "/hello.txt", port).status
    except OSError:
        return 0


async def wake(hosts):
    for start in range(0, len(hosts), 50):
        yield await asyncio.gather(*(pools.asked(host) for host in hosts[start:start + 50]))


async def main(count):
    few, many = without(count), settled_bytes(p.PID)
    unanswered = 0
    async for answers in wake([f"idle{number}.lab" for number in range(count)]):
        unanswered += sum(answer.status != 200 for answer in answers)
    p.eventually("pools to end", lambda: not pools.masters(), 120)
    woken = settled_bytes(p.PID)
    each = {name: (many[name] - few[name]) / (count - 1) for name in PARTS}
    p.tell(tenant_bytes=(many.total() - few.total()) / (count - 1),
           woken_tenant_bytes=(woken.total() - few.total()) / (count - 1),
           **{f"{PARTS[name]}_bytes": bytes for name, bytes in each.items()},
           left_processes=len(p.named(p.PID, "php-fpm")), unanswered_requests=unanswered)


asyncio.run(main(int(sys.argv[1])))
