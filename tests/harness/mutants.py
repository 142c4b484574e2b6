"""Takes a guard out of a copy of the source and demands that the tests notice.

Each tests/mutants/*.patch starts with a line `# caught by: test, test` naming tests as
tests/cases.toml does. The mutant must compile, and every named test must fail by its assertion. A line
`# built with: ..` says which features and target its tests need, where that is neither everything
nor what is there without any store.
"""

import json
import os
import re
import shutil
import subprocess
from contextlib import contextmanager

from .results import named, outcomes


# What most mutants need, and what compiles in seconds.
SMALL = ("--no-default-features", "--features", "test-util")
# The command. With the smallest test target, cargo gives it the features that the tests' build of it
# has, and so compiles this crate alone.
COMMAND = ("cargo", "build", "--locked", "--bin", "onlyonce", "--test", "layering")


class Survived(Exception):
    pass


def small_tests(root, env):
    """The tests that are there without AWS: name -> what cargo is told to build it."""
    listed = subprocess.run(
        ["cargo", "nextest", "list", "--locked", *SMALL, "--message-format", "json"],
        cwd=root, env=env, capture_output=True, check=True, text=True,
    ).stdout
    found = {}
    for suite in json.loads(listed)["rust-suites"].values():
        build = ("--lib",) if suite["kind"] == "lib" else (f"--{suite['kind']}", suite["binary-name"])
        for name in suite["testcases"]:
            found.setdefault(name, build)
    return found


def what_to_build(tests, small):
    """The features and targets that these tests need; everything, if that is not known."""
    def build(test):
        return next((how for name, how in small.items() if f"::{name}".endswith(f"::{test}")), None)

    builds = {build(test) for test in tests}
    return () if None in builds else (*SMALL, *(word for build in sorted(builds) for word in build))


def run(root, patch, env, small, timeout=900):
    """Raises `Survived`, with the reason, unless every named test notices the patch."""
    tests = caught_by(patch)
    nextest = [
        "cargo", "nextest", "run", "--profile", "mutants", *(built_with(patch) or what_to_build(tests, small)),
        "-E", expression(tests),
    ]
    with planted(root, patch, env) as (tree, env):
        build([*nextest, "--no-run"], tree, env, timeout)
        junit = tree / "target/nextest/mutants/junit.xml"
        junit.unlink(missing_ok=True)
        subprocess.run(
            nextest, cwd=tree, env=env, timeout=timeout,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        if not junit.exists():
            raise Survived(f"none of its tests ran: {', '.join(tests)}")
        judge(tests, outcomes([junit]))


@contextmanager
def planted(root, patch, env):
    """A copy of the source with the patch in it, and the environment to build it in."""
    # One place for all of them, inside the target directory: cargo's cache of the dependencies is
    # shared with the real build, and only this crate is compiled anew.
    tree = root / "target/mutants/tree"
    copy_tree(root, tree)
    try:
        applied = subprocess.run(
            ["patch", "-p1", "--fuzz=0", "--input", str(patch)], cwd=tree, capture_output=True, text=True
        )
        if applied.returncode:
            raise Survived(f"does not apply any more:\n{applied.stdout}{applied.stderr}")
        yield tree, {**env, "CARGO_TARGET_DIR": str(root / "target")}
    finally:
        shutil.rmtree(tree, ignore_errors=True)


def build(command, tree, env, timeout):
    built = subprocess.run(command, cwd=tree, env=env, timeout=timeout, capture_output=True, text=True)
    if built.returncode:
        raise Survived(f"does not compile:\n{built.stderr[-3000:]}")


def restore(root, env):
    """Puts the real programs back where a mutant's were; nothing that was built before is compiled for it."""
    subprocess.run(COMMAND, cwd=root, env=env, timeout=600, check=True, capture_output=True)


def caught_by(patch):
    match = re.match(r"# caught by: (.+)", patch.read_text())
    if not match:
        raise Survived("its first line is not `# caught by: test, test`")
    return [name.strip() for name in match.group(1).split(",")]


def built_with(patch):
    match = re.search(r"^# built with: (.+)$", patch.read_text(), re.MULTILINE)
    return match and match.group(1).split()


def expression(tests):
    return " | ".join(f"test(/(^|::){re.escape(test)}$/)" for test in tests)


def judge(tests, results):
    for test in tests:
        matches = named(test, results)
        if not matches:
            raise Survived(f"{test}: no such test")
        for outcome in matches:
            if outcome.state != "failed":
                raise Survived(f"{outcome.name} {outcome.state}: it does not notice")
            if "panicked at" not in outcome.text:
                raise Survived(f"{outcome.name} fails, but not by an assertion:\n{outcome.text[:1000]}")


def copy_tree(root, tree):
    """What git would commit: tracked files and new ones, with their times, which cargo reads."""
    shutil.rmtree(tree, ignore_errors=True)
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=root, capture_output=True, check=True,
    ).stdout
    for name in filter(None, map(os.fsdecode, listed.split(b"\0"))):
        source = root / name
        if source.is_file():
            target = tree / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
