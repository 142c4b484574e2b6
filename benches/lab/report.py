"""The report, in Markdown: the verdicts first, then what they rest on."""

from .contenders import OURS
from .prices import FORMULA, MEMORY_MB, MONTHS, per_million
from .results import MB, targets

METHOD = """All contenders ran in this one run, in turns, on the same machine, against the same local DynamoDB
(dynoxide, optimised, in memory), given the same events by the same runtime API, each as a process of its own.
Processor time is that process's own, to the nanosecond, all threads; wall time is from an event's first byte to
its answer's last. A number is the median, in brackets the lowest and the highest sample; all samples are in
`report.json`.

- **onlyonce** is this crate's Lambda front, service and store with a job in Rust that does nothing
  (`benches/contenders/onlyonce.rs`): an effect would be the larger part. It logs as it does by default, a line per message.
- **hand-written** makes the two calls that one would write by hand, with the same client settings and as many
  messages at once, and nothing else (`benches/contenders/handwritten.rs`): no leases, no fencing, no log. It runs on
  `#[tokio::main]`, as handlers do, and once more on **one thread**, which this crate's worker has in Lambda.
- **Powertools** are idempotency with batches as their documentation has it; TypeScript's takes all messages of a
  batch at once, Python's one after another. AWS's runtime clients need a compiler to install: a loop of a few lines
  stands for them.
- **`worker`** is the program that is shipped, with an `http` effect to a local server: size, start and memory are its own."""


def markdown(results, about):
    parts = [
        "# Benchmark",
        f"{about['date']}, commit {about['commit']}, {about['machine']}, {about['minutes']:.0f} minutes"
        + (". **A quick run, of a debug build: it shows that the bench works, and nothing else.**" if about["quick"] else "."),
        "## Targets", verdicts(results),
        "## How it was measured", METHOD,
        "## Processor time per message (ms)", *by_batch(results, "cpu", "cpu_ms", "cpu.svg"),
        "## Wall time per message (ms)", *by_batch(results, "cpu", "wall_ms", "wall.svg"),
        "## Growth with the payload (batch of five, ms of processor time per message)", payloads(results),
        "## Requests, units and bytes per message", traffic(results),
        "## Wall time of a batch with 5 ms of store latency (ms)", latency(results),
        "## Start (ms)", starts(results),
        "## Memory (MB)", memory(results),
        "## Size (MB)", sizes(results),
        "## Cost", *cost(results),
    ]
    return "\n\n".join(parts) + "\n"


def table(head, rows):
    line = lambda cells: "| " + " | ".join(str(cell) for cell in cells) + " |"
    return "\n".join([line(head), line("---" for _ in head), *map(line, rows)])


def verdicts(results):
    rows = []
    for row in targets(results):
        value = "-" if row.value is None else f"{row.value:.3g} {row.unit}".strip()
        rows.append((row.what, f"<= {row.limit:.3g} {row.unit}".strip(), value, row.verdict))
    return table(("", "target", "measured", "verdict"), rows)


def by_batch(results, measure, field, plot):
    contenders, batches = results.contenders(measure), results.batches(measure)
    for kind in ("fresh", "duplicate"):
        yield f"{kind.capitalize()}:"
        yield table(
            ("batch", *contenders),
            [
                (f"{batch:,}", *(results.shown(measure, field, contender, batch, kind) for contender in contenders))
                for batch in batches
            ],
        )
    yield f"![]({plot})"


def payloads(results):
    sizes = sorted({sample["size"] for sample in results.samples["payload"]})
    contenders = results.contenders("payload")
    return table(
        ("body", "", *contenders),
        [
            (f"{size // 1024:,} KB", kind, *(results.shown("payload", "cpu_ms", name, kind=kind, size=size) for name in contenders))
            for size in sizes
            for kind in ("fresh", "duplicate")
        ],
    )


def traffic(results):
    fields = ("requests", "write_units", "read_units", "bytes_sent", "bytes_received")
    rows = []
    for batch in results.batches("traffic"):
        for contender in results.contenders("traffic"):
            for kind in ("fresh", "duplicate"):
                numbers = [results.median("traffic", field, contender, batch, kind) for field in fields]
                if numbers[0] is not None:
                    shown = [f"{number:.2f}" for number in numbers[:3]] + [f"{number:,.0f}" for number in numbers[3:]]
                    rows.append((f"{batch:,}", contender, kind, *shown))
    return table(("batch", "", "", *(field.replace("_", " ") for field in fields)), rows)


def latency(results):
    contenders = results.contenders("latency")
    ideal = lambda batch, field: results.shown("latency", field, OURS, batch, "fresh", digits=1)
    rows = [
        (f"{batch:,}", kind, ideal(batch, "ideal_ms"), ideal(batch, "writing_ms"), *(results.shown("latency", "wall_ms", name, batch, kind, digits=1) for name in contenders))
        for batch in results.batches("latency")
        for kind in ("fresh", "duplicate")
    ]
    head = ("batch", "", "two bare requests", "two with as many writes, at most 25", *contenders)
    told = "The target is two bare requests. What the store itself takes to write, the second pair of them shows."
    return f"{told}\n\n{table(head, rows)}\n\n![](latency.svg)"


def starts(results):
    rows = [
        (
            name, results.shown("starts", "next_ms", name, digits=1), results.shown("starts", "start_cpu_ms", name, digits=1),
            results.shown("starts", "first_ms", name, digits=1), results.shown("starts", "second_ms", name, digits=1),
        )
        for name in results.contenders("starts")
    ]
    return table(("", "spawn to first `/next`", "processor time until then", "first batch of ten", "second batch of ten"), rows)


def memory(results):
    rows = [
        (
            sample["contender"],
            *(f"{sample[field] / MB:.1f}" if field in sample else "-" for field in ("start", "batch of ten", "many", "peak")),
        )
        for sample in results.samples["memory"]
    ]
    many = max(sample.get("messages", 0) for sample in results.samples["memory"])
    return table(("", "at start", "after a batch of ten", f"after {many:,} × 1 KB", "at most"), rows)


def sizes(results):
    rows = [(s["binary"], f"{s['bytes'] / MB:.2f}", f"{s['zip'] / MB:.2f}") for s in results.samples["sizes"]]
    return table(("", "binary", "zip"), rows)


def cost(results):
    bills = per_million(results.median)
    yield f"Dollars per million fresh messages, batches of ten, {MEMORY_MB} MB, computed from what was measured:"
    parts = list(dict.fromkeys(part for bill in bills.values() for part in bill))
    rows = [
        (name, *(f"{bill[part]:.3f}" if part in bill else "-" for part in parts), f"**{sum(bill.values()):.3f}**")
        for name, bill in bills.items()
    ]
    yield table(("", *parts, "all"), rows)
    yield "Dollars a month:"
    rows = [
        (name, *(f"{sum(bill.values()) * month / 1e6:,.0f}" for month in MONTHS))
        for name, bill in bills.items()
    ]
    yield table(("", *(f"{month:,} messages" for month in MONTHS)), rows)
    yield "![](cost.svg)"
    yield FORMULA


def summary(results):
    """The few numbers for the README."""
    bills = per_million(results.median)

    def row(name):
        cpu = [results.median("cpu", "cpu_ms", name, 10, kind) for kind in ("fresh", "duplicate")]
        requests = results.median("traffic", "requests", name, 10, "fresh")
        wall = results.median("latency", "wall_ms", name, 10, "fresh")
        dollars = sum(bills[name].values())
        return (name, *(f"{ms:.3f}" for ms in cpu), f"{requests:.1f}", f"{wall:.0f} ms", f"${dollars:.2f}")

    head = (
        "batches of ten", "CPU a fresh message, ms", "CPU a duplicate, ms", "requests a message",
        "batch, with 5 ms a request", "a million messages",
    )
    return table(head, [row(name) for name in results.contenders("cpu")])
