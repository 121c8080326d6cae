"""What every experiment here needs: servers started on free ports, load, CPU time, tables.

The idea: an experiment is a function that returns a heading, lines of a table and a verdict; this
module knows how servers are started and read, and nothing of what is measured.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SERVER_CORE, CLIENT_CORE = "0", "1"
NAGAYA = Path(os.environ.get("NAGAYA", "target/release/nagaya")).resolve()
EXAMPLES = NAGAYA.parent / "examples"
HERE = Path(__file__).resolve().parent


class Bed:
    """A temporary directory and the servers started in it; all end with it."""

    def __enter__(self):
        self.home = Path(tempfile.mkdtemp(prefix="nagaya-lab."))
        self.home.chmod(0o755)
        self.started = []
        return self

    def __exit__(self, *_):
        for process in reversed(self.started):
            self.stop(process)
        shutil.rmtree(self.home, ignore_errors=True)

    def directory(self, name):
        path = self.home / name
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o755)
        return path

    def file(self, name, text, mode=0o644):
        path = self.home / name
        self.directory(Path(name).parent)
        path.write_text(text)
        path.chmod(mode)
        return path

    def start(self, *command, core=SERVER_CORE, ready=None, env=None):
        """Starts a server on a core; `ready` is the port or socket path it will listen on."""
        output = open(self.home / f"output.{len(self.started)}", "w")
        process = subprocess.Popen(
            ["taskset", "-c", core, *map(str, command)], stdin=subprocess.DEVNULL,
            stdout=output, stderr=output, env=env, start_new_session=True)
        self.started.append(process)
        eventually(f"{command[0]} to listen on {ready}", lambda: ready is None or connects(ready),
                   failed=lambda: process.poll() is not None)
        return process

    def stop(self, process):
        if process in self.started:
            self.started.remove(process)
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            pass
        # Some leave their children behind.
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()

    def nagaya(self, sites):
        """The gateway with one worker; `sites` is the text of its `[[sites]]`."""
        port = free_port()
        text = f"""workers = 1
user = "{program_user()}"
[[listen]]
address = "127.0.0.1:{port}"
[log]
access = ""
level = "warn"
[caps]
connections_per_client = 0
requests_per_connection = 0
{sites}"""
        config = self.file("nagaya.toml", text)
        process = self.start(NAGAYA, "serve", "-c", config, ready=port)
        return process, port

    def compile_hello(self, name):
        """A CGI program in C that says hello, the smallest honest one."""
        source = self.file("hello.c", '#include <stdio.h>\nint main(void) { return puts("Content-Type: text/plain\\n\\nhello, world!") < 0; }\n')
        target = self.home / name
        self.directory(Path(name).parent)
        subprocess.run(["cc", "-O2", "-o", target, source], check=True)
        target.chmod(0o755)
        return target


def program_user():
    """Who programs run as: somebody who is not root."""
    return "nobody" if os.getuid() == 0 else subprocess.check_output(["id", "-un"], text=True).strip()


def eventually(what, probe, seconds=15, failed=lambda: False):
    end = time.monotonic() + seconds
    while True:
        found = probe()
        if found:
            return found
        if failed() or time.monotonic() > end:
            sys.exit(f"lab: waited in vain for {what}")
        time.sleep(0.01)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def connects(where):
    family = socket.AF_INET if isinstance(where, int) else socket.AF_UNIX
    with socket.socket(family) as probe:
        try:
            probe.connect(("127.0.0.1", where) if isinstance(where, int) else str(where))
            return True
        except OSError:
            return False


def needs(*programs):
    """Ends with a clear word where a peer is missing."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    found = [shutil.which(program, path=path) for program in programs]
    missing = [program for program, place in zip(programs, found) if not place]
    if missing:
        sys.exit(f"lab: missing {' '.join(missing)}; run scripts/bootstrap.sh lab")
    return found


def tree(root):
    """The pids of a process and all below it."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
                parents.setdefault(int(fields[1]), []).append(int(entry))
            except OSError:
                pass
    found = [root]
    for pid in found:
        found += parents.get(pid, [])
    return found


def cpu_seconds(pids):
    """CPU time used so far by all threads of these processes."""
    total = 0
    for pid in pids:
        try:
            for thread in os.listdir(f"/proc/{pid}/task"):
                total += int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
        except (OSError, IndexError):
            pass
    return total / 1e9


def named(root, word):
    """The processes below `root` whose command line holds `word`."""
    def line(pid):
        try:
            return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("latin-1")
        except OSError:
            return ""
    return [pid for pid in tree(root) if word in line(pid)]


def wrk(port, path, connections=64, seconds=2, core=CLIENT_CORE):
    """Load for some seconds: requests, failures, p50 and p99 in microseconds."""
    command = ["taskset", "-c", core, "wrk", "-t1", "--latency", f"-c{connections}", f"-d{seconds}s",
               f"http://127.0.0.1:{port}{path}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    requests = int(re.search(r"(\d+) requests in", said)[1])
    failures = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
    scale = {"us": 1, "ms": 1e3, "s": 1e6}
    def at(percent):
        number, unit = re.search(rf"{percent}%\s+([\d.]+)(us|ms|s)", said).groups()
        return float(number) * scale[unit]
    return {"requests": requests, "per_second": requests / seconds, "p50_us": at(50), "p99_us": at(99),
            "failed": int(failures[1]) if failures else 0}


def median(values):
    values = sorted(values)
    middle = len(values) // 2
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) / 2


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
    else:
        print(text, file=sys.stderr, flush=True)


def table(heading, columns, rows, note=""):
    """A Markdown section."""
    lines = [f"## {heading}", "", "| " + " | ".join(columns) + " |", "|---" + "|--:" * (len(columns) - 1) + "|"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines + (["", note] if note else [])) + "\n"


def verdict(met):
    return "met" if met else "MISSED"
