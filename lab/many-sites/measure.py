#!/usr/bin/env python3
"""Measures a server that has many sites: checking, reloading, memory.

The server runs (LAB_PID, LAB_PORT, LAB_CONFIG). Memory of a site is what this server has more than
the same one without the further sites, which is started here for it and ended again.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request

RELOAD_WAIT_S = 60
LOOK_S = 0.5
LOOKS_MAX = 20


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--check", required=True)
    arguments.add_argument("--serve", required=True)
    options = arguments.parse_args()
    config, pid = os.environ["LAB_CONFIG"], int(os.environ["LAB_PID"])
    with open(config) as file:
        text = file.read()
    sites = text.count("site-")
    many = settled_bytes(pid)
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
        return settled_bytes(server.pid)
    finally:
        server.terminate()
        server.wait(timeout=30)


def settled_bytes(pid):
    """Memory once it stands still: right after the start it is still being given back."""
    seen = tree_bytes(pid)
    for _ in range(LOOKS_MAX):
        time.sleep(LOOK_S)
        before, seen = seen, tree_bytes(pid)
        if before == seen:
            break
    return seen


def tree_bytes(pid):
    total = 0
    for process in tree(pid):
        try:
            with open(f"/proc/{process}/smaps_rollup") as file:
                total += sum(int(line.split()[1]) for line in file if line.startswith("Pss:"))
        except (OSError, ValueError):
            pass
    return total * 1024


def tree(root):
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                parents[int(name)] = int(file.read().rsplit(")", 1)[1].split()[1])
        except (OSError, ValueError, IndexError):
            pass
    found = [root]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


main()
