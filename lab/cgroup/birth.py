"""Being born in a group against being moved into it, and the field report's 5,000 → 230 taken apart."""

import os
import subprocess
import threading
from pathlib import Path

import bed as b
import quota

COUNT = 1000


class Group:
    """A group of this experiment in every hierarchy that has one of the controllers."""

    def __init__(self, name, controllers=("cpu", "memory", "pids")):
        self.paths = {}
        for place, kind in hierarchies(controllers):
            path = Path(place) / f"nagaya-lab-{os.getpid()}-{name}"
            path.mkdir()
            self.paths[path] = kind
        self.procs = [str(path / "cgroup.procs") for path in self.paths]

    def quota(self, percent):
        for path, kind in self.paths.items():
            if kind == "v2" and (path / "cpu.max").exists():
                (path / "cpu.max").write_text(f"{percent * 1000} 100000")
            elif (path / "cpu.cfs_quota_us").exists():
                (path / "cpu.cfs_quota_us").write_text(str(percent * 1000))
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for path in self.paths:
            b.eventually(f"{path} to be empty", lambda: removed(path))


def removed(path):
    try:
        path.rmdir()
        return True
    except OSError:
        return False


def hierarchies(controllers):
    """Directory below which groups can be made, and its kind, for each hierarchy in use here."""
    own = dict(line.split(":")[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    found = {}
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options, *_ = line.split()
        if kind == "cgroup":
            for names, path in own.items():
                if set(names.split(",")) & set(controllers) & set(options.split(",")):
                    found[place + path.rstrip("/")] = "v1"
        elif kind == "cgroup2":
            enabled = (Path(place) / "cgroup.subtree_control").read_text().split()
            if set(enabled) & set(controllers):
                found[place + own.get("", "/").rstrip("/")] = "v2"
    return sorted(found.items())


def unified():
    """Where version 2 is mounted, with or without controllers."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        if line.split()[2] == "cgroup2":
            return Path(line.split()[1])
    return None


def birth(*arguments):
    """Runs the example; its line is `p50 p99` in microseconds."""
    said = subprocess.run([b.EXAMPLES / "birth", *map(str, arguments)], capture_output=True, text=True, check=True)
    return said.stdout.split()


def places():
    """The cost of each way into a group."""
    rows = []

    def row(label, *arguments):
        b.progress(f"birth · {label}")
        rows.append((label, *birth(*arguments)))

    with Group("birth") as group:
        row("started in no group of its own", "own", COUNT)
        if (v2 := unified()) is not None:
            with_v2 = v2 / f"nagaya-lab-{os.getpid()}-v2"
            with_v2.mkdir()
            row("born in a v2 group (clone3)", "into", COUNT, with_v2)
            b.eventually("the v2 group to be empty", lambda: removed(with_v2))
        row("writes itself in before exec", "join", COUNT, *group.procs)
        row("moved by its parent once it runs", "move", COUNT, *group.procs)
        with Group("other") as other:
            both = [file for pair in zip(group.procs, other.procs) for file in pair]
            row("a live process moved each time", "live", COUNT, *both)
            stop = threading.Event()
            forks = threading.Thread(target=fork_on, args=(stop,))
            forks.start()
            row("the same beside 200 forks a second", "live", COUNT, *both)
            stop.set()
            forks.join()
    hierarchies_here = ", ".join(kind for _, kind in hierarchies(("cpu", "memory", "pids")))
    note = f"Start to exit of /bin/true (moves of a live process: the move alone), {COUNT} times each. Hierarchies with controllers here: {hierarchies_here}."
    return b.table("Born in a group against moved into it", ["way", "p50 µs", "p99 µs"], rows, note)


def fork_on(stop):
    while not stop.wait(0.005):
        subprocess.run(["/bin/true"], check=False)


def attach(rounds=5, seconds=2):
    """The report's server: neither, attach only, quota only, both; and programs born in the group."""
    rates = {}
    for number in range(rounds):
        for label, attached, limited in [("neither", False, False), ("attach only", True, False),
                                         ("quota only", False, True), ("both, as in the report", True, True)]:
            b.progress(f"attach · round {number + 1}/{rounds} · {label}")
            rates.setdefault(label, []).append(attached_rate(attached, limited, seconds))
        b.progress(f"attach · round {number + 1}/{rounds} · born")
        rates.setdefault("Nagaya: programs born in a 10 % group, one running", []).append(born_rate(seconds))
    base = b.median(rates["neither"])
    rows = [(label, f"{b.median(values):,.0f}", f"{b.median(values) / base:.3f}" if "Nagaya" not in label else "")
            for label, values in rates.items()]
    note = "A small server answering 13 bytes to 16 connections, on one core. Quota: the server sits in a 10 % group for good; attach: it writes itself into the group before every answer. The last row is another server (a static file), so it has no ratio."
    return b.table("5,000 → 230 taken apart", ["server", "req/s", "of neither"], rows, note)


def attached_rate(attached, limited, seconds):
    with b.Bed() as bed, Group("attach", ("cpu",)) as group:
        if limited:
            group.quota(10)
        port = b.free_port()
        files = group.procs if attached else []
        process = bed.start(b.EXAMPLES / "attach", port, *files, ready=port)
        if limited and not attached:
            for file in group.procs:
                Path(file).write_text(str(process.pid))
        rate = b.wrk(port, "/", 16, seconds)["per_second"]
        bed.stop(process)
        return rate


def born_rate(seconds):
    with b.Bed() as bed:
        supervisor, port = quota.gateway(bed)
        runaways = quota.Runaways(supervisor, port, 1)
        rate = b.wrk(port, "/limited.txt", 16, seconds)["per_second"]
        runaways.close(supervisor)
        return rate
