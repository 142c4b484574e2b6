"""Draws the report's pictures: `plots.py REPORT.json FOLDER`, in the bench's own environment."""

import json
import statistics
import sys
from pathlib import Path

import matplotlib

matplotlib.use("svg")
# The same numbers make the same file, and text stays text.
matplotlib.rcParams.update({"svg.hashsalt": "onlyonce", "svg.fonttype": "none", "font.size": 9})
import matplotlib.pyplot as plt  # noqa: E402

# Beside this file: it runs by itself.
from contenders import DURABLE, HAND, HAND_ONE, OURS, PYTHON, TYPESCRIPT  # noqa: E402

COLORS = {
    OURS: "#1b7837", HAND: "#5e6a71", HAND_ONE: "#a6b0b6", TYPESCRIPT: "#2166ac", PYTHON: "#d6961f", DURABLE: "#b2182b",
}


def main(report, folder):
    told = json.loads(Path(report).read_text())
    samples, folder = told["samples"], Path(folder)
    lines(samples["cpu"], "cpu_ms", "processor time per message, ms", folder / "cpu.svg")
    lines(samples["cpu"], "wall_ms", "wall time per message, ms", folder / "wall.svg")
    lines(samples["latency"], "wall_ms", "wall time of a batch, ms", folder / "latency.svg", ideal="ideal_ms")
    bars(told["cost"], folder / "cost.svg")


def lines(samples, field, label, path, ideal=None):
    """One panel for each kind, one line for each contender: medians, and bars from lowest to highest."""
    figure, panels = plt.subplots(1, 2, figsize=(8, 3.6), sharey=True, layout="constrained")
    for panel, kind in zip(panels, ("fresh", "duplicate")):
        for contender in dict.fromkeys(sample["contender"] for sample in samples):
            points = grouped([s for s in samples if (s["contender"], s["kind"]) == (contender, kind)], field)
            middle = [statistics.median(values) for _, values in points]
            spread = [
                [m - min(values) for m, (_, values) in zip(middle, points)],
                [max(values) - m for m, (_, values) in zip(middle, points)],
            ]
            panel.errorbar(
                [batch for batch, _ in points], middle, yerr=spread, label=contender, color=COLORS.get(contender), marker="o",
                markersize=3, linewidth=1.3, capsize=2,
            )
        if ideal:
            points = grouped([s for s in samples if s["kind"] == kind], ideal)
            panel.plot(
                [batch for batch, _ in points], [statistics.median(values) for _, values in points], "k:", label="two bare requests"
            )
        panel.set(xscale="log", yscale="log", title=kind, xlabel="messages in the batch")
        panel.grid(True, which="major", alpha=0.3)
    panels[0].set_ylabel(label)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    save(figure, path)


def grouped(samples, field):
    batches = sorted({sample["batch"] for sample in samples})
    return [(batch, [s[field] for s in samples if s["batch"] == batch]) for batch in batches]


def bars(cost, path):
    figure, panel = plt.subplots(figsize=(8, 2.6), layout="constrained")
    parts = list(dict.fromkeys(part for bill in cost.values() for part in bill))
    shades = dict(zip(parts, plt.get_cmap("tab10").colors))
    names = list(cost)[::-1]
    left = [0.0] * len(names)
    for part in parts:
        widths = [cost[name].get(part, 0) for name in names]
        panel.barh(names, widths, left=left, label=part, color=shades[part])
        left = [a + b for a, b in zip(left, widths)]
    panel.set_xlabel("dollars per million messages")
    panel.legend(frameon=False, fontsize=8)
    save(figure, path)


def save(figure, path):
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    main(*sys.argv[1:])
