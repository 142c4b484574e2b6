"""Takes a guard out of the command's worker and demands that a drill names what is broken.

A patch of tests/mutants that says `# drilled by: SCENARIO: INVARIANT` is built into a copy of the
command, and `onlyonce drill --local --only SCENARIO` must end with that invariant among the broken.
"""

import json
import re
import subprocess

from .mutants import COMMAND, Survived, build, planted


def drilled_by(patch):
    """The scenario and the invariant, if a drill is to notice this patch."""
    match = re.search(r"^# drilled by: ([a-z-]+): (.+)$", patch.read_text(), re.MULTILINE)
    return match and match.groups()


def run(root, patch, env, timeout=600):
    """What the drill says is broken. Raises `Survived`, with the reason, unless the invariant is among it."""
    scenario, invariant = drilled_by(patch)
    with planted(root, patch, env) as (tree, env):
        build(COMMAND, tree, env, timeout)
        drill = subprocess.run(
            [str(root / "target/debug/onlyonce"), "drill", "--local", "--only", scenario, "--json"],
            cwd=tree, env=env, timeout=180, capture_output=True, text=True,
        )
    if drill.returncode != 1 or not drill.stdout:
        raise Survived(f"the drill ends with status {drill.returncode}:\n{drill.stderr[-2000:]}")
    broken = json.loads(drill.stdout)["broken"]
    if invariant not in broken:
        raise Survived(f"{invariant!r} is not among what the drill says is broken: {broken}")
    return broken
