#!/usr/bin/env python3
"""Measures a server that has many sites: checking, reloading, memory.

The server runs (LAB_PID, LAB_PORT, LAB_CONFIG). Memory of a site is what this server has more than
the same one without the further sites, which is started here for it and ended again.
"""

import argparse
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "cgroup"))

import processes as p  # noqa: E402

RELOAD_WAIT_S = 60


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--check", required=True)
    arguments.add_argument("--serve", required=True)
    options = arguments.parse_args()
    config, pid = os.environ["LAB_CONFIG"], int(os.environ["LAB_PID"])
    with open(config) as file:
        text = file.read()
    sites = text.count("site-")
    many = p.settled_bytes(pid, "Pss")
    few = bytes_without_sites(text, options.serve)
    print(f"site_bytes {max(0, many - few) / sites:.0f}")
    print(f"check_seconds {timed(lambda: subprocess.run([*options.check.split(), config], check=True, stdout=subprocess.DEVNULL)):.4f}")
    with open(config, "w") as file:
        file.write(text.replace("generation-1", "generation-2"))
    print(f"reload_seconds {timed(lambda: reload(pid)):.4f}")


def timed(work):
    start = time.monotonic()
    work()
    return time.monotonic() - start


def reload(pid):
    os.kill(pid, signal.SIGHUP)
    wait_for(int(os.environ["LAB_PORT"]), "generation-2")


def wait_for(port, body):
    until = time.monotonic() + RELOAD_WAIT_S
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/generation", timeout=5) as reply:
                if reply.read().decode() == body:
                    return
        except OSError:
            pass
        time.sleep(0.001)
    sys.exit(f"port {port} did not answer {body} within {RELOAD_WAIT_S} s")


def bytes_without_sites(text, serve):
    """Memory of the same server without the further sites."""
    before, rest = text.split("# further sites", 1)
    _, after = rest.split("# no more sites", 1)
    home = os.environ["LAB_HOME"]
    few_home = home + "/few"
    os.makedirs(few_home, exist_ok=True)
    os.chmod(few_home, 0o777)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    few = (before + after).replace(f"127.0.0.1:{os.environ['LAB_PORT']}", f"127.0.0.1:{port}").replace(home, few_home)
    config = few_home + "/config"
    with open(config, "w") as file:
        file.write(few)
    server = subprocess.Popen([*serve.replace(home, few_home).split(), config])
    try:
        wait_for(port, "generation-1")
        return p.settled_bytes(server.pid, "Pss")
    finally:
        server.terminate()
        server.wait(timeout=30)


main()
