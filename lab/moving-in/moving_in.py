#!/usr/bin/env python3
"""Moves Debian's web applications from Apache to Nagaya, and asks both servers the same.

    moving_in.py NAGAYA [APPLICATION...]     Apache's configuration is imported; a crawl and what strangers try
    moving_in.py NAGAYA --seeded             whether `import verify` finds differences that are put in

As root, in namespaces of its own: the packages' files are used where they lie, what is written to them
(settings, `.htaccess` files) goes to memory, both servers have port 80, and nothing is left running.
`nagaya import verify` asks both and tells where they differ; differences for which `applications.toml` says
why are counted apart. The exit status is 0 where a move is without another one, or all that were put in
are found.
"""

import html
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
OLD, NEW = "127.0.0.1:80", "127.0.0.2:80"
PHP = "/run/php/php8.2-fpm.sock"
# What packages and the steps write to.
OVERLAID = ["/etc", "/run", "/usr/share", "/var"]
MODULES = """mpm_event access_compat alias auth_basic authn_core authn_file authz_core authz_host authz_user autoindex cgid
deflate dir env expires filter headers info mime negotiation proxy proxy_fcgi proxy_http rewrite setenvif status""".split()
# Addresses that are asked of one application.
ADDRESSES = 60
# After so many seeded differences both are compared without one.
ROUND = 10


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if "MOVING_IN" not in os.environ:
        os.environ["MOVING_IN"] = "1"
        subprocess.run([HERE / "../../scripts/bootstrap.sh", "moving-in"], check=True)
        own = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
        os.execvp("unshare", ["unshare", *own, sys.executable, *sys.argv])
    nagaya, wanted = Path(sys.argv[1]).resolve(), sys.argv[2:]
    table = tomllib.loads((HERE / "applications.toml").read_text())
    with tempfile.TemporaryDirectory(prefix="moving-in-") as home:
        os.chmod(home, 0o755)
        bed = Bed(Path(home), nagaya, table)
        try:
            status = bed.seeded() if wanted == ["--seeded"] else bed.moved(wanted or list(table["applications"]))
        finally:
            bed.end()
    sys.exit(status)


def run(*command, may_fail=False, **more):
    """What a program prints; one that fails ends all."""
    said = subprocess.run([str(word) for word in command], capture_output=True, text=True, **more)
    if said.returncode and not (may_fail and said.stdout):
        sys.exit(f"{' '.join(map(str, command))} ended with {said.returncode}:\n{said.stdout}{said.stderr}")
    return said.stdout


def wait_for(what, is_there):
    until = time.monotonic() + 60
    while not is_there():
        if time.monotonic() > until:
            sys.exit(f"{what} does not come up")
        time.sleep(0.05)


def answers(address):
    host, port = address.split(":")
    try:
        with socket.create_connection((host, int(port)), 1):
            return True
    except OSError:
        return False


class Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


OPENER = urllib.request.build_opener(Stay, urllib.request.ProxyHandler({}))


def get(host, target):
    """What Apache answers, without following where it sends to."""
    try:
        with OPENER.open(urllib.request.Request(f"http://{OLD}{target}", headers={"Host": host}), timeout=120) as reply:
            return reply.status, reply.headers, reply.read()
    except urllib.error.HTTPError as reply:
        return reply.code, reply.headers, b""


def crawl(host, start, most):
    """Addresses of one host: where it begins, and what pages lead to, so many at most."""
    known, at = list(dict.fromkeys(start)), 0
    while at < len(known) < most:
        target, at = known[at], at + 1
        status, head, body = get(host, target)
        found = [head["Location"]] if "Location" in head else []
        if status == 200 and "html" in head.get("Content-Type", ""):
            found += map(html.unescape, re.findall(r"""(?:href|src)\s*=\s*["']([^"'#]+)""", body.decode("utf-8", "replace")))
        for url in found:
            parts = urllib.parse.urlsplit(urllib.parse.urljoin(f"http://{host}{target}", url.strip()))
            path = urllib.parse.quote(parts.path or "/", safe="/%:@!$&'()*+,;=~") + (f"?{parts.query}" if parts.query else "")
            if parts.hostname == host and path.isascii() and path.isprintable() and " " not in path and path not in known:
                known.append(path)
    return known[:most]


class Bed:
    """The machine, with all that the applications need, and the two servers."""

    def __init__(self, home, nagaya, table):
        self.home, self.nagaya, self.table = home, nagaya, table
        self.config, self.apache = home / "nagaya.toml", None
        places = {f"APACHE_{name}_DIR": str(home) for name in ("RUN", "LOG", "LOCK")}
        self.environment = {**os.environ, **places}
        run("ip", "link", "set", "lo", "up")
        memory = home / "memory"
        memory.mkdir()
        run("mount", "-t", "tmpfs", "tmpfs", memory)
        for at, place in enumerate(OVERLAID):
            upper, work = memory / f"{at}", memory / f"{at}.work"
            upper.mkdir()
            work.mkdir()
            run("mount", "-t", "overlay", "overlay", "-o", f"lowerdir={place},upperdir={upper},workdir={work}", place)

    def end(self):
        run("umount", "--lazy", self.home / "memory")

    def fill(self, text):
        return text.replace("@home@", str(self.home))

    def start(self, *command):
        log = open(self.home / f"{Path(command[0]).name}.log", "ab")
        words = [str(word) for word in command]
        return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment)

    def make(self, names):
        """What the applications need, and the steps that make them ready."""
        applications = [self.table["applications"][name] for name in names]
        for files in [self.table["files"]] + [application.get("files", {}) for application in applications]:
            for file, text in files.items():
                self.write(file, text)
        for directory in ("/run/php", "/run/smokeping", self.home / "socks"):
            Path(directory).mkdir(exist_ok=True)
        self.start("sh", HERE / "../mariadb.sh", shutil.which("mariadbd"), self.home / "mariadb", 3306)
        self.start("/usr/sbin/php-fpm8.2", "--nodaemonize", "--fpm-config", self.home / "php-fpm.conf")
        self.start("gunicorn", "--bind", "127.0.0.1:5000", "--chdir", self.home / "flask", "application:application")
        wait_for("php-fpm", Path(PHP).exists)
        wait_for("MariaDB", (self.home / "mariadb/mariadb.sock").exists)
        self.start_apache("moved.conf", self.table["packages"])
        for application in applications:
            run("sh", "-euc", self.fill(application.get("step", "")))

    def write(self, file, text):
        file = Path(self.fill(str(file)))
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self.fill(text.lstrip("\n")))

    def start_apache(self, sites, packages):
        if self.apache:
            self.apache.terminate()
            self.apache.wait()
        modules = [f"mods-available/{name}.{ending}" for name in MODULES for ending in ("load", "conf")]
        included = [f"Include {file}" for file in modules if Path("/etc/apache2", file).exists()]
        values = {"modules": "\n".join(included), "packages": "\n".join(f"Include {file}" for file in packages),
                  "sites": (HERE / sites).read_text(), "old": OLD}
        text = (HERE / "apache.conf").read_text()
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        self.write(self.home / "apache.conf", text)
        self.apache = self.start("/usr/sbin/apache2", "-f", self.home / "apache.conf", "-D", "FOREGROUND")
        wait_for("Apache", lambda: answers(OLD))

    def start_nagaya(self, text):
        self.config.write_text(text)
        run(self.nagaya, "check", "-c", self.config)
        self.start(self.nagaya, "serve", "-c", self.config)
        wait_for("Nagaya", lambda: answers(NEW))

    def moved(self, names):
        """Nagaya with what it makes of Apache's configuration, beside Apache; 0 where nothing differs."""
        # The virtual hosts are those of all.
        self.make(list(self.table["applications"]))
        self.start_apache("moved.conf", self.table["packages"])
        effective = self.home / "effective.conf"
        line = ["/usr/sbin/apache2", "-f", self.home / "apache.conf", "-t", "-D", "DUMP_CONFIG"]
        effective.write_text(run(*line, env=self.environment))
        account = run(self.nagaya, "import", "apache", effective, "--out", self.home / "sites.d", "--listen", NEW, may_fail=True)
        print(account)
        self.start_nagaya(self.fill((HERE / "nagaya.toml").read_text()))
        rows, different = ["", "| application | asked | alike | argued | otherwise |", "|---|---|---|---|---|"], 0
        for name in names:
            application = self.table["applications"][name]
            host = application.get("host", "apps.lab")
            targets = crawl(host, application["start"], application.get("addresses", ADDRESSES))
            page = self.verify(host, list(dict.fromkeys(targets + application["tries"])))
            print("{}: {asked} asked, {alike} alike, {different} differ, {unanswered} unanswered".format(name, **page), flush=True)
            argued = 0
            for group in page["groups"]:
                why = self.why(group)
                argued += group["count"] if why else 0
                print(f"  {group['count']} × {group['cause']}: {group['target']}" + (f", argued: {why}" if why else ""))
                print("".join(f"    {it['what']}: {it['old']} | {it['new']}\n" for it in group["differences"]), end="", flush=True)
            otherwise = page["different"] + page["unanswered"] - argued
            rows.append(f"| {name} | {page['asked']} | {page['alike']} | {argued} | {otherwise} |")
            different += otherwise
        print("\n".join(rows))
        return int(different > 0)

    def why(self, group):
        """Why all of a group's differences are meant, if they are."""
        def of(difference):
            fits = lambda it: re.fullmatch(it["what"], difference["what"]) and all(
                re.search(it[key], text) for key, text in (("target", group["target"]), ("old", difference["old"]), ("new", difference["new"])))
            return next((it["why"] for it in self.table["argued"] if fits(it)), None)

        reasons = [of(it) for it in group["differences"]]
        return "; ".join(dict.fromkeys(reasons)) if reasons and all(reasons) else None

    def verify(self, host, targets):
        """What `import verify` says of these addresses of a host."""
        log = self.home / "asked.log"
        line = '{}:80 192.0.2.1 - - [27/Nov/2026:12:00:00 +0000] "GET {} HTTP/1.1" 200 1 "-" "-"\n'
        log.write_text("".join(line.format(host, target) for target in targets))
        said = run(self.nagaya, "import", "verify", "-c", self.config, "--log", log, "--old", OLD, "--new", NEW, "--json",
                   "--rate", "10000", "--allow", "cron,logout,unsubscribe,cart,change,mail,token",
                   "--record", self.home / "access.json", may_fail=True)
        return json.loads(said)

    def seeded(self):
        """Each difference put in alone, and now and then none; 0 where all are found."""
        self.make(["wordpress", "mediawiki", "flask"])
        seeded = self.table["seeded"]
        for file, text in seeded["files"].items():
            self.write(file, text)
        self.start_apache("seeded.conf", seeded["packages"])
        base, mutants = differences(self.fill((HERE / "seeded.toml").read_text()))
        self.start_nagaya(base)
        missed, named, in_rules, false = [], 0, 0, 0
        for at, (host, rule, what, text) in enumerate(mutants):
            if at % ROUND == 0:
                self.config.write_text(base)
                run(self.nagaya, "reload", "-c", self.config)
                for host_of, targets in seeded["targets"].items():
                    groups = self.verify(host_of, targets)["groups"]
                    false += len(groups)
                    print("".join(f"false: {json.dumps(group, ensure_ascii=False)}\n" for group in groups), end="")
            self.config.write_text(text)
            run(self.nagaya, "reload", "-c", self.config)
            groups = self.verify(host, seeded["targets"][host])["groups"]
            missed += [] if groups else [what]
            in_rules += rule is not None
            named += any(f"nagaya.toml:{rule})" in group["cause"] for group in groups)
            print(f"{'found' if groups else 'MISSED'}: {what}")
        rounds = -(-len(mutants) // ROUND)
        print(f"{len(mutants) - len(missed)} of {len(mutants)} differences found; the rule of {named} of {in_rules} is named; "
              f"{false} false groups in {rounds} rounds without a difference")
        return int(bool(missed) or false > 2)


def differences(text):
    """A configuration without remarks, and one for each difference: its host, the line of its rule, what it
    is, and all of its text."""
    remarked = [line.partition(" #~ ") for line in text.splitlines()]
    plain = [line for line, _, _ in remarked]
    mutants, host, rule = [], None, None
    for at, (line, _, remark) in enumerate(remarked):
        if line.startswith("hosts = "):
            host = line.split('"')[1]
        if line.startswith("["):
            rule = at + 1 if line == "[[sites.rules]]" else None
        for other in filter(None, remark.split(" | ")):
            old, _, new = (part.strip() for part in other.partition("→"))
            changed = "" if other == "-" else line.replace(old, new, 1)
            if changed == line:
                sys.exit(f"{line} has no {old}")
            mutants.append((host, rule, f"{host}: {line}: {other}", "\n".join([*plain[:at], changed, *plain[at + 1:], ""])))
    return "\n".join([*plain, ""]), mutants


main()
