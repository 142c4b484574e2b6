#!/usr/bin/env python3
"""What the released worker costs, held against its limits: `make bench` runs this.

Start-up is measured from spawn to the first request for work, memory after a batch of ten, size on
the packaged binary, and DynamoDB calls by a proxy between the worker and the store.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv/bin"
if Path(sys.prefix).resolve() != (ROOT / ".venv").resolve():
    os.execv(VENV / "python", [str(VENV / "python"), __file__, *sys.argv[1:]])

sys.path.insert(0, str(ROOT / "tests"))
from harness.deployment import TABLE, Aws  # noqa: E402
from harness.emulator import CREDENTIALS, MiniStack  # noqa: E402
from harness.proxy import CountingProxy  # noqa: E402
from harness.receiver import Receiver  # noqa: E402
from harness.runtime_api import Runtime  # noqa: E402

LIMITS = {
    "spawn to first /next": (20, "ms"),
    "resident after a batch of ten": (25, "MB"),
    "size, stripped": (10, "MB"),
    "DynamoDB calls, fresh": (2, ""),
    "DynamoDB calls, duplicate": (1, ""),
}
STARTS = 21
MB = 1_000_000


def main():
    os.environ.update(CREDENTIALS)
    os.environ["PATH"] = f"{VENV}{os.pathsep}{os.environ['PATH']}"
    binary = build()
    with tempfile.TemporaryDirectory(prefix="onlyonce-") as home:
        measured = measure(binary, Path(home))
    measured["size, stripped"] = binary.stat().st_size / MB
    return report(measured)


def build():
    directory = ROOT / "target/lambda-bench"
    subprocess.run(
        [
            "cargo", "lambda", "build", "--locked", "--release", "--no-default-features", "--features", "worker",
            "--bin", "worker", "--lambda-dir", str(directory),
        ],
        cwd=ROOT, check=True, timeout=3600,
    )
    return directory / "worker/bootstrap"


def measure(binary, home):
    emulator = MiniStack(VENV / "ministack", home, dict(os.environ))
    receiver, proxy = Receiver(), CountingProxy(emulator.url)
    try:
        aws = Aws(emulator.url)
        table = f"bench-{uuid.uuid4().hex[:8]}"
        aws.dynamodb.create_table(TableName=table, **TABLE)
        template = (ROOT / "tests/e2e/jobs.toml.in").read_text()
        (home / "jobs.toml").write_text(template.format(host="127.0.0.1", port=receiver.port))
        env = {
            "AWS_ENDPOINT_URL": proxy.url,
            "ONLYONCE_STORE": f"dynamodb://{table}",
            "CHARGES_TOKEN": "t",
        }
        start = lambda: Runtime(binary, env, cwd=home, log=subprocess.DEVNULL)
        return {
            "spawn to first /next": start_up(start),
            "resident after a batch of ten": resident(start),
            **calls(start, proxy),
        }
    finally:
        proxy.close()
        receiver.close()
        emulator.close()


def start_up(start):
    times = []
    for _ in range(STARTS):
        with start() as runtime:
            times.append(runtime.wait_ready())
    return statistics.median(times)


def resident(start):
    with start() as runtime:
        runtime.wait_ready()
        succeed(runtime, [message(f"ten-{n}") for n in range(10)])
        return runtime.resident_bytes() / MB


def calls(start, proxy):
    counted = {}
    with start() as runtime:
        runtime.wait_ready()
        succeed(runtime, [message("warm")])
        for name in ("fresh", "duplicate"):
            proxy.reset()
            succeed(runtime, [message("lone")])
            counted[f"DynamoDB calls, {name}"] = sum(proxy.calls().values())
    return counted


def succeed(runtime, records):
    answer = runtime.invoke({"Records": records})
    if answer.failed or answer.body != {"batchItemFailures": []}:
        raise SystemExit(f"the worker did not do its work: {answer}")


def message(key):
    return {
        "messageId": str(uuid.uuid4()),
        "receiptHandle": "handle",
        "body": json.dumps({"case": key, "amount": 5}),
        "attributes": {"ApproximateReceiveCount": "1", "SentTimestamp": "1796000000000"},
        "messageAttributes": {
            "job": {"stringValue": "charge", "dataType": "String"},
            "idempotency-key": {"stringValue": key, "dataType": "String"},
        },
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:bench",
        "awsRegion": "us-east-1",
    }


def report(measured):
    over = 0
    for name, (limit, unit) in LIMITS.items():
        value = measured[name]
        verdict = "ok" if value <= limit else "OVER"
        over += value > limit
        print(f"{name:<30}  {value:7.1f} {unit:<2}  limit {limit:>3} {unit:<2}  {verdict}")
    return 1 if over else 0


if __name__ == "__main__":
    sys.exit(main())
