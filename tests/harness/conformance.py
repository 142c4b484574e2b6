"""The conformance table, of what the suite's tests have said and of how they have ended.

Each check of the suite prints a line once it has passed: which store, whether the check itself ran or
what the store must refuse instead, and what the store declares that it can.
"""

import re
import xml.etree.ElementTree as xml

LINE = re.compile(r"^conformance: (\S+) (passed|refused) rows=(\S+) native=(\S+) outbox=(\S+)$", re.MULTILINE)
BINARY = "store_conformance"
HEAD = ("store", "rows", "staged of its own", "outbox", "checks", "passed", "refused as declared", "failed")


def table(junit):
    """The rows of the table, and what is wrong with it."""
    tests = [case for case in xml.parse(junit).getroot().iter("testcase") if BINARY in case.get("classname", "")]
    stores = {}  # -> its lines
    for case in tests:
        store = case.get("name").split("::")[0]
        for on, *said in LINE.findall("".join(out.text or "" for out in case.iter("system-out"))):
            if on == store:
                stores.setdefault(store, []).append(said)
    rows, faults = [], []
    for store, lines in stores.items():
        # The suite's checks are alone in their store's module, but for crash points and faults.
        checks = [case for case in tests if case.get("name").startswith(f"{store}::")]
        failed = sum(any(element.tag in ("failure", "error") for element in case) for case in checks)
        if len({tuple(can) for _, *can in lines}) != 1:
            faults.append(f"{store}: it does not declare the same each time")
        _, has_rows, native, outbox = lines[0]
        passed = sum(how == "passed" for how, *_ in lines)
        more = len(checks) - failed - len(lines)  # crash points and faults, which have passed as well
        rows.append((store, has_rows, native, outbox, len(checks), passed + more, len(lines) - passed, failed))
    if len(rows) < 2:
        faults.append("the suite has not run")
    if len({checks for _, _, _, _, checks, *_ in rows}) > 1:
        faults.append("not every store ran every check")
    faults += [f"{store}: {failed} failed" for store, *_, failed in rows if failed]
    return rows, faults


def shown(rows):
    cells = [HEAD, *([str(cell) for cell in row] for row in sorted(rows))]
    widths = [max(len(row[column]) for row in cells) for column in range(len(HEAD))]
    return "\n".join("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths)).rstrip() for row in cells)
