"""The measurements. Each returns its raw samples, a list of dictionaries; nothing is averaged here."""

import io
import subprocess
import zipfile
from contextlib import ExitStack, contextmanager

from harness.receiver import Receiver

from .certificates import bundle
from .contenders import OURS, ROOT
from .events import event
from .invoker import Invoker
from .store import Units, round_trip
from .wire import Wire

KINDS = ("fresh", "duplicate")


@contextmanager
def running(contenders, store, endpoint=None, warm=0):
    """The contenders' processes, each with a table of its own, and warm."""
    with ExitStack() as stack:
        sessions = []
        for contender in contenders:
            env = contender.env(endpoint or store.url, store.table(contender.key))
            invoker = stack.enter_context(Invoker(contender.command, env, contender.cwd))
            sessions.append((contender, invoker))
        for contender, invoker in sessions:
            for _ in range(warm):
                succeed(invoker, event(10))
        yield sessions


def succeed(invoker, payload):
    answer = invoker.invoke(payload)
    if answer.failed or answer.body != {"batchItemFailures": []}:
        raise RuntimeError(f"{invoker.process.args}: this is no work to measure: {str(answer.body)[:500]}")
    return answer


def per_message(sessions, plan, size=0):
    """Processor and wall time of batches, the contenders taking turns; each then gets them again."""
    samples = []
    for batch, invocations, rounds in plan:
        for _ in range(rounds):
            for contender, invoker in sessions:
                if batch > contender.most:
                    continue
                events = [event(batch, size) for _ in range(invocations)]
                for kind in KINDS:
                    before = invoker.cpu()
                    wall = sum(succeed(invoker, payload).seconds for payload in events)
                    messages = batch * invocations
                    samples.append({
                        "contender": contender.name, "batch": batch, "kind": kind, "size": size,
                        "cpu_ms": (invoker.cpu() - before) * 1000 / messages, "wall_ms": wall * 1000 / messages,
                    })
    return samples


def traffic(contenders, store, batches):
    """Requests, units and bytes of one batch, told by a proxy that reads and a wire that counts."""
    samples = []
    units = Units(store.url)
    try:
        with running(contenders, store, units.url, warm=1) as told:
            with Wire(store.url) as wire, running(contenders, store, wire.url, warm=1) as counted:
                for batch in batches:
                    for (contender, invoker), (_, twin) in zip(told, counted):
                        if batch > contender.most:
                            continue
                        payload = event(batch)
                        for kind in KINDS:
                            units.read()
                            wire.read()
                            succeed(invoker, payload)
                            succeed(twin, payload)
                            requests, writes, reads, operations = units.read()
                            sent, received = wire.read()
                            samples.append({
                                "contender": contender.name, "batch": batch, "kind": kind,
                                "requests": requests / batch, "write_units": writes / batch, "read_units": reads / batch,
                                "bytes_sent": sent / batch, "bytes_received": received / batch, "operations": operations,
                            })
    finally:
        units.close()
    return samples


def latency(contenders, store, delay, batches, rounds):
    """Wall time with a store that takes so long, and how long two bare requests to it take."""
    samples = []
    with Wire(store.url, delay) as wire, running(contenders, store, wire.url, warm=3) as sessions:
        table = store.table()
        for batch in batches:
            for _ in range(rounds):
                ideal, writing = (2 * round_trip(wire.port, table, writes) for writes in (0, batch))
                for contender, invoker in sessions:
                    if batch > min(contender.most, 100) and contender.key != "pk":
                        continue
                    payload = event(batch)
                    for kind in KINDS:
                        wall = succeed(invoker, payload).seconds
                        samples.append({
                            "contender": contender.name, "batch": batch, "kind": kind,
                            "wall_ms": wall * 1000, "ideal_ms": ideal * 1000, "writing_ms": writing * 1000,
                        })
    return samples


def starts(commands, contenders, store, home, rounds):
    """From a process's start to its first question for work, and its first batch, over TLS."""
    samples = []
    roots, certificate = bundle(home)
    with Wire(store.url, certificate=certificate) as wire, jobs(home):
        by_name = {contender.name: contender for contender in contenders}
        for _ in range(rounds):
            for name, command in commands.items():
                contender = by_name.get(name) or by_name[OURS]
                env = {
                    **contender.env(wire.url, store.table(contender.key)),
                    "SSL_CERT_FILE": str(roots), "CHARGES_TOKEN": "t",
                }
                with Invoker(command, env, home) as invoker:
                    sample = {"contender": name, "next_ms": invoker.wait_ready(), "start_cpu_ms": invoker.cpu() * 1000}
                    if name in by_name:
                        sample["first_ms"] = succeed(invoker, event(10)).seconds * 1000
                        sample["second_ms"] = succeed(invoker, event(10)).seconds * 1000
                    samples.append(sample)
    return samples


def memory(worker, contenders, store, home, many):
    """Bytes that the shipped worker holds, with its http effect, and the contenders, without one."""
    samples = []
    with jobs(home):
        env = {"AWS_ENDPOINT_URL": store.url, "ONLYONCE_STORE": f"dynamodb://{store.table()}", "CHARGES_TOKEN": "t"}
        processes = [("worker", (worker,), env, home)]
        for contender in contenders:
            env = contender.env(store.url, store.table(contender.key))
            processes.append((contender.name, contender.command, env, contender.cwd))
        for name, command, env, cwd in processes:
            with Invoker(command, env, cwd) as invoker:
                invoker.wait_ready()
                at_start, _ = invoker.memory()
                succeed(invoker, event(10))
                after_ten, _ = invoker.memory()
                samples.append({"contender": name, "start": at_start, "batch of ten": after_ten})
                if "owertools" not in name:
                    succeed(invoker, event(many, 1024))
                    resident, peak = invoker.memory()
                    samples[-1] |= {"messages": many, "many": resident, "peak": peak}
    return samples


@contextmanager
def jobs(home):
    """The jobs file of the end-to-end tests in `home`, and who answers its requests."""
    receiver = Receiver()
    template = (ROOT / "tests/e2e/jobs.toml.in").read_text()
    (home / "jobs.toml").write_text(template.format(host="127.0.0.1", port=receiver.port))
    try:
        yield
    finally:
        receiver.close()


def sizes(binaries):
    """Bytes of the worker, and of the zip that Lambda is given."""
    samples = []
    for name, binary in binaries.items():
        zipped = io.BytesIO()
        with zipfile.ZipFile(zipped, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            archive.write(binary, "bootstrap")
        samples.append({"binary": name, "bytes": binary.stat().st_size, "zip": len(zipped.getvalue())})
    return samples


def commit():
    told = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return told.stdout.strip() or "unknown"
