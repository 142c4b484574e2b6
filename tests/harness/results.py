"""Reads JUnit files, and holds the field cases against them."""

import re
import tomllib
import xml.etree.ElementTree as xml
from dataclasses import dataclass

REQUIRED_CASES = range(1, 38)


@dataclass(frozen=True)
class Outcome:
    name: str  # path::of::the::test
    state: str  # passed | failed | skipped
    text: str = ""


def outcomes(paths):
    found = []
    for path in paths:
        for case in xml.parse(path).getroot().iter("testcase"):
            name = f"{case.get('classname', '')}::{case.get('name')}".replace("tests.e2e.", "")
            found.append(Outcome(name, *verdict(case)))
    return found


def verdict(case):
    for element in case:
        if element.tag in ("failure", "error"):
            return "failed", f"{element.get('message', '')}\n{element.text or ''}"
        if element.tag == "skipped":
            return "skipped", element.get("message") or ""
    return "passed", ""


def flaky(paths):
    """The tests that passed at their second run."""
    cases = (case for path in paths for case in xml.parse(path).getroot().iter("testcase"))
    return [f"{case.get('classname', '')}::{case.get('name')}" for case in cases if case.find("flakyFailure") is not None]


def named(wanted, all_outcomes):
    """The tests that `wanted` means: the end of a path, with all parameters if it gives none."""
    pattern = re.compile(rf"(?:^|::){re.escape(wanted)}(?:\[.*\])?$")
    return [outcome for outcome in all_outcomes if pattern.search(outcome.name)]


def unshown_cases(file, all_outcomes):
    """What keeps the case list from holding, one line each."""
    listed = {int(number): tests for number, tests in tomllib.loads(file.read_text())["cases"].items()}
    faults = [f"case {number}: not listed in {file.name}" for number in REQUIRED_CASES if number not in listed]
    for number, tests in sorted(listed.items()):
        if not tests:
            faults.append(f"case {number}: no test")
        for test in tests:
            matches = named(test, all_outcomes)
            if not matches:
                faults.append(f"case {number}: no test named {test} ran")
            faults += [f"case {number}: {m.name} {m.state}" for m in matches if m.state != "passed"]
    return faults
