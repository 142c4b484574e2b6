"""What was measured, and what is said of it: medians with their spread, targets with their verdicts."""

import statistics
from dataclasses import dataclass

from .contenders import HAND, OURS, PYTHON, TYPESCRIPT

MB = 1_000_000


class Results:
    def __init__(self, samples):
        self.samples = samples  # measure -> its raw samples

    def values(self, measure, field, contender, batch=None, kind=None, **also):
        wanted = {"contender": contender, **also}
        wanted |= {name: value for name, value in (("batch", batch), ("kind", kind)) if value is not None}
        return [
            sample[field]
            for sample in self.samples.get(measure, [])
            if field in sample and all(sample.get(name) == value for name, value in wanted.items())
        ]

    def median(self, *asked, **also):
        """None if it was not measured."""
        values = self.values(*asked, **also)
        return statistics.median(values) if values else None

    def shown(self, *asked, digits=3, **also):
        """`median (lowest..highest)`"""
        values = self.values(*asked, **also)
        if not values:
            return "-"
        number = lambda value: f"{value:.{digits}f}"
        return f"{number(statistics.median(values))} ({number(min(values))}..{number(max(values))})"

    def batches(self, measure):
        return sorted({sample["batch"] for sample in self.samples.get(measure, [])})

    def contenders(self, measure):
        return list(dict.fromkeys(sample["contender"] for sample in self.samples.get(measure, [])))


@dataclass(frozen=True)
class Row:
    what: str
    value: float | None
    limit: float
    unit: str

    @property
    def verdict(self):
        if self.value is None:
            return "not measured"
        return "meets" if self.value <= self.limit else "misses"


def targets(results):
    def cpu(contender, batch, kind="fresh"):
        return results.median("cpu", "cpu_ms", contender, batch, kind)

    def ratio(mine, theirs):
        return None if mine is None or not theirs else mine / theirs

    def least(value, scale=1.0):
        return None if value is None else value * scale

    rows = [
        Row("CPU per fresh message, batch 10, of hand-written", ratio(cpu(OURS, 10), cpu(HAND, 10)), 0.30, "×"),
        Row("CPU per fresh message, batch 10, of Powertools TypeScript", ratio(cpu(OURS, 10), cpu(TYPESCRIPT, 10)), 1 / 20, "×"),
        Row("CPU per fresh message, batch 10, of Powertools Python", ratio(cpu(OURS, 10), cpu(PYTHON, 10)), 1 / 25, "×"),
    ]
    rows += [
        Row(f"CPU per fresh message, batch {batch:,}, of hand-written", ratio(cpu(OURS, batch), cpu(HAND, batch)), 0.15, "×")
        for batch in results.batches("cpu")
        if batch >= 100
    ]
    wall = ratio(results.median("latency", "wall_ms", OURS, 10, "fresh"), results.median("latency", "ideal_ms", OURS, 10, "fresh"))
    rows += [
        Row(
            "CPU per duplicate, batch 10, of hand-written",
            ratio(cpu(OURS, 10, "duplicate"), cpu(HAND, 10, "duplicate")), 0.35, "×",
        ),
        Row("CPU per fresh message, batch 1, of hand-written", ratio(cpu(OURS, 1), cpu(HAND, 1)), 1.15, "×"),
        Row("requests per fresh message, batch 10", results.median("traffic", "requests", OURS, 10, "fresh"), 0.3, ""),
        Row("wall with 5 ms store latency, batch 10, of two round trips", wall, 1.2, "×"),
        Row("spawn to first `/next`, `worker`, TLS", results.median("starts", "next_ms", "worker"), 10, "ms"),
        Row("first batch of ten after it, TLS", results.median("starts", "first_ms", OURS), 5, "ms"),
        Row("resident after a batch of ten, `worker`", least(results.median("memory", "batch of ten", "worker"), 1 / MB), 16, "MB"),
        Row("resident after 10,000 × 1 KB, `worker`", least(results.median("memory", "many", "worker", messages=10_000), 1 / MB), 80, "MB"),
        Row("`worker` stripped, DynamoDB + http", size(results, "worker, DynamoDB + http"), 9, "MB"),
    ]
    return rows


def size(results, binary):
    found = [sample["bytes"] for sample in results.samples.get("sizes", []) if sample["binary"] == binary]
    return found[0] / MB if found else None
