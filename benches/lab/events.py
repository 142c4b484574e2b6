"""The events, the same for all contenders."""

import json
import uuid


def event(count, size=0, job="charge", key=None):
    """An SQS event of `count` messages under keys that are new, each body of `size` bytes or a few."""
    key = key or uuid.uuid4().hex
    return json.dumps({"Records": [message(f"order:{key}:{n}", n, size, job) for n in range(count)]}).encode()


def message(key, number, size, job):
    body = {"case": f"c{number}", "amount": 5}
    if size:
        body["note"] = "x" * (size - len(json.dumps({**body, "note": ""})))
    return {
        "messageId": str(uuid.uuid4()),
        "receiptHandle": "AQEB" + "h" * 180,
        "body": json.dumps(body),
        "attributes": {
            "ApproximateReceiveCount": "1",
            "SentTimestamp": "1796000000000",
            "SenderId": "AIDAIENQZJOLO23YVJ4VO",
            "ApproximateFirstReceiveTimestamp": "1796000000005",
        },
        "messageAttributes": {
            "job": {"stringValue": job, "stringListValues": [], "binaryListValues": [], "dataType": "String"},
            "idempotency-key": {"stringValue": key, "stringListValues": [], "binaryListValues": [], "dataType": "String"},
        },
        "md5OfBody": "e4e68fb7bd0e697a0ae8f1bb342846b3",
        "eventSource": "aws:sqs",
        "eventSourceARN": "arn:aws:sqs:us-east-1:000000000000:bench",
        "awsRegion": "us-east-1",
    }
