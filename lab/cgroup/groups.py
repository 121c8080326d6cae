"""Control groups of an experiment's own, in every hierarchy that has one of the controllers."""

import os
from pathlib import Path

import processes

CONTROLLERS = ("cpu", "memory", "pids")


class Group:
    """Made when entered, removed when left."""

    def __init__(self, name, controllers=CONTROLLERS, below=()):
        """Its processes are in the innermost of the groups `below` it."""
        self.paths, self.below = {}, below
        for place, kind in hierarchies(controllers):
            path = Path(place) / f"nagaya-lab-{os.getpid()}-{name}"
            path.joinpath(*below).mkdir(parents=True)
            self.paths[path] = kind
        self.procs = [str(path.joinpath(*below, "cgroup.procs")) for path in self.paths]

    def quota(self, percent):
        """Limits CPU time to so much of a core; 0 leaves it without a limit."""
        for path, kind in self.paths.items():
            if kind == "v2" and (path / "cpu.max").exists() and percent:
                (path / "cpu.max").write_text(f"{percent * 1000} 100000")
            elif (path / "cpu.cfs_quota_us").exists() and percent:
                (path / "cpu.cfs_quota_us").write_text(str(percent * 1000))
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for path in self.paths:
            for depth in reversed(range(len(self.below) + 1)):
                inner = path.joinpath(*self.below[:depth])
                processes.eventually(f"{inner} to be empty", lambda: removed(inner))


def removed(path):
    try:
        path.rmdir()
        return True
    except OSError:
        return False


def hierarchies(controllers=CONTROLLERS):
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


def of_gateways():
    """Every group below one that a gateway made."""
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()
              if line.split()[2] in ("cgroup", "cgroup2")]
    return {path for mount in mounts for top in Path(mount).rglob("nagaya-*")
            for path in [top, *top.rglob("*")] if path.is_dir()}
