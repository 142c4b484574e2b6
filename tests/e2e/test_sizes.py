"""The largest that SQS carries."""

import json

from harness.deployment import record_id

LIMIT = 1024 * 1024  # body and attributes of one message together


def test_a_payload_that_fills_the_message(shop, receiver, case):
    attributes = {"job": "charge", "idempotency-key": case}
    # SQS counts the attributes' names, types and values too.
    overhead = sum(len(name) + len("String") + len(value) for name, value in attributes.items())
    frame = len(json.dumps({"case": case, "fill": ""}))
    payload = {"case": case, "fill": "x" * (LIMIT - overhead - frame)}
    assert len(json.dumps(payload)) + overhead == LIMIT

    shop.send(payload, job="charge", key=case)

    (request,) = receiver.wait_for(f"/charge/{case}")
    shop.wait_record("charge", case, "completed")
    shop.wait_drained()
    assert json.loads(request.body) == payload


def test_a_key_of_3000_bytes(shop, receiver, case):
    key = f"{case}:é" + "k" * 2985
    key += "x" * (3000 - len(key.encode()))
    assert len(key.encode()) == 3000

    shop.send_together([("charge", key, {"case": case})] * 2)

    (request,) = receiver.wait_for(f"/charge/{case}")
    record = shop.wait_record("charge", key, "completed")
    shop.wait_drained()
    assert record["key"] == key
    assert record["pk"] == record_id("charge", key)
    assert len(request.headers["idempotency-key"]) == 32
    assert len(receiver.requests(f"/charge/{case}")) == 1
