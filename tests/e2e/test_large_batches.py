"""As large a batch as SQS hands over: it is answered in time, in memory that grows with the event."""

import json

import pytest
from conftest import ROOT
from harness.dynoxide import Dynoxide
from harness.runtime_api import Runtime
from test_events import record

MESSAGES = 10_000
# 1 KB each, and the attributes of SQS around it, are an event of 13 MB.
RESIDENT = 80 * 1000 * 1000
# Each of the process's threads may keep from an earlier batch what this one has no use for.
RESIDENT_LATER = 120 * 1000 * 1000


@pytest.fixture(scope="module")
def dynoxide():
    with Dynoxide(ROOT / "target/tools/bin/dynoxide") as store:
        yield store


def worker(field_binary, dynoxide, table):
    env = {"AWS_ENDPOINT_URL": dynoxide.url, "ONLYONCE_STORE": f"dynamodb://{table}", "RUST_LOG": "warn"}
    return Runtime(field_binary, env)


def batch(case, job, bodies):
    def message(n, body):
        attributes = {
            "job": {"stringValue": job, "dataType": "String"},
            "idempotency-key": {"stringValue": f"{case}-{n}", "dataType": "String"},
        }
        return record((case,), case, body=json.dumps(body), messageAttributes=attributes)

    return [message(n, body) for n, body in enumerate(bodies)]


def count(client, table, status):
    pages = client.get_paginator("scan").paginate(
        TableName=table, Select="COUNT", FilterExpression="#s = :s", ConsistentRead=True,
        ExpressionAttributeNames={"#s": "status"}, ExpressionAttributeValues={":s": {"S": status}},
    )
    return sum(page["Count"] for page in pages)


def test_ten_thousand_messages_are_done_in_one_invocation(field_binary, dynoxide, case):
    table = dynoxide.table()
    records = batch(case, "echo", ["x" * 1000] * MESSAGES)
    with worker(field_binary, dynoxide, table) as runtime:
        runtime.wait_ready()
        fresh = runtime.invoke({"Records": records}, timeout=120)
        resident = runtime.resident_bytes()
        again = runtime.invoke({"Records": records}, timeout=120)
        runtime.invoke({"Records": records}, timeout=120)
        still = runtime.resident_bytes()
    assert fresh.body == {"batchItemFailures": []}
    assert again.body == {"batchItemFailures": []}
    assert count(dynoxide.client, table, "completed") == MESSAGES
    print(f"{MESSAGES} messages: resident {resident / 1e6:.0f} MB, {still / 1e6:.0f} MB after as many duplicates, twice")
    assert resident <= RESIDENT and still <= RESIDENT_LATER


def test_what_is_not_begun_in_time_is_handed_back(field_binary, dynoxide, case):
    table = dynoxide.table()
    # 32 at once for half a second each: far fewer than 5,000 in four seconds.
    records = batch(case, "slow", [{"ms": 500}] * 5000)
    with worker(field_binary, dynoxide, table) as runtime:
        runtime.wait_ready()
        answer = runtime.invoke({"Records": records}, timeout=4)
    assert not answer.failed
    failed = {item["itemIdentifier"] for item in answer.body["batchItemFailures"]}
    assert len(failed) == len(answer.body["batchItemFailures"])
    done = count(dynoxide.client, table, "completed")
    assert 32 <= done < 1000
    # Each is done or handed back, and no other has been touched.
    assert len(failed) == 5000 - done
    assert count(dynoxide.client, table, "claimed") == 0
    assert count(dynoxide.client, table, "released") <= 32
