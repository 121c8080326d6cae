#!/usr/bin/env python3
"""What a start from a snapshot is like while the database is away, beside one from a snapshot of 1,000 rows.

    start.py ROWS

The gateway of the row fills its snapshot from the whole table; then another one with the same snapshot and no
database is started and asked for a name that nobody has asked for.
"""

import os
import re
import shutil
import signal
import sqlite3
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "cgroup"))

import names  # noqa: E402
import processes as p  # noqa: E402

HOME = Path(os.environ["LAB_HOME"])
FILL_SECONDS = 600
FEW = 1000


def main(rows):
    snapshot = HOME / "rows" / "snapshot"
    began = time.monotonic()
    p.eventually("the snapshot to be filled", lambda: kept(snapshot) >= rows, FILL_SECONDS)
    filled = time.monotonic() - began
    few = HOME / "few"
    few.mkdir()
    for name in snapshot.parent.iterdir():
        shutil.copy2(name, few / name.name)
        shutil.chown(few / name.name, name.owner())
    os.chmod(few, 0o777)
    with sqlite3.connect(few / "snapshot") as table:
        table.execute("delete from rows where host > (select host from rows order by host limit 1 offset ?)", [FEW - 1])
        table.commit()
        table.execute("vacuum")
    table.close()
    of_few = started(few / "snapshot", "n00000500.example")
    of_all = started(snapshot, f"n{rows - 1:08}.example")
    p.tell(first_answer_s=of_all[0], memory_ratio=of_all[1] / of_few[1], memory_bytes=of_all[1],
           snapshot_bytes=snapshot.stat().st_size, filled_s=filled)


def kept(snapshot):
    try:
        with sqlite3.connect(f"file:{snapshot}?mode=ro", uri=True) as table:
            return table.execute("select count(*) from rows").fetchone()[0]
    except (sqlite3.Error, TypeError):
        return 0


def started(snapshot, host):
    """How long a gateway without a database took from its start to the answer, and what it holds then."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = HOME / f"own-{port}"
    home.mkdir()
    os.chmod(home, 0o777)
    text = Path(os.environ["LAB_CONFIG"]).read_text()
    text = text.replace(f'"127.0.0.1:{p.PORT}"', f'"127.0.0.1:{port}"').replace(str(HOME / "rows" / "snapshot"), str(snapshot))
    # Nobody listens at port 1.
    text = re.sub(r"@127\.0\.0\.1:\d+/", "@127.0.0.1:1/", text).replace(f'socket = "{HOME}', f'socket = "{home}')
    config = home / "nagaya.toml"
    config.write_text(text)
    began = time.monotonic()
    server = subprocess.Popen([p.PROGRAM, "serve", "-c", config], stderr=subprocess.DEVNULL)
    try:
        p.eventually("an answer from the snapshot", lambda: names.ask(host, port=port).status == 200)
        seconds = time.monotonic() - began
        return seconds, p.settled_bytes(server.pid, "Pss_Anon")
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=30)


main(int(sys.argv[1]))
