#!/usr/bin/env python3
"""Changes under load, and the requests that fail meanwhile.

    changes.py gateway RELOADS CHANGES PHP    reloads of the gateway; then another PHP is put in PHP's place so many times
    changes.py fpm TIMES PIDFILE              USR2 to a php-fpm of somebody else's
"""

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pools
from pools import p

CLIENTS = 4
HOST = "warm0.lab"


class Load:
    """Clients that ask without end, each answer on a connection of its own."""

    def __init__(self):
        self.is_over, self.asked, self.failed = False, 0, 0
        self.clients = [threading.Thread(target=self.run) for _ in range(CLIENTS)]

    def run(self):
        while not self.is_over:
            try:
                status = pools.ask(HOST).status
            except OSError:
                status = 0
            self.asked += 1
            self.failed += status != 200

    def __enter__(self):
        for client in self.clients:
            client.start()
        return self

    def __exit__(self, *_):
        self.is_over = True
        for client in self.clients:
            client.join()


def gateway(reloads, changes, php):
    for _ in range(int(reloads)):
        subprocess.run([p.PROGRAM, "reload", "-c", pools.CONFIG], check=True, capture_output=True)
    for _ in range(int(changes)):
        before = pools.masters()
        shutil.copy2(php, php + ".new")
        os.utime(php + ".new")
        os.rename(php + ".new", php)
        p.eventually("masters of the new PHP", lambda: [pid for pid in pools.masters() if pid not in before], 60)
        p.eventually("the end of those before", lambda: not [pid for pid in pools.masters() if pid in before], 60)


def fpm(times, pid_file):
    for _ in range(int(times)):
        os.kill(int(Path(pid_file).read_text()), signal.SIGUSR2)
        time.sleep(0.3)


def main(kind, *words):
    pools.ask(HOST)
    with Load() as load:
        {"gateway": gateway, "fpm": fpm}[kind](*words)
    p.tell(failed_requests=load.failed, asked_requests=load.asked)


main(*sys.argv[1:])
