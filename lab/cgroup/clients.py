"""Slow clients that must not hold PHP, and ten thousand programs that must leave nothing behind."""

import asyncio
import os
import re
import time
from pathlib import Path

import bed as b

SLOTS, PAGE_MS, SIZE, RATE = 4, 50, 2_000_000, 10_000
# Held: from the moment php has the request's parameters to the end of the page, when its whole reply
# is written. php-fpm's own log would count the idle time of a kept connection too.
PAGE = f"""<?php
register_shutdown_function(function () {{
  $held = microtime(true) - $_SERVER['REQUEST_TIME_FLOAT'];
  file_put_contents('HELD', sprintf("%.1f\\n", $held * 1000), FILE_APPEND | LOCK_EX);
}});
usleep({PAGE_MS * 1000});
file_get_contents('php://input');
echo str_repeat('x', isset($_GET['big']) ? {SIZE} : 13);
"""


def start_php(bed):
    fpm, = b.needs(php_fpm())
    home = bed.directory("php")
    become = "user = nobody\ngroup = nogroup\nlisten.mode = 0666\n" if os.getuid() == 0 else ""
    config = bed.file("php/fpm.conf", f"""[global]
error_log = {home}/error.log
daemonize = no
[www]
{become}listen = {home}/php.sock
pm = static
pm.max_children = {SLOTS}
php_admin_value[post_max_size] = 16M
""")
    home.chmod(0o777)
    bed.start(fpm, "-F", "-y", config, core=b.CLIENT_CORE, ready=home / "php.sock")
    return home


def php_fpm():
    found = sorted(Path("/usr/sbin").glob("php-fpm*"))
    return found[-1].name if found else "php-fpm"


async def send_slowly(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"POST /page.php HTTP/1.1\r\nHost: x\r\nContent-Length: {SIZE}\r\nConnection: close\r\n\r\n".encode())
    for _ in range(SIZE // RATE):
        writer.write(b"x" * RATE)
        await writer.drain()
        await asyncio.sleep(1)
    return await finish(reader, writer)


async def read_slowly(port):
    # A small buffer, or the kernel takes what the client does not read.
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=RATE)
    writer.get_extra_info("socket").setsockopt(1, 8, 16384)
    writer.write(b"GET /page.php?big HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    read, start = 0, time.monotonic()
    while data := await reader.read(RATE):
        read += len(data)
        await asyncio.sleep(max(0, start + read / RATE - time.monotonic()))
    return read > SIZE


async def finish(reader, writer):
    head = await reader.readline()
    writer.close()
    return b" 200 " in head


def slow(count=200):
    """As many senders as readers, all at 10 KB/s, 2 MB each."""
    b.progress("slow · starting")
    with b.Bed() as bed:
        home = start_php(bed)
        bed.file("site/page.php", PAGE.replace("HELD", f"{home}/held"))
        _, port = bed.nagaya(f"""[[sites]]
hosts = ["*"]
root = "{bed.home}/site"
  [[sites.rules]]
  match = {{ file = "*.php" }}
  handler = {{ fastcgi = "unix:{home}/php.sock" }}
""")
        async def all_of_them():
            work = [send_slowly(port) for _ in range(count)] + [read_slowly(port) for _ in range(count)]
            return await asyncio.gather(*work, return_exceptions=True)
        b.progress(f"slow · {count} senders and {count} readers, {SIZE // RATE} s")
        outcomes = asyncio.run(all_of_them())
        held = [float(line) for line in (home / "held").read_text().splitlines()]
    good = sum(outcome is True for outcome in outcomes)
    longest = max(held)
    rows = [("clients served whole", f"{good} of {2 * count}", 2 * count, b.verdict(good == 2 * count)),
            ("requests php saw", len(held), "", ""),
            ("slot held, median", f"{b.median(held):.1f} ms", "", ""),
            ("slot held, longest", f"{longest:.1f} ms", f"{PAGE_MS + 50} ms", b.verdict(longest <= PAGE_MS + 50))]
    note = f"php-fpm with {SLOTS} children; each page notes how long it held one. The page sleeps {PAGE_MS} ms. Clients move {RATE:,} bytes a second."
    return b.table(f"{count} slow senders and {count} slow readers of {SIZE // 1_000_000} MB", ["what", "seen", "target", ""], rows, note)


async def one_program(port, number):
    """A request of the mix: most are read, some left early, some run into the time limit."""
    path = "/sleep.cgi" if number % 4 == 1 else "/hello.cgi"
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        if number % 4 == 2:
            await asyncio.sleep(0.002)
        elif number % 8 == 5:
            await asyncio.sleep(0.02)
        else:
            await reader.read(-1)
        writer.close()
    except OSError:
        return False
    return True


def leaks(count=10_000, at_once=32):
    """Programs that end, are left, and are cut off: what remains afterwards."""
    b.progress("leaks · starting")
    with b.Bed() as bed:
        bed.compile_hello("site/hello.cgi")
        bed.file("site/sleep.cgi", "#!/bin/sh\nsleep 60 &\nsleep 60\n", 0o755)
        others = set(group_directories())
        supervisor, port = bed.nagaya(f"""[[sites]]
hosts = ["*"]
root = "{bed.home}/site"
user = "{b.program_user()}"
  [[sites.rules]]
  match = {{ file = "*.cgi" }}
  handler = {{ cgi = {{ timeout = "100ms" }} }}
  cgroup = {{ pids = 500 }}
""")
        async def batch(first, last):
            turn = asyncio.Semaphore(at_once)
            async def one(number):
                async with turn:
                    return await one_program(port, number)
            await asyncio.gather(*(one(number) for number in range(first, last)))
        asyncio.run(batch(0, 200))
        settle(supervisor)
        before = state(supervisor, others)
        for first in range(0, count, 500):
            b.progress(f"leaks · {first:,} of {count:,}")
            asyncio.run(batch(first, min(count, first + 500)))
        settle(supervisor)
        after = state(supervisor, others)
        bed.stop(supervisor)
        left = len(set(group_directories()) - others)
    rows = [("processes", before["processes"], after["processes"], b.verdict(before["processes"] == after["processes"])),
            ("zombies", before["zombies"], after["zombies"], b.verdict(after["zombies"] == 0)),
            ("groups", before["groups"], after["groups"], b.verdict(before["groups"] == after["groups"])),
            ("groups after the end", "", left, b.verdict(left == 0)),
            ("descriptors", before["descriptors"], after["descriptors"], b.verdict(before["descriptors"] == after["descriptors"])),
            ("resident KiB", before["resident"], after["resident"], "")]
    note = "A quarter runs into a time limit of 100 ms with a child of its own, a quarter is left after 2 ms."
    return b.table(f"{count:,} CGI requests", ["what", "before", "after", ""], rows, note)


def settle(supervisor):
    b.eventually("programs to end", lambda: not b.named(supervisor.pid, ".cgi"), 30)


def state(supervisor, others):
    pids = b.tree(supervisor.pid)
    status = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
    return {
        "processes": len(pids),
        "zombies": sum("State:\tZ" in text for text in status),
        "groups": len(set(group_directories()) - others),
        "descriptors": sum(len(os.listdir(f"/proc/{pid}/fd")) for pid in pids),
        "resident": sum(int(found[1]) for text in status if (found := re.search(r"VmRSS:\s+(\d+)", text))),
    }


def group_directories():
    """Every group below one that a gateway made."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()
              if line.split()[2] in ("cgroup", "cgroup2")]
    return [path for mount in mounts for top in Path(mount).rglob("nagaya-*") for path in [top, *top.rglob("*")]
            if path.is_dir()]
