"""Events that no well-behaved event source sends, handed straight to the worker."""

import json
import uuid

import pytest
from conftest import jobs_for
from harness.deployment import TABLE
from harness.runtime_api import Runtime

QUEUE_ARN = "arn:aws:sqs:us-east-1:000000000000:{}"


@pytest.fixture(scope="module")
def store(aws):
    """A table, a queue and a dead-letter queue without an event source."""
    name = f"oo-{uuid.uuid4().hex[:10]}"
    aws.dynamodb.create_table(TableName=name, **TABLE)
    queue_url = aws.sqs.create_queue(QueueName=name)["QueueUrl"]
    dlq_url = aws.sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    yield name, queue_url, dlq_url
    aws.sqs.delete_queue(QueueUrl=queue_url)
    aws.sqs.delete_queue(QueueUrl=dlq_url)
    aws.dynamodb.delete_table(TableName=name)


@pytest.fixture(scope="module")
def runtime(aws, worker_binary, receiver, store, tmp_path_factory):
    table, _, dlq_url = store
    home = tmp_path_factory.mktemp("worker")
    # This worker runs on the machine itself, whatever the emulator's do.
    (home / "jobs.toml").write_text(jobs_for("127.0.0.1", receiver))
    env = {
        "AWS_ENDPOINT_URL": aws.endpoint,
        "ONLYONCE_STORE": f"dynamodb://{table}",
        "ONLYONCE_DLQ_URL": dlq_url,
        "CHARGES_TOKEN": "t",
    }
    with Runtime(worker_binary, env, cwd=home) as running:
        running.wait_ready()
        yield running


def record(store, case, **changes):
    """One record as Lambda would send it; a field set to `...` is left out."""
    whole = {
        "messageId": str(uuid.uuid4()),
        "receiptHandle": "handle",
        "body": json.dumps({"case": case}),
        "attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": "1796000000000",
            "SenderId": "AIDA",
            "ApproximateFirstReceiveTimestamp": "1796000000001",
        },
        "messageAttributes": {
            "job": {"stringValue": "charge", "dataType": "String"},
            "idempotency-key": {"stringValue": f"key-{case}", "dataType": "String"},
        },
        "md5OfBody": "0" * 32,
        "eventSource": "aws:sqs",
        "eventSourceARN": QUEUE_ARN.format(store[0]),
        "awsRegion": "us-east-1",
        **changes,
    }
    return {name: value for name, value in whole.items() if value is not ...}


FOREIGN = {
    "api-gateway": {"version": "2.0", "routeKey": "$default", "rawPath": "/", "requestContext": {}},
    "sns": {"Records": [{"EventSource": "aws:sns", "EventVersion": "1.0", "Sns": {"Message": "hi"}}]},
    "s3": {"Records": [{"eventSource": "aws:s3", "eventName": "ObjectCreated:Put", "s3": {}}]},
    "eventbridge": {"id": "1", "detail-type": "Scheduled Event", "source": "aws.events", "detail": {}},
    "list": [1, 2, 3],
    "text": "hello",
    "records-of-another-type": {"Records": "none"},
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_an_event_of_another_service_is_an_error(runtime, kind):
    answer = runtime.invoke(FOREIGN[kind])

    assert answer.failed, answer
    assert answer.body["errorMessage"]


@pytest.mark.parametrize("event", [{}, {"Records": None}, {"Records": []}], ids=["absent", "null", "empty"])
def test_an_event_without_records_is_an_empty_answer(runtime, event):
    answer = runtime.invoke(event)

    assert not answer.failed
    assert answer.body == {"batchItemFailures": []}


@pytest.mark.parametrize("missing", [..., None, ""], ids=["absent", "null", "empty"])
def test_a_record_that_cannot_be_named_fails_the_invocation(runtime, store, receiver, case, missing):
    """Its failure could not be reported, so an answer would delete it."""
    answer = runtime.invoke({"Records": [record(store, case), record(store, case, messageId=missing)]})

    assert answer.failed, answer
    assert "messageId" in answer.body["errorMessage"]


@pytest.mark.parametrize(
    "changes",
    [
        dict(body=...),
        dict(body=None),
        dict(messageAttributes=None),
        dict(messageAttributes=...),
        dict(messageAttributes={"idempotency-key": None, "job": {"stringValue": "charge"}}),
        dict(messageAttributes={
            "job": {"stringValue": "charge", "dataType": "String"},
            "idempotency-key": {"binaryValue": "%%% not base64 %%%", "dataType": "Binary"},
        }),
        dict(messageAttributes={
            "job": {"stringValue": "charge", "dataType": "String"},
            "idempotency-key": {"stringValue": "key", "dataType": "String"},
            "photo": {"binaryValue": "%%% not base64 %%%", "dataType": "Binary"},
        }),
    ],
    ids=["body-absent", "body-null", "attributes-null", "attributes-absent", "attribute-null",
         "bad-binary-key", "bad-binary-beside"],
)
def test_a_bad_record_hurts_itself_alone(aws, runtime, store, receiver, case, changes):
    good = record(store, f"{case}-good")
    bad = record(store, case, **changes)

    answer = runtime.invoke({"Records": [bad, good]})

    assert not answer.failed, answer
    receiver.wait_for(f"/charge/{case}-good")
    assert receiver.requests(f"/charge/{case}") == []
    failures = [failure["itemIdentifier"] for failure in answer.body["batchItemFailures"]]
    assert good["messageId"] not in failures
    # Not lost: either it is reported, or it lies in the dead-letter queue.
    if bad["messageId"] not in failures:
        assert dead_letters(aws, store, bad["body"]), "acked, and in no dead-letter queue"


@pytest.mark.parametrize(
    "changes",
    [
        dict(attributes=None),
        dict(attributes=...),
        dict(md5OfBody=None, eventSourceARN=None, awsRegion=None),
        dict(receiptHandle=None),
        dict(messageAttributes={
            "job": {"stringValue": "charge", "dataType": "String", "binaryValue": None,
                    "stringListValues": None, "binaryListValues": None},
            "idempotency-key": {"stringValue": "key-of-null-values", "dataType": "String"},
            "photo": None,
        }),
    ],
    ids=["attributes-null", "attributes-absent", "others-null", "handle-null", "values-null"],
)
def test_a_record_with_gaps_that_do_not_matter_runs(aws, runtime, store, receiver, case, changes):
    answer = runtime.invoke({"Records": [record(store, case, **changes)]})

    assert not answer.failed, answer
    assert answer.body == {"batchItemFailures": []}
    assert len(receiver.requests(f"/charge/{case}")) == 1


def test_json_nested_10_000_deep_is_quarantined_and_its_neighbour_runs(aws, runtime, store, receiver, case):
    """Handed over directly: the poller of one emulator gives up on such a body before its function sees it."""
    deep = '{"case":"%s","deep":%s}' % (case, "[" * 10_000 + "]" * 10_000)
    batch = [record(store, case, body=deep), record(store, f"{case}-good")]

    answer = runtime.invoke({"Records": batch})

    assert not answer.failed, answer
    assert answer.body == {"batchItemFailures": []}
    (message,) = dead_letters(aws, store, deep)
    assert message["Body"] == deep
    mark = json.loads(message["MessageAttributes"]["onlyonce-quarantine"]["StringValue"])
    assert mark["job"] == "charge"
    assert "nested" in mark["error"]
    assert receiver.requests(f"/charge/{case}") == []
    assert len(receiver.requests(f"/charge/{case}-good")) == 1


def test_each_failure_is_reported_once_and_by_its_id(runtime, store, receiver, case):
    batch = [record(store, f"{case}-{n}") for n in range(3)]
    receiver.answer(f"/charge/{case}-0", 503)
    receiver.answer(f"/charge/{case}-2", 503)

    answer = runtime.invoke({"Records": batch})

    assert not answer.failed
    assert sorted(failure["itemIdentifier"] for failure in answer.body["batchItemFailures"]) == sorted(
        [batch[0]["messageId"], batch[2]["messageId"]]
    )


def test_garbage_is_an_error_and_the_worker_lives_on(runtime, store, receiver, case):
    assert runtime.invoke(b"{not json").failed
    assert runtime.invoke({"Records": [record(store, case)]}).body == {"batchItemFailures": []}
    receiver.wait_for(f"/charge/{case}")


def dead_letters(aws, store, body):
    """What the worker has quarantined with this body, which is there by the time it answers."""
    found = []
    while messages := aws.sqs.receive_message(
        QueueUrl=store[2], MaxNumberOfMessages=10, WaitTimeSeconds=0, MessageAttributeNames=["All"]
    ).get("Messages", []):
        for message in messages:
            aws.sqs.delete_message(QueueUrl=store[2], ReceiptHandle=message["ReceiptHandle"])
            if message["Body"] == body and "onlyonce-quarantine" in message["MessageAttributes"]:
                found.append(message)
    return found
