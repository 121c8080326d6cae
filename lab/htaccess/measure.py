#!/usr/bin/env python3
"""`.htaccess` files beside the server that obeys them (LAB_PID, LAB_PORT): whether changes are in
force, what harm costs, what many of them take.

    measure.py make SITE COUNT      so many roots with WordPress's file
    measure.py changes SITE COUNT   so many changes, each asked for at once
    measure.py harm SITE            processor time of what means harm
    measure.py memory COUNT         memory once so many sites were asked
"""

import http.client
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "cgroup"))

import processes as p  # noqa: E402

ROUNDS = 5
SETTLED_S = 0.03
PLAIN = "RewriteEngine On\n"


def make(site, count):
    text = (site / ".htaccess").read_text()
    for number in range(count):
        root = site / f"s{number}"
        root.mkdir(exist_ok=True)
        (root / ".htaccess").write_text(text)
        (root / "a.txt").write_text("a")


def changes(site, count):
    """A place of each file system, reached through a link that the root leads to."""
    missed = asked = 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory, tempfile.TemporaryDirectory(dir=site) as disk:
        places = [mounted(site, "memory", ["mount", "--bind", memory]), pathlib.Path(disk), overlay(site, disk)]
        try:
            for place in places:
                place.chmod(0o755)
                missed += missed_of(place, f"/{place.relative_to(site)}/a.txt", count // len(places))
                asked += count // len(places)
        finally:
            for place in (places[0], places[2]):
                subprocess.run(["umount", "-l", place], check=True)
                place.rmdir()
    print(f"missed_changes {missed}")
    print(f"asked_changes {asked}")


def mounted(site, name, command):
    place = site / name
    place.mkdir()
    subprocess.run([*command, place], check=True)
    return place


def overlay(site, disk):
    for name in ("lower", "upper", "work"):
        (pathlib.Path(disk) / name).mkdir()
    options = f"lowerdir={disk}/lower,upperdir={disk}/upper,workdir={disk}/work"
    return mounted(site, "overlay", ["mount", "-t", "overlay", "overlay", "-o", options])


def missed_of(place, path, count):
    (place / "a.txt").write_text("a")
    (place / "a.txt").chmod(0o644)
    server, file, other = Server(), place / ".htaccess", place / "other"
    missed = 0
    for number in range(count):
        says = number % 2 == 0
        text = f"# {number % 3}\nRequire all {'denied ' if says else 'granted'}\n"
        if number % 5 == 0:
            other.write_text(text)
            os.replace(other, file)
        else:
            # One write, so that no request sees half of it.
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o644)
            os.pwrite(descriptor, text.encode(), 0)
            os.close(descriptor)
        missed += server.ask(path) != (403 if says else 200)
    return missed


HARM = {
    "back and forth": (PLAIN + "RewriteCond %{HTTP_X_LONG} ^(x+x+)+y\nRewriteRule ^ - [F]\n", (200, 500)),
    "referring back": (PLAIN + "RewriteCond %{HTTP_X_LONG} (.*)(.*)(.*)\\1\\2\\3z\nRewriteRule ^ - [F]\n", (200, 500)),
    "4,000 rules": (PLAIN + "".join(f"RewriteRule ^old/{n}/(.*)$ /new/{n}/$1 [R=301,L]\n" for n in range(4000)), (200, 500)),
    "4,000 lines of agents": (PLAIN + "".join(f"RewriteCond %{{HTTP_USER_AGENT}} bot{n}/[0-9]+ [NC]\nRewriteRule ^ - [F]\n" for n in range(2000)), (200, 500)),
    "4,000 variables": ("".join(f'SetEnvIf User-Agent "bad{n}" bad\n' for n in range(4000)), (200, 500)),
}


def harm(site):
    server, first, later, wrong = Server(), {}, {}, 0
    work = site / "harm"
    deep = work.joinpath(*(f"d{n}" for n in range(31)))
    deep.mkdir(parents=True)
    (work / "a.txt").write_text("a")
    (deep / "a.txt").write_text("a")
    for name, (text, answers) in HARM.items():
        for number in range(ROUNDS):
            # Each time other bytes, which nobody has read.
            wrong += write_and_ask(server, (first, later), name, work, f"# {number}\n{text}", "/harm/a.txt", answers)
    (work / ".htaccess").unlink()
    rules = PLAIN + "".join(f"RewriteRule ^gone/{n} /x [L]\n" for n in range(60))
    for number in range(ROUNDS):
        place = work
        for part in ["", *(f"d{n}" for n in range(31))]:
            place = place / part
            (place / ".htaccess").write_text(f"# {number}\nRewriteOptions Inherit\n{rules}")
        time.sleep(SETTLED_S)
        path = f"/{(deep / 'a.txt').relative_to(site)}"
        wrong += measured(server, (first, later), "32 directories", path, (200, 500))
    shutil.rmtree(work / "d0")
    for number in range(ROUNDS):
        (work / ".htaccess").write_text(f"# {number}\nRequire all granted\n<FilesMatch a")
        before = taken_us()
        wrong += server.ask("/harm/a.txt") not in (500, 503)
        first.setdefault("half a file", []).append(taken_us() - before)
    shutil.rmtree(work)
    for name in first:
        print(f"{name}: first {p.median(first[name]):.0f} us, later {p.median(later.get(name, [0])):.0f} us", file=sys.stderr)
    print(f"request_cpu_us {max(map(p.median, later.values())):.0f}")
    print(f"first_request_cpu_us {max(map(p.median, first.values())):.0f}")
    print(f"undefined_answers {wrong}")


def write_and_ask(server, figures, name, work, text, path, answers):
    (work / ".htaccess").write_text(text)
    time.sleep(SETTLED_S)
    return measured(server, figures, name, path, answers)


def measured(server, figures, name, path, answers):
    """What the first request takes, and the one after it; whether an answer is none of these."""
    wrong = 0
    for of in figures:
        before = taken_us()
        wrong += server.ask(path) not in answers
        of.setdefault(name, []).append(taken_us() - before)
    return wrong


def memory(count):
    server = Server()
    server.ask("/14.txt")
    before = held_bytes()
    for number in range(count):
        if server.ask("/a.txt", f"site-{number}.example") != 200:
            sys.exit(f"site {number} is not served")
    # The second time they are old enough to be kept.
    time.sleep(SETTLED_S)
    for number in range(count):
        server.ask("/a.txt", f"site-{number}.example")
    print(f"files_bytes {max(0, held_bytes() - before)}")
    print(f"cached_bytes {cached_bytes()}")


def cached_bytes():
    words = [os.environ["LAB_PROGRAM"], "-c", os.environ["LAB_CONFIG"], "status", "--json"]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    found = re.search(r'"htaccess_cached_bytes":(\d+)', said)
    return found[1] if found else sys.exit("it does not say how much it keeps")


class Server:
    """A connection that is kept."""

    def __init__(self):
        self.connection = http.client.HTTPConnection("127.0.0.1", int(os.environ["LAB_PORT"]), timeout=30)

    def ask(self, path, host="a.example"):
        self.connection.request("GET", path, headers={"Host": host, "X-Long": "x" * 4000, "User-Agent": "Mozilla/5.0 (X11; Linux)"})
        reply = self.connection.getresponse()
        reply.read()
        return reply.status


def taken_us():
    """Processor time that all its threads have taken."""
    return p.cpu_seconds(p.tree(p.PID)) * 1e6


def held_bytes():
    return p.settled_bytes(p.PID, "Pss_Anon")


def main():
    what, *rest = sys.argv[1:]
    if what == "memory":
        return memory(int(rest[0]))
    site = pathlib.Path(rest[0])
    if what == "harm":
        return harm(site)
    return {"make": make, "changes": changes}[what](site, int(rest[1]))


main()
