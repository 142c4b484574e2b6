"""What this run has started, told by a mark in its environment that every child inherits."""

import os
import signal
import time
from pathlib import Path

MARK = "ONLYONCE_TEST_RUN"


def marked(run_id):
    """The processes of the run, itself excepted."""
    wanted = f"{MARK}={run_id}".encode()
    found = set()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.add(int(entry.name))
        except OSError:
            continue  # gone meanwhile, or another user's
    return {pid for pid in found if state(pid) != "Z"}


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def session(pid):
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def named(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return "gone"


def listening_sockets():
    """Inode of each listening TCP socket -> its port."""
    found = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == "0A":  # LISTEN
                found[fields[9]] = int(fields[1].rsplit(":", 1)[1], 16)
    return found


def ports_of(pids):
    """The ports that these processes listen on."""
    sockets = listening_sockets()
    ports = set()
    for pid in pids:
        try:
            descriptors = list(Path(f"/proc/{pid}/fd").iterdir())
        except OSError:
            continue
        for descriptor in descriptors:
            try:
                target = os.readlink(descriptor)
            except OSError:
                continue
            if target.startswith("socket:["):
                ports |= {sockets[inode] for inode in [target[8:-1]] if inode in sockets}
    return ports


def end_group(process, patience=15):
    """Stops a process that leads its own session, and all in it: asked first, then killed."""
    for sign, wait in ((signal.SIGTERM, patience), (signal.SIGKILL, 5)):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        if gone_within(process, wait):
            break
    process.wait(timeout=5)


def gone_within(process, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        process.poll()  # reaps the leader
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False
