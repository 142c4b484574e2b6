#!/usr/bin/env python3
"""Runs everything that must hold: `make test` calls it after installing the tools.

    tests/run.py                 all steps, against a MiniStack of its own
    tests/run.py STEP...         these steps only
    tests/run.py --external ...  against the endpoint that AWS_ENDPOINT_URL names

Nothing is skipped: a missing tool or a skipped test is a failure.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from pathlib import Path

from harness import conformance, drills, mutants, processes, results, variants
from harness.emulator import CREDENTIALS, MiniStack

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv/bin"
SAM = ROOT / ".venv-sam/bin"
LINT = ROOT / ".venv-lint/bin"
NEXTEST_JUNIT = ROOT / "target/nextest/ci/junit.xml"
E2E_JUNIT = ROOT / "target/reports/e2e.xml"

TOOLS = {
    "cargo": "install Rust from https://rustup.rs",
    "cargo-nextest": "cargo install cargo-nextest --locked",
    "cargo-lambda": "it comes with `make tools`",
    "cargo-deny": "it comes with `make tools`",
    "ministack": "it comes with `make tools`",
    "microburst": "it comes with `make tools`",
    "dynoxide": "it comes with `make tools`",
    "aws": "it comes with `make tools`",
    "redis-server": "it comes with `make tools`, or install Redis 6.2 or later, or Valkey",
    "openssl": "install openssl",
    "node": "install Node.js 20 or newer",
    "openssl": "it comes with `make tools`",
    "setpriv": "install util-linux",
    "git": "install git",
    "patch": "install patch",
    "make": "install make",
}


class Failed(Exception):
    pass


class Run:
    def __init__(self, home, external):
        self.id = uuid.uuid4().hex
        self.home = home
        self.server = None
        self.reports = []  # of the tests that this run has run
        self.ignored_docs = 0
        self.env = {
            **os.environ,
            **CREDENTIALS,
            processes.MARK: self.id,
            "PATH": os.pathsep.join([str(VENV), str(ROOT / "target/tools/bin"), os.environ["PATH"]]),
            "CARGO_TERM_COLOR": "never" if not sys.stdout.isatty() else "auto",
            "SAM_CLI_TELEMETRY": "0",
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(home),
            # Fat LTO takes minutes and changes no behaviour; `make bench` measures it.
            "CARGO_PROFILE_RELEASE_LTO": "off",
            "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
        }
        if external and not self.env.get("AWS_ENDPOINT_URL"):
            raise SystemExit("AWS_ENDPOINT_URL does not say where the emulator listens")
        self.external = external

    # Each step is a method; its docstring is its line in the summary.

    def tools(self):
        """The tools are here"""
        missing = [
            f"{tool}: {hint}" for tool, hint in TOOLS.items() if not shutil.which(tool, path=self.env["PATH"])
        ]
        missing += [f"{SAM / tool}: it comes with `make tools`" for tool in ("sam", "cfn-lint") if not (SAM / tool).exists()]
        missing += [f"{LINT / tool}: it comes with `make tools`" for tool in ("checkov", "hadolint") if not (LINT / tool).exists()]
        if not (ROOT / "tests/node_modules/@aws-sdk/client-sqs").exists():
            missing.append("the Node SDK: it comes with `make tools`")
        if not (ROOT / "tests/node_modules/@cdktn/hcl2json").exists():
            missing.append("the reader of HCL: it comes with `make tools`")
        if not (ROOT / "tests/node_modules/stripe-stateful-mock/dist/cli.js").exists():
            missing.append("the payment provider: it comes with `make tools`")
        if not list(Path("/usr/lib/postgresql").glob("*/bin/postgres")):
            missing.append("PostgreSQL: it comes with `make tools`")
        if not Path("/proc/self/environ").exists():
            missing.append("/proc: Lambda zips are Linux programs, so these tests run on Linux")
        if missing:
            raise Failed("missing:\n  " + "\n  ".join(missing))

    def fmt(self):
        """cargo fmt"""
        self.call("cargo", "fmt", "--check", minutes=2)

    def clippy(self):
        """cargo clippy"""
        self.call("cargo", "clippy", "--locked", "--all-targets", "--", "-D", "warnings", minutes=20)
        # Each feature compiles by itself, without a warning.
        for feature in ("", "producer", "dynamodb", "sqlite", "redis", "postgres", "jobs-file", "email", "ses", "secrets", "aws-effects",
                        "lambda", "worker", "worker,otel", "otel", "test-util", "bench"):
            self.call(
                "cargo", "clippy", "--locked", "--no-default-features", "--features", feature, "--",
                "-D", "warnings", minutes=10,
            )

    def deny(self):
        """cargo deny"""
        self.call("cargo", "deny", "check", "bans", "sources", "licenses", minutes=5)

    def template(self):
        """The infrastructure"""
        folder = self.home / "variants"
        folder.mkdir()
        paths = [str(path) for path in variants.write(ROOT / "template.yaml", folder)]
        # Known to checkov under this name alone.
        shutil.copy(ROOT / "infra/Containerfile", folder / "Dockerfile")
        self.call(str(SAM / "sam"), "validate", "--lint", "--template", "template.yaml", minutes=3)
        self.call(str(SAM / "cfn-lint"), *paths, minutes=5)
        self.call("node", "tests/hcl.mjs", "fmt", "infra/terraform", minutes=1)
        self.call(str(LINT / "hadolint"), "infra/Containerfile", minutes=1)
        compose = "import compose_spec, sys; compose_spec.PyCompose.from_yaml(open(sys.argv[1]).read()).to_spec()"
        self.call(str(LINT / "python"), "-c", compose, "infra/compose.yaml", minutes=1)
        self.call(
            str(LINT / "checkov"), "--config-file", "infra/checkov.yaml", "--directory", str(folder),
            "--directory", "infra/terraform", minutes=5,
        )

    def emulator(self):
        """The emulator"""
        if not self.external:
            self.server = MiniStack(VENV / "ministack", self.home, self.env)
            self.env["AWS_ENDPOINT_URL"] = self.server.url

    def nextest(self):
        """Rust tests"""
        self.expect(NEXTEST_JUNIT)
        # Ignored tests are run too: there is no such thing as a test left out.
        self.call(
            "cargo", "nextest", "run", "--locked", "--profile", "ci", "--no-tests=fail",
            "--run-ignored=all", minutes=25,
        )

    def conformance(self):
        """The stores' conformance"""
        rows, faults = conformance.table(NEXTEST_JUNIT)
        print(conformance.shown(rows), flush=True)
        if faults:
            raise Failed("\n".join(faults))

    def doc(self):
        """Doc tests"""
        output = self.call("cargo", "test", "--locked", "--doc", minutes=15)
        self.ignored_docs += sum(int(count) for count in re.findall(r"(\d+) ignored", output))

    def build(self):
        """The packaged worker"""
        build = ("cargo", "lambda", "build", "--locked", "--release", "--no-default-features", "--features", "worker")
        self.call(*build, "--bin", "worker", minutes=25)
        self.call(*build, "--example", "field_worker", minutes=25)
        # The command, for the tests of what its verbs ask AWS for.
        self.call("cargo", "build", "--locked", "--bin", "onlyonce", minutes=15)

    def bench(self):
        """The bench, in a few samples"""
        self.call(str(VENV / "python"), "benches/run.py", "--quick", minutes=10)

    def e2e(self):
        """End to end"""
        self.expect(E2E_JUNIT)
        self.call(
            str(VENV / "python"), "-m", "pytest", "tests/e2e", "--verbosity=1", "--durations=10", "--strict-markers", "-p", "no:cacheprovider",
            f"--junit-xml={E2E_JUNIT}", minutes=20,
        )

    def cases(self):
        """The field cases"""
        for report in (NEXTEST_JUNIT, E2E_JUNIT):
            if not report.exists():
                raise Failed(f"{report.relative_to(ROOT)} is missing: its tests did not run")
        faults = results.unshown_cases(ROOT / "tests/cases.toml", results.outcomes([NEXTEST_JUNIT, E2E_JUNIT]))
        if faults:
            raise Failed("\n".join(faults))

    def mutants(self):
        """Mutants"""
        patches = sorted((ROOT / "tests/mutants").glob("*.patch"))
        if not patches:
            raise Failed("there is no mutant")
        small = mutants.small_tests(ROOT, self.env)

        def caught(patch):
            mutants.run(ROOT, patch, self.env, small)
            return f"caught by {', '.join(mutants.caught_by(patch))}"

        self.noticed(patches, caught)

    def drills(self):
        """Drills that must fail"""
        patches = [p for p in sorted((ROOT / "tests/mutants").glob("*.patch")) if drills.drilled_by(p)]
        if len(patches) < 5:
            raise Failed("fewer than five mutants are drilled")
        self.noticed(patches, lambda patch: f"the drill names {', '.join(drills.run(ROOT, patch, self.env))}")

    def leftovers(self):
        """Nothing left behind"""
        # What a step left running is as much a fault as what does not end with its server.
        mine = processes.marked(self.id)
        serving = {pid for pid in mine if self.server and processes.session(pid) == self.server.process.pid}
        strays = {pid: processes.named(pid) for pid in mine - serving}
        ports = processes.ports_of(mine)
        if self.server:
            self.server.close()
        for pid in processes.marked(self.id):
            strays.setdefault(pid, processes.named(pid))
        still = ports & set(processes.listening_sockets().values())
        if strays or still:
            raise Failed(f"processes {strays or 'none'}, ports {sorted(still) or 'none'}")

    def noticed(self, patches, run):
        """Runs each mutant, and shows who noticed it."""
        survivors = []
        try:
            for patch in patches:
                try:
                    print(f"  {patch.stem}: {run(patch)}", flush=True)
                except mutants.Survived as survived:
                    survivors.append(f"{patch.name}: {survived}")
        finally:
            mutants.restore(ROOT, self.env)
        if survivors:
            raise Failed("\n".join(survivors))

    def expect(self, report):
        """Makes sure that a report found later is this run's."""
        report.parent.mkdir(parents=True, exist_ok=True)
        report.unlink(missing_ok=True)
        self.reports.append(report)

    def call(self, *command, minutes):
        """Runs a command, shows and returns its output; ends it, and all it started, when it takes too long."""
        print(f"$ {' '.join(command)}".replace(f"{ROOT}/", ""), flush=True)
        process = subprocess.Popen(
            command, cwd=ROOT, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        watch = Watchdog(process, minutes * 60)
        output = []
        try:
            for line in process.stdout:
                text = line.decode(errors="replace")
                output.append(text)
                print(text, end="", flush=True)
            status = process.wait()
        finally:
            watch.cancel()
            if process.poll() is None:
                processes.end_group(process, patience=3)
        if watch.expired:
            raise Failed(f"{command[0]}: not done within {minutes} minutes")
        if status:
            raise Failed(f"{' '.join(command[:3])}: exit status {status}")
        return "".join(output)


class Watchdog:
    """Ends a command's process group once its time is over."""

    def __init__(self, process, seconds):
        self.expired = False
        self._process = process
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True
        self._timer.start()

    def cancel(self):
        self._timer.cancel()

    def _expire(self):
        self.expired = True
        processes.end_group(self._process, patience=3)


# Cheap ones first. A step that needs another is not run when that one failed.
STEPS = [
    "tools", "fmt", "template", "deny", "clippy", "emulator", "nextest", "conformance", "doc", "bench", "build", "e2e",
    "cases", "mutants", "drills",
]
NEEDS = {
    **{step: ["tools"] for step in STEPS[1:]},
    "nextest": ["tools", "emulator"],
    "conformance": ["nextest"],
    "e2e": ["emulator", "build"],
    "cases": ["nextest", "e2e"],
    "mutants": ["emulator", "nextest"],
    "drills": ["emulator", "nextest"],
}
AGAINST_EMULATOR = {"nextest", "e2e", "mutants", "drills"}


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("steps", nargs="*", metavar="STEP", help=", ".join(STEPS))
    arguments.add_argument("--external", action="store_true")
    arguments = arguments.parse_args()
    if unknown := set(arguments.steps) - set(STEPS):
        arguments.error(f"no such step: {', '.join(sorted(unknown))}")
    wanted = set(arguments.steps or STEPS)
    if wanted & AGAINST_EMULATOR:
        wanted.add("emulator")
    # Ended from outside, it ends what it has started all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))

    with tempfile.TemporaryDirectory(prefix="onlyonce-") as home:
        # Postgres, which does not run as root, has its folders in here.
        os.chmod(home, 0o711)
        run = Run(Path(home), arguments.external)
        table = perform(run, [step for step in STEPS if step in wanted])
    return report(run, table)


def perform(run, steps):
    table = []  # (title, result, seconds, reason)

    def step(title, action):
        print(f"\n=== {title}", flush=True)
        started = time.monotonic()
        try:
            action()
            result, reason = "ok", ""
        except (Failed, RuntimeError) as failed:
            result, reason = "FAILED", str(failed)
            print(reason, flush=True)
        table.append((title, result, time.monotonic() - started, reason))
        return result == "ok"

    ok = {}
    try:
        for name in steps:
            title = getattr(run, name).__doc__
            unmet = [need for need in NEEDS.get(name, []) if ok.get(need) is False]
            if unmet:
                ok[name] = False
                table.append((title, "NOT RUN", 0.0, f"needs: {', '.join(unmet)}"))
                continue
            ok[name] = step(title, getattr(run, name))
    finally:
        step(run.leftovers.__doc__, run.leftovers)
    return table


def report(run, table):
    reports = [path for path in run.reports if path.exists()]
    found = results.outcomes(reports)
    skipped = run.ignored_docs + sum(outcome.state == "skipped" for outcome in found)
    width = max(len(title) for title, *_ in table)
    print()
    for title, result, seconds, reason in table:
        hint = f"  {reason.splitlines()[0][:100]}" if reason else ""
        print(f"{title:<{width}}  {result:<7}  {seconds:6.1f} s{hint}")
    print(f"{'total':<{width}}  {'':<7}  {sum(seconds for _, _, seconds, _ in table):6.1f} s")
    print(f"skipped: {skipped}")
    flaky = results.flaky(reports)
    print(f"flaky: {len(flaky)}", *flaky, sep="\n  ")
    failed = skipped or any(result != "ok" for _, result, _, _ in table)
    print("FAILED" if failed else "passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
