"""Takes a guard out of the command's worker and demands that a drill names what is broken.

A patch of tests/mutants that says `# drilled by: SCENARIO: INVARIANT` is built into a copy of the
command, and `onlyonce drill --local --only SCENARIO` must end with that invariant among the broken.
"""

import json
import re
import shutil
import subprocess

from .mutants import Survived, copy_tree

# The smallest test target: with it, cargo gives the command the features that the tests' build of it
# has, and so compiles this crate alone.
BUILD = ("cargo", "build", "--locked", "--bin", "onlyonce", "--test", "layering")


def drilled_by(patch):
    """The scenario and the invariant, if a drill is to notice this patch."""
    match = re.search(r"^# drilled by: ([a-z-]+): (.+)$", patch.read_text(), re.MULTILINE)
    return match and match.groups()


def run(root, patch, env, timeout=600):
    """Raises `Survived`, with the reason, unless the drill names the invariant."""
    scenario, invariant = drilled_by(patch)
    tree = root / "target/mutants/tree"
    copy_tree(root, tree)
    try:
        applied = subprocess.run(
            ["patch", "-p1", "--fuzz=0", "--input", str(patch)], cwd=tree, capture_output=True, text=True
        )
        if applied.returncode:
            raise Survived(f"does not apply any more:\n{applied.stdout}{applied.stderr}")
        # The dependencies are those of the real build.
        env = {**env, "CARGO_TARGET_DIR": str(root / "target")}
        built = subprocess.run(BUILD, cwd=tree, env=env, timeout=timeout, capture_output=True, text=True)
        if built.returncode:
            raise Survived(f"does not compile:\n{built.stderr[-3000:]}")
        drill = subprocess.run(
            [str(root / "target/debug/onlyonce"), "drill", "--local", "--only", scenario, "--json"],
            cwd=tree, env=env, timeout=180, capture_output=True, text=True,
        )
    finally:
        shutil.rmtree(tree, ignore_errors=True)
    if drill.returncode != 1 or not drill.stdout:
        raise Survived(f"the drill ends with status {drill.returncode}:\n{drill.stderr[-2000:]}")
    broken = json.loads(drill.stdout)["broken"]
    if invariant not in broken:
        raise Survived(f"{invariant!r} is not among what the drill says is broken: {broken}")
    return broken


def restore(root, env):
    """Puts the real command back where the mutants' were; nothing is compiled for it."""
    subprocess.run(BUILD, cwd=root, env=env, timeout=600, check=True, capture_output=True)
