"""What this run has started, told by a mark in its environment that every child inherits."""

import os
import select
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


def tcp_sockets(pid="self"):
    """State, local port, remote port and inode of each TCP socket, as that process's network has them."""
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            local, remote = (int(address.rsplit(":", 1)[1], 16) for address in fields[1:3])
            yield fields[3], local, remote, fields[9]


def listening_sockets():
    """Inode of each listening TCP socket -> its port."""
    return {inode: port for state, port, _, inode in tcp_sockets() if state == "0A"}


def connected(port, to):
    """The process of this machine that is connected from this port to that one, in a container or not."""
    networks = {}  # -> the inodes of that connection's sockets
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            network = os.readlink(f"/proc/{pid}/ns/net")
        except OSError:
            continue  # gone meanwhile, or another user's
        if network not in networks:
            networks[network] = {
                inode for state, *ports, inode in tcp_sockets(pid) if (state, ports) == ("01", [port, to])
            }
        if networks[network] & sockets_of(pid):
            return int(pid)
    return None


def sockets_of(pid):
    """The inodes of the sockets that a process has open."""
    found = set()
    try:
        for descriptor in Path(f"/proc/{pid}/fd").iterdir():
            target = os.readlink(descriptor)
            if target.startswith("socket:["):
                found.add(target[8:-1])
    except OSError:
        pass  # gone meanwhile, or another user's
    return found


def kill(pid, of):
    """Kills with SIGKILL, and returns once the process is seen dead.

    `of` is a variable of its environment, as `NAME=value`: whoever has got its number meanwhile is
    not meant.
    """
    process = os.pidfd_open(pid)
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        assert of.encode() in environment, f"process {pid} is not one with {of}: {named(pid)}"
        signal.pidfd_send_signal(process, signal.SIGKILL)
        ended = select.poll()
        ended.register(process, select.POLLIN)
        assert ended.poll(10_000), f"process {pid} has survived SIGKILL"
    finally:
        os.close(process)


def ports_of(pids):
    """The ports that these processes listen on."""
    sockets = listening_sockets()
    ports = set()
    for pid in pids:
        ports |= {sockets[inode] for inode in sockets_of(pid) if inode in sockets}
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
