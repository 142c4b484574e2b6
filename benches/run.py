#!/usr/bin/env python3
"""Measures this crate beside a hand-written handler and Powertools: `make bench` runs this.

    benches/run.py            everything, a quarter of an hour, most of it building; the report is in target/bench
    benches/run.py --docs     the same, and the report is copied into docs/bench
    benches/run.py --quick    a few samples of a debug build, without Powertools and pictures: shows that it works

Ends with the table of targets: `meets` or `misses`. Exit status: 0 = measured (whatever the verdicts),
1 = a contender did not do its work or was counted wrong, 2 = wrong usage; with --strict also 1 = a target is missed.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv/bin"
if Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
    os.execv(VENV / "python", [str(VENV / "python"), __file__, *sys.argv[1:]])

sys.path.insert(0, str(ROOT / "tests"))
from harness.dynoxide import Dynoxide  # noqa: E402
from harness.emulator import CREDENTIALS  # noqa: E402

from lab import contenders, measure, report  # noqa: E402
from lab.prices import per_million  # noqa: E402
from lab.results import Results, targets  # noqa: E402

# Batch, invocations in a sample, samples of each kind.
FULL = [(1, 40, 9), (10, 10, 9), (100, 3, 7), (1_000, 1, 5), (10_000, 1, 3)]
QUICK = [(1, 2, 2), (10, 1, 2), (100, 1, 1)]

# What stands between them in the README comes from here.
BEGIN, END = "<!-- written by `make bench-docs` -->", "<!-- until here -->"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    arguments.add_argument("--quick", action="store_true")
    arguments.add_argument("--docs", action="store_true")
    arguments.add_argument("--strict", action="store_true")
    arguments.add_argument("--store", type=Path, help="the dynoxide to use")
    arguments.add_argument("--binaries", type=Path, help="a folder with worker, bench-onlyonce and bench-handwritten, built before")
    arguments = arguments.parse_args()
    if arguments.quick and arguments.docs:
        raise SystemExit("a quick run has nothing to say in docs/")
    os.environ.update(CREDENTIALS)
    os.environ["PATH"] = f"{VENV}{os.pathsep}{os.environ['PATH']}"

    begun = time.monotonic()
    # A quick run does not write over a real one.
    folder = contenders.HOME / "quick" if arguments.quick else contenders.HOME
    folder.mkdir(parents=True, exist_ok=True)
    binaries = contenders.given(arguments.binaries) if arguments.binaries else contenders.build(arguments.quick)
    powertools = [] if arguments.quick else contenders.powertools()
    with tempfile.TemporaryDirectory(prefix="onlyonce-") as home:
        samples = measured(arguments, binaries, powertools, Path(home))
    results = Results(samples)
    about = {
        "date": datetime.date.today().isoformat(), "commit": measure.commit(), "quick": arguments.quick,
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores, {processor()}",
        "minutes": (time.monotonic() - begun) / 60,
    }
    written(folder, results, about)
    if arguments.docs:
        kept = ROOT / "docs/bench"
        kept.mkdir(parents=True, exist_ok=True)
        for name in ("report.md", "report.json", "cpu.svg", "wall.svg", "latency.svg", "cost.svg"):
            shutil.copy(folder / name, kept)
        told_in_readme(report.summary(results))
    counted_right(results)
    told = "A quick run says nothing of targets." if arguments.quick else report.verdicts(results)
    print(f"\n{told}\n\n{folder.relative_to(ROOT)}/report.md")
    is_missed = any(row.verdict != "meets" for row in targets(results))
    return 1 if arguments.strict and is_missed else 0


def measured(arguments, binaries, powertools, home):
    quick = arguments.quick
    program = arguments.store or ROOT / ("target/tools/bin/dynoxide" if quick else "target/bench/tools/bin/dynoxide")
    rust = contenders.rust(binaries)
    everybody = rust + powertools
    samples = {}

    def step(name, take):
        print(f"{name} ..", flush=True)
        at = time.monotonic()
        # A store of its own: what one measurement has left there would slow the next.
        with Dynoxide(program) as store:
            samples[name] = take(store)
        print(f"{name}: {len(samples[name])} samples, {time.monotonic() - at:.0f} s", flush=True)

    def cpu(store):
        with measure.running(everybody, store, warm=2 if quick else 30) as sessions:
            return measure.per_message(sessions, QUICK if quick else FULL)

    def payload(store):
        found = []
        with measure.running(everybody, store, warm=1 if quick else 10) as sessions:
            for size in (1 << 10, 64 << 10, 1 << 20):
                found += measure.per_message(sessions, [(5, 1, 1 if quick else 7)], size)
        return found

    step("starts", lambda store: measure.starts(
        {"worker": (binaries.worker,), "worker, DynamoDB + http": (binaries.small,)} | {each.name: each.command for each in rust},
        rust, store, home, 1 if quick else 21,
    ))
    step("memory", lambda store: measure.memory(binaries.worker, everybody, store, home, 100 if quick else 10_000))
    step("cpu", cpu)
    step("payload", payload)
    step("traffic", lambda store: measure.traffic(everybody, store, (1, 10) if quick else (1, 10, 100)))
    step("latency", lambda store: measure.latency(
        everybody, store, 0.005, (1, 10) if quick else (1, 10, 100, 1_000), 1 if quick else 7,
    ))
    samples["sizes"] = measure.sizes({"worker": binaries.worker, "worker, DynamoDB + http": binaries.small})
    return samples


def written(folder, results, about):
    cost = per_million(results.median)
    told = {
        "about": about, "targets": [row.__dict__ | {"verdict": row.verdict} for row in targets(results)],
        "cost": cost, "samples": results.samples,
    }
    (folder / "report.json").write_text(json.dumps(told, indent=1))
    (folder / "report.md").write_text(report.markdown(results, about))
    if about["quick"]:
        return  # what draws them is installed with Powertools
    plots = ROOT / "benches/lab/plots.py"
    subprocess.run([folder / "python/bin/python", plots, folder / "report.json", folder], check=True, timeout=120)


def counted_right(results):
    """What does not depend on the machine: a bench that counts this wrong counts nothing right."""
    median = results.median
    for batch in results.batches("traffic"):
        for kind, calls in (("fresh", 2), ("duplicate", 1)):
            by_hand = [median("traffic", field, contenders.HAND, batch, kind) for field in ("requests", "write_units")]
            ours = [median("traffic", field, contenders.OURS, batch, kind) for field in ("requests", "write_units")]
            if by_hand != [calls, calls] or ours[0] > calls or ours[1] != calls:
                raise SystemExit(f"batch {batch}, {kind}: requests and write units are {ours}, by hand {by_hand}")


def told_in_readme(summary):
    readme = ROOT / "README.md"
    before, marked = readme.read_text().split(BEGIN)
    _, after = marked.split(END)
    readme.write_text(f"{before}{BEGIN}\n\n{summary}\n\n{END}{after}")


def processor():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "processor unknown"


if __name__ == "__main__":
    sys.exit(main())
