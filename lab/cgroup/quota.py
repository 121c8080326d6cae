"""A runaway program under `cpu = "10%"`: how much it gets, and what its neighbours lose."""

import http.client
import time

import bed as b

WHILE = "#!/bin/sh\nwhile :; do true; done\n"
SITE = """[[sites]]
hosts = ["*"]
root = "{root}"
user = "{user}"
{site}
  [[sites.rules]]
  match = {{ file = "*.cgi" }}
  handler = {{ cgi = true }}
  {rule}
  [[sites.rules]]
  match = {{ file = "limited.txt" }}
  handler = {{ static = true }}
  {rule}
"""


def gateway(bed, rule='cgroup = { cpu = "10%" }', site=""):
    bed.file("site/while.cgi", WHILE, 0o755)
    for text in ("plain.txt", "limited.txt"):
        bed.file(f"site/{text}", "thick walls..\n")
    text = SITE.format(root=bed.home / "site", user=b.program_user(), rule=rule, site=site)
    return bed.nagaya(text)


class Runaways:
    """Requests for `while.cgi` that last until closed."""

    def __init__(self, supervisor, port, count):
        self.links = [http.client.HTTPConnection("127.0.0.1", port, timeout=60) for _ in range(count)]
        for link in self.links:
            link.request("GET", "/while.cgi")
        self.pids = b.eventually(f"{count} programs", lambda: self._running(supervisor, count))

    @staticmethod
    def _running(supervisor, count):
        pids = b.named(supervisor.pid, "while.cgi")
        return pids if len(pids) == count else None

    def cpu_share(self, seconds):
        """Cores used by all of them together over so many seconds."""
        before, start = b.cpu_seconds(self.pids), time.monotonic()
        time.sleep(seconds)
        return (b.cpu_seconds(self.pids) - before) / (time.monotonic() - start)

    def close(self, supervisor):
        for link in self.links:
            link.close()
        b.eventually("the programs to end", lambda: not b.named(supervisor.pid, "while.cgi"))


def share(seconds=10):
    """One program, two, and two under the site's value instead of the rule's."""
    rows = []
    cases = [("one while.cgi, rule 10 %", 1, 'cgroup = { cpu = "10%" }', ""),
             ("two at once, rule 10 %", 2, 'cgroup = { cpu = "10%" }', ""),
             ("two at once, site 10 %", 2, "", 'cgroup = { cpu = "10%" }'),
             ("one without a limit", 1, "", "")]
    for index, (label, count, rule, site) in enumerate(cases):
        b.progress(f"quota · {label}")
        with b.Bed() as bed:
            supervisor, port = gateway(bed, rule, site)
            runaways = Runaways(supervisor, port, count)
            runaways.cpu_share(1)
            percent = runaways.cpu_share(seconds) * 100
            runaways.close(supervisor)
        target = "9 to 11 %" if index < 3 else ""
        rows.append((label, f"{percent:.2f} %", target, b.verdict(9 <= percent <= 11) if target else ""))
    return b.table(f"A runaway program over {seconds} s", ["programs", "of a core", "target", ""], rows)


def beside(rounds=15):
    """Static files while two runaways run, and under a rule with a group, against without both."""
    b.progress("beside · starting")
    with b.Bed() as bed:
        supervisor, port = gateway(bed)
        server = b.named(supervisor.pid, "nagaya server")
        figures = {"plain": [], "limited rule": [], "beside two runaways": []}

        def block(path):
            before = b.cpu_seconds(server)
            load = b.wrk(port, path, seconds=1)
            return load["requests"] / (b.cpu_seconds(server) - before)

        block("/plain.txt")
        for number in range(rounds):
            b.progress(f"beside · round {number + 1}/{rounds}")
            for label in list(figures)[number % 3:] + list(figures)[:number % 3]:
                runaways = Runaways(supervisor, port, 2) if "runaways" in label else None
                figures[label].append(block("/limited.txt" if "rule" in label else "/plain.txt"))
                if runaways:
                    runaways.close(supervisor)
    plain = figures.pop("plain")
    rows = [("static, nothing else", f"{b.median(plain):,.0f}", "", "", "")]
    for label, values in figures.items():
        ratio = b.median([value / base for value, base in zip(values, plain)])
        rows.append((f"static, {label}", f"{b.median(values):,.0f}", f"{ratio:.3f}", "0.99", b.verdict(ratio >= 0.99)))
    note = f"Requests per second of the server's CPU time, medians of {rounds} interleaved seconds; ratios round by round."
    return b.table("Static files beside limited programs", ["work", "req/CPU-s", "ratio", "target", ""], rows, note)
