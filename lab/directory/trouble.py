#!/usr/bin/env python3
"""What known and unknown names get while the database is in trouble.

    trouble.py MODE_FILE DATABASE_SOCKET

Rows are good for a second here and each trouble lasts eight, so that every row is old. One known name is loaded by
`nagaya bench` meanwhile, 200 others are asked in turns, and so are names that nobody has asked for.
"""

import json
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "cgroup"))

import names  # noqa: E402
import processes as p  # noqa: E402

LOAD = ["--rate", "1000", "--duration", "8s", "--connections", "16", "--quiet", "--json", "-"]
KNOWN = 200
TROUBLES = ["refuse", "late", "stall", "cut", "schema"]


def main(mode_file, database):
    names.warm(KNOWN)
    quiet = statistics.median(load() for _ in range(3))
    ratios, asked = [], Asked()
    for at, trouble in enumerate(TROUBLES):
        begin(trouble, mode_file, database)
        with asked.of(at):
            ratios.append(load() / quiet)
        end(trouble, mode_file, database)
    p.eventually("a new name to be answered again", lambda: names.ask("n00900000.example").status == 200)
    p.tell(known_p99_ratio=statistics.median(ratios), known_p99_ratio_most=max(ratios), known_failed=asked.failed,
           known_asked=asked.known, unknown_wait_longest_s=asked.longest, unknown_not_503=asked.other,
           unknown_asked=asked.unknown)


def load():
    """The 99th percentile of a known name, in microseconds."""
    command = [p.PROGRAM, "bench", *LOAD, "--header", "Host: n00000000.example", f"http://127.0.0.1:{p.PORT}/proxy/13"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(ran.stdout)
    return found["times"]["response"]["quantiles_us"]["p99"]


def begin(trouble, mode_file, database):
    if trouble == "schema":
        sql(database, "rename table domain to elsewhere")
    else:
        Path(mode_file).write_text(trouble)


def end(trouble, mode_file, database):
    if trouble == "schema":
        sql(database, "rename table elsewhere to domain")
    else:
        Path(mode_file).write_text("pass")


def sql(database, text):
    subprocess.run(["mariadb", "--no-defaults", "-S", database, "-u", "root", "domains", "-e", text], check=True)


class Asked:
    """Who is asked for beside the load."""

    def __init__(self):
        self.known = self.failed = self.unknown = self.other = 0
        self.longest = 0.0

    def of(self, trouble):
        self.trouble, self.is_over = trouble, False
        self.threads = [threading.Thread(target=it) for it in (self.ask_known, self.ask_unknown)]
        return self

    def __enter__(self):
        for thread in self.threads:
            thread.start()

    def __exit__(self, *_):
        self.is_over = True
        for thread in self.threads:
            thread.join()

    def ask_known(self):
        while not self.is_over:
            self.failed += names.ask(f"n{self.known % KNOWN:08}.example").status != 200
            self.known += 1
            time.sleep(0.01)

    def ask_unknown(self):
        # A trouble that begins with an open connection may answer the first.
        time.sleep(1)
        while not self.is_over:
            answer = names.ask(f"n{500000 + self.unknown:08}.example")
            self.other += answer.status != 503
            self.longest = max(self.longest, answer.seconds)
            self.unknown += 1


main(*sys.argv[1:])
