#!/usr/bin/env python3
"""A thousand names get another upstream within a minute, under load.

    switch.py DATABASE_SOCKET

Two upstreams that say which they are stand here. After each change its name is asked until the new one answers.
"""

import http.server
import os
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "cgroup"))

import names  # noqa: E402
import processes as p  # noqa: E402

SWITCHED = 1000
SECONDS = 60
LOADERS = 4


class Upstream(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = f"upstream {self.server.server_port}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def upstream():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


class Load:
    """Names in turns; what is not answered well is counted."""

    def __init__(self):
        self.asked = self.failed = 0
        self.is_over = False
        self.threads = [threading.Thread(target=self.ask, args=(first,)) for first in range(LOADERS)]

    def ask(self, at):
        while not self.is_over:
            self.failed += names.ask(f"n{at % SWITCHED:08}.example").status != 200
            self.asked += 1
            at += LOADERS
            time.sleep(0.01)


def main(database):
    client = subprocess.Popen(["mariadb", "--no-defaults", "-S", database, "-u", "root", "domains"],
                              stdin=subprocess.PIPE, text=True)

    def sql(text):
        client.stdin.write(text + ";\n")
        client.stdin.flush()

    old, new = upstream(), upstream()
    host = "concat('n', lpad(seq, 8, '0'), '.example')"
    sql(f"update domain set upstream = '127.0.0.1:{old}' where domain < 'n{SWITCHED:08}'")
    sql(f"insert into changes (host) select {host} from mysql.seq_0_to_{SWITCHED - 1}")
    names.warm(SWITCHED)
    p.eventually("all names to have the first upstream", lambda: all(
        str(old).encode() in names.ask(f"n{at:08}.example").text for at in range(0, SWITCHED, 50)))
    load, waits, began = Load(), [], time.monotonic()
    for thread in load.threads:
        thread.start()
    for at in range(SWITCHED):
        time.sleep(max(0.0, began + at * SECONDS / SWITCHED - time.monotonic()))
        name = f"n{at:08}.example"
        sql(f"update domain set upstream = '127.0.0.1:{new}' where domain = '{name}'; insert into changes (host) values ('{name}')")
        if at % 20 == 0:
            changed = time.monotonic()
            threading.Thread(target=lambda name=name, changed=changed: waits.append(
                p.eventually("a change to be in force", lambda: (
                    str(new).encode() in names.ask(name).text and time.monotonic() - changed)))).start()
    p.eventually("the last change to be in force", lambda: len(waits) == SWITCHED // 20)
    load.is_over = True
    for thread in load.threads:
        thread.join()
    # As it was, for who comes after.
    origin = os.environ["LAB_BACKEND_ORIGIN_PORT"]
    sql(f"update domain set upstream = '127.0.0.1:{origin}' where domain < 'n{SWITCHED:08}'")
    client.stdin.close()
    client.wait(timeout=30)
    p.tell(failed_requests=load.failed, asked_requests=load.asked, in_force_s=statistics.median(waits),
           in_force_longest_s=max(waits))


main(sys.argv[1])
