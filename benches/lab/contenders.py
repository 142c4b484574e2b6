"""The programs that are compared: each is a process of its own behind the same runtime API."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "benches/contenders"
HOME = ROOT / "target/bench"

OURS, HAND, HAND_ONE = "onlyonce", "hand-written", "hand-written, one thread"
PYTHON, TYPESCRIPT = "Powertools Python", "Powertools TypeScript"
# Of which only the price is computed.
DURABLE = "durable functions, at least"


@dataclass(frozen=True)
class Contender:
    name: str
    command: tuple
    key: str  # its table's partition key
    most: int  # the largest batch that it is given: more would take minutes, and tell nothing new
    cwd: Path | None = None
    more: tuple = ()  # of its environment

    def env(self, endpoint, table):
        return {"AWS_ENDPOINT_URL": endpoint, "TABLE": table, "ONLYONCE_STORE": f"dynamodb://{table}", **dict(self.more)}


@dataclass(frozen=True)
class Binaries:
    worker: Path  # as shipped
    small: Path  # with DynamoDB and http only
    ours: Path
    hand: Path


def rust(binaries):
    return [
        Contender(OURS, (binaries.ours,), "pk", 10_000),
        Contender(HAND, (binaries.hand,), "pk", 10_000),
        Contender(HAND_ONE, (binaries.hand,), "pk", 10_000, more=(("ONE_THREAD", "1"),)),
    ]


def powertools():
    """Installs them, once for each set of pins."""
    python, node = HOME / "python", HOME / "node"
    wanted = (SOURCES / "requirements.txt").read_text() + sys.version
    if not installed(python, wanted):
        subprocess.run([sys.executable, "-m", "venv", python], check=True)
        pip = [python / "bin/pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
        subprocess.run([*pip, "--requirement", SOURCES / "requirements.txt"], check=True, timeout=600)
        (python / ".ready").write_text(wanted)
    wanted = (SOURCES / "package-lock.json").read_text()
    if not installed(node, wanted):
        node.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCES / name, node)
        subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], cwd=node, check=True, timeout=600)
        (node / ".ready").write_text(wanted)
    # Modules are looked for from where the program is.
    shutil.copy(SOURCES / "powertools.mjs", node)
    return [
        Contender(TYPESCRIPT, (shutil.which("node"), node / "powertools.mjs"), "id", 1_000, node),
        Contender(PYTHON, (python / "bin/python", SOURCES / "powertools.py"), "id", 1_000),
    ]


def installed(folder, wanted):
    ready = folder / ".ready"
    if ready.exists() and ready.read_text() == wanted:
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


def build(quick):
    """Builds what is measured; as it is for a release, unless only the bench itself is to be tried."""
    if quick:
        # With an example, dependencies are built as the tests need them: those of `make test` will do.
        names = ("--bin", "worker", "--bin", "bench-onlyonce", "--bin", "bench-handwritten", "--example", "tool_call")
        cargo("build", "--features", "default,bench", *names)
        built = ROOT / "target/debug"
        return Binaries(built / "worker", built / "worker", built / "bench-onlyonce", built / "bench-handwritten")
    folders = {}
    for kind, features, names in (
        ("shipped", "worker", ("worker",)),
        ("small", "lambda,jobs-file", ("worker",)),
        ("contenders", "bench", ("bench-onlyonce", "bench-handwritten")),
    ):
        folders[kind] = HOME / f"lambda-{kind}"
        binaries = [part for name in names for part in ("--bin", name)]
        cargo("lambda", "build", "--release", "--features", features, *binaries, "--lambda-dir", str(folders[kind]))
    return Binaries(
        folders["shipped"] / "worker/bootstrap",
        folders["small"] / "worker/bootstrap",
        folders["contenders"] / "bench-onlyonce/bootstrap",
        folders["contenders"] / "bench-handwritten/bootstrap",
    )


def given(folder):
    """What somebody has built, however it was built."""
    small = folder / "worker-small"
    worker = folder / "worker"
    return Binaries(worker, small if small.exists() else worker, folder / "bench-onlyonce", folder / "bench-handwritten")


def cargo(*arguments):
    command = ["cargo", *arguments, "--locked", "--no-default-features"]
    subprocess.run(command, cwd=ROOT, check=True, timeout=3600, env={**os.environ, "CARGO_INCREMENTAL": "0"})
