"""What the packaged worker tells of a batch: one line of CloudWatch's metric format, before its answer."""

import json
import time
import uuid

import pytest

from conftest import jobs_for
from harness.deployment import TABLE, until
from harness.runtime_api import Runtime

UNITS = {
    "Seconds", "Microseconds", "Milliseconds", "Bytes", "Kilobytes", "Megabytes", "Gigabytes", "Terabytes", "Bits", "Kilobits",
    "Megabits", "Gigabits", "Terabits", "Percent", "Count", "Bytes/Second", "Count/Second", "None",
}


class Metered:
    """A worker on a table of its own, and what it has told since it was last asked."""

    def __init__(self, runtime, table, log):
        self.runtime, self.table, self.log, self.read = runtime, table, log, 0

    def batch(self, *records):
        """The answer to a batch, and the metrics that were out before it."""
        answer = self.runtime.invoke({"Records": list(records)})
        assert not answer.failed, answer
        said = self.log.read_text()
        lines = [json.loads(line) for line in said[self.read:].splitlines()]
        self.read = len(said)
        failed = [item["itemIdentifier"] for item in answer.body["batchItemFailures"]]
        return failed, [line for line in lines if "_aws" in line]


@pytest.fixture(scope="module")
def metered(aws, worker_binary, receiver, tmp_path_factory):
    name = f"metrics-{uuid.uuid4().hex[:10]}"
    aws.dynamodb.create_table(TableName=name, **TABLE)
    dlq_url = aws.sqs.create_queue(QueueName=name)["QueueUrl"]
    home = tmp_path_factory.mktemp("metered")
    (home / "jobs.toml").write_text(jobs_for("127.0.0.1", receiver))
    log = home / "log"
    env = {
        "AWS_ENDPOINT_URL": aws.endpoint,
        "ONLYONCE_STORE": f"dynamodb://{name}",
        "ONLYONCE_DLQ_URL": dlq_url,
        "ONLYONCE_SERVICE": "shop",
        "CHARGES_TOKEN": "t",
    }
    with log.open("w") as out, Runtime(worker_binary, env, cwd=home, log=out) as running:
        running.wait_ready()
        yield Metered(running, name, log)
    aws.sqs.delete_queue(QueueUrl=dlq_url)
    aws.dynamodb.delete_table(TableName=name)


def record(job, key, body):
    text = lambda value: {"stringValue": value, "dataType": "String"}
    return {
        "messageId": str(uuid.uuid4()),
        "receiptHandle": "handle",
        "body": json.dumps(body),
        "attributes": {"SentTimestamp": str(int(time.time() * 1000) - 5000)},
        "messageAttributes": {"job": text(job), "idempotency-key": text(key)},
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:metrics",
        "awsRegion": "us-east-1",
    }


def told(lines):
    """The one line of a batch by metric, checked against the rules of the format."""
    assert len(lines) == 1, lines
    line = lines[0]
    assert abs(line["_aws"]["Timestamp"] - time.time() * 1000) < 60_000
    metrics = {}
    for directive in line["_aws"]["CloudWatchMetrics"]:
        assert directive["Namespace"] == "onlyonce"
        assert directive["Dimensions"]
        for dimensions in directive["Dimensions"]:
            assert all(isinstance(line[name], str) for name in dimensions), line
        assert 0 < len(directive["Metrics"]) <= 100
        for metric in directive["Metrics"]:
            assert metric["Unit"] in UNITS
            values = line[metric["Name"]]
            assert isinstance(values, (int, float)) or 0 < len(values) <= 100
            metrics[metric["Name"]] = values
    assert line["Service"] == "shop"
    return metrics


def counts(metrics):
    return {name: value for name, value in metrics.items() if not isinstance(value, list)}


def test_a_fresh_batch_and_its_copies(metered, case):
    batch = [record("charge", f"private-{case}-{n}", {"case": case, "iban": f"private-{case}"}) for n in range(3)]

    failed, lines = metered.batch(*batch)
    assert failed == []
    fresh = told(lines)
    assert counts(fresh) == {"Claimed": 3, "Completed": 3}
    assert len(fresh["EffectLatency"]) == 3
    assert len(fresh["StoreLatency"]) == 6
    assert len(fresh["Age"]) == 3
    assert all(4900 < age < 20_000 for age in fresh["Age"]), fresh

    failed, lines = metered.batch(*batch)
    assert failed == []
    copies = told(lines)
    assert counts(copies) == {"Replayed": 3}
    assert set(copies) == {"Replayed", "StoreLatency"}
    assert f"private-{case}" not in metered.log.read_text()


def test_a_batch_of_nothing_tells_nothing(metered):
    assert metered.batch() == ([], [])


def test_another_worker_at_the_same_job_is_busy(metered, aws, receiver, case):
    now = int(time.time() * 1000)
    message = record("charge", case, {"case": case})
    failed, lines = metered.batch(message)
    assert told(lines)["Completed"] == 1
    # As a worker leaves it that is still at it.
    items = aws.dynamodb.scan(TableName=metered.table)["Items"]
    item = next(item for item in items if item["key"]["S"] == case)
    item.update(status={"S": "claimed"}, lease_until={"N": str(now + 60_000)}, claim_id={"S": "another"})
    item.pop("output", None)
    aws.dynamodb.put_item(TableName=metered.table, Item=item)

    failed, lines = metered.batch(message)
    assert failed == [message["messageId"]]
    assert counts(told(lines)) == {"Busy": 1}


def test_retries_until_it_has_failed_and_is_in_quarantine(metered, receiver, case):
    receiver.answer(f"/fragile/{case}", 503, 503)
    message = record("fragile", case, {"case": case})

    failed, lines = metered.batch(message)
    assert failed == [message["messageId"]]
    first = told(lines)
    assert counts(first) == {"Claimed": 1, "Retried": 1}
    assert "Age" not in first

    def ended():
        failed, lines = metered.batch(message)
        return None if failed else lines

    lines = until("it has failed", ended)
    assert counts(told(lines)) == {"Claimed": 1, "Failed": 1, "Quarantined": 1}
    assert lines[0]["Cause"] == "failed"


def test_two_causes_of_quarantine_are_two_lines(metered, case):
    good = record("charge", case, {"case": case})
    other = record("charge", case, {"case": case, "amount": 2})
    nobody = record("nobody", case, {})

    failed, lines = metered.batch(good, other, nobody)
    assert failed == []
    assert {line["Cause"]: line["Quarantined"] for line in lines} == {"mismatch": 1, "undecodable": 1}
    assert sum(line.get("Completed", 0) for line in lines) == 1
