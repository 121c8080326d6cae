"""Ways out of a pool, tried one after another: a line for each, `in` where it led somewhere.

    escapes.py outside|inside HOME SECRET SOCKET CONTROL CONFIG MASTER SUPERVISOR OWN

HOME and SECRET are another site's, SOCKET its pool's, MASTER its process; OWN is a directory that
may be written. `outside` tries only what harms nothing where it succeeds.
"""

import ctypes
import os
import platform
import socket
import stat
import subprocess
import sys

WHERE, HOME, SECRET, SOCKET, CONTROL, CONFIG, MASTER, SUPERVISOR, OWN = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
IS_X86 = platform.machine() == "x86_64"


def did(result):
    """Whether a call of the C library succeeded."""
    return result >= 0


def call(number, *words):
    return IS_X86 and did(libc.syscall(number, *words))


def read(path):
    with open(path, "rb") as file:
        return file.read(64)


def write(path):
    with open(path, "ab") as file:
        return file.write(b"#") > 0


def linked(make):
    path = f"{OWN}/link-{os.getpid()}"
    make(SECRET, path)
    try:
        return read(path)
    finally:
        os.unlink(path)


def connected(path):
    with socket.socket(socket.AF_UNIX) as stream:
        stream.connect(path)
        return True


def opened(*kind):
    with socket.socket(*kind):
        return True


def signalled(pid):
    os.kill(int(pid), 0)
    return True


def strangers():
    """Processes of others that can be looked at."""
    return any(is_strangers(pid) for pid in filter(str.isdigit, os.listdir("/proc")))


def is_strangers(pid):
    try:
        return os.stat(f"/proc/{pid}").st_uid != os.getuid()
    except FileNotFoundError:
        return False  # It has ended meanwhile.


def ran(*words):
    return subprocess.run(words, capture_output=True, check=True).stdout


def entered(kind):
    space = os.open(f"/proc/{SUPERVISOR}/ns/{kind}", os.O_RDONLY)
    return did(libc.setns(space, 0))


def became_root():
    os.setresuid(0, 0, 0)
    return os.geteuid() == 0


def of_master(name):
    return f"/proc/{MASTER}/{name}"


HARMLESS = {
    "another's home": lambda: os.listdir(HOME) is not None,
    "another's file": lambda: read(SECRET),
    "the same by a link": lambda: linked(os.symlink),
    "the same by dots": lambda: read(f"{OWN}/../{os.path.basename(HOME)}/{os.path.basename(SECRET)}"),
    "the same by a process": lambda: read(of_master("root") + SECRET),
    "a process's directory": lambda: os.listdir(of_master("cwd")) is not None,
    "a process's environment": lambda: read(of_master("environ")),
    "a process's files": lambda: os.listdir(of_master("fd")) is not None,
    "a process's memory": lambda: read(of_master("maps")),
    "a process's words": lambda: read(f"/proc/{SUPERVISOR}/cmdline"),
    "processes of others": strangers,
    "a signal to another's": lambda: signalled(MASTER),
    "a signal to the gateway": lambda: signalled(SUPERVISOR),
    "another's socket": lambda: connected(SOCKET),
    "sockets of pools": lambda: [it for it in os.listdir(os.path.dirname(SOCKET)) if it.endswith(".sock")],
    "the gateway's socket": lambda: connected(CONTROL),
    "the gateway's configuration": lambda: read(CONFIG),
    "root's home": lambda: os.listdir("/root") is not None,
    "passwords": lambda: read("/etc/shadow"),
    "the kernel's settings": lambda: os.listdir("/proc/sys/kernel") is not None,
    "the machine's devices": lambda: os.listdir("/sys/devices") is not None,
    "a setuid program": lambda: b"uid=0(" in ran(f"{OWN}/setuid"),
}
if IS_X86:
    HARMLESS["looking into another's"] = lambda: call(101, 0x4206, int(MASTER), 0, 0)

HARMFUL = {
    "the same by a hard link": lambda: linked(os.link),
    "writing in another's home": lambda: write(f"{HOME}/new"),
    "writing another's file": lambda: write(SECRET),
    "writing a program": lambda: write("/usr/bin/env"),
    "writing settings": lambda: write("/etc/passwd"),
    "writing beside programs": lambda: write("/usr/bin/new"),
    "writing in the root": lambda: write("/new"),
    "writing where cores go": lambda: write("/proc/sys/kernel/core_pattern"),
    "memory of another's": lambda: os.open(of_master("mem"), os.O_RDONLY) >= 0,
    "memory of the machine": lambda: read("/dev/mem"),
    "a disk": lambda: os.mknod(f"{OWN}/disk", 0o600 | stat.S_IFBLK, os.makedev(254, 0)) is None,
    "another's file by its number": lambda: call(438, libc.syscall(434, int(MASTER), 0), 3, 0),
    "reading another's memory": lambda: call(310, int(MASTER), 0, 0, 0, 0, 0),
    "a mount": lambda: did(libc.mount(b"none", b"/tmp", b"tmpfs", 0, None)),
    "an end of a mount": lambda: did(libc.umount2(b"/usr", 2)),
    "a mount that can be written": lambda: did(libc.mount(None, b"/usr", None, 32 | 4096, None)),
    "a root of its own": lambda: os.chroot(OWN) is None,
    "another root": lambda: call(155, b"/tmp", b"/tmp"),
    "a file by its handle": lambda: call(304, -100, bytes(64), 0),
    "users of its own": lambda: did(libc.unshare(0x10000000)),
    "mounts of its own": lambda: did(libc.unshare(0x20000)),
    "users of a program's own": lambda: ran("unshare", "--user", "--map-root-user", "id"),
    "the gateway's mounts": lambda: entered("mnt"),
    "the gateway's users": lambda: entered("user"),
    "being root": became_root,
    "root's groups": lambda: os.setgroups([0]) is None,
    "keys": lambda: call(250, 0, -4, 1),
    "a program in the kernel": lambda: call(321, 5, bytes(128), 128),
    "faults of its own": lambda: call(323, 0),
    "rings": lambda: call(425, 1, bytes(120)),
    "counters": lambda: call(298, bytes(112), 0, -1, -1, 0),
    "another machine": lambda: did(libc.personality(0x0040000)),
    "packets": lambda: opened(17, socket.SOCK_RAW, 0x300),
    "raw addresses": lambda: opened(socket.AF_INET, socket.SOCK_RAW, 1),
    "the host of this machine": lambda: opened(40, socket.SOCK_STREAM),
    "ciphers of the kernel": lambda: opened(38, socket.SOCK_SEQPACKET),
    "the machine's clock": lambda: ran("date", "--set", "2000-01-01"),
    "the machine's name": lambda: socket.sethostname("new") is None,
}


def tried(way):
    try:
        return "in" if way() else "out"
    except (OSError, subprocess.CalledProcessError):
        return "out"


for name, way in HARMLESS.items() if WHERE == "outside" else [*HARMLESS.items(), *HARMFUL.items()]:
    print(f"{tried(way)}: {name}", flush=True)
print("tried", flush=True)
