"""One message, one effect: whoever sends it and however often."""

import json
import os
import subprocess
import time
from pathlib import Path

from harness.deployment import deployed, packaged, record_id

HERE = Path(__file__).parent


def test_a_message_from_boto3_runs_once_and_completes(shop, receiver, case):
    shop.send({"case": case, "amount": 5}, job="charge", key=f"order:{case}")

    (request,) = receiver.wait_for(f"/charge/{case}")
    record = shop.wait_record("charge", f"order:{case}", "completed")
    shop.wait_drained()

    assert request.method == "POST"
    assert json.loads(request.body) == {"case": case, "amount": 5}
    assert len(request.headers["idempotency-key"]) == 32
    assert request.headers["authorization"] == "Bearer s3cr3t-of-the-tests"
    assert record["key"] == f"order:{case}"
    assert record["job"] == "charge"
    assert record["attempt"] == 1
    assert record["token"] == 1
    # Whole epoch seconds, 45 days from now: TTL ignores anything else.
    assert abs(record["expires_at"] - (time.time() + 45 * 86400)) < 3600
    assert "parked" not in record
    assert receiver.requests(f"/charge/{case}") == [request]


def test_a_message_from_node_runs_once_and_completes(shop, receiver, case):
    message = {
        "queueUrl": shop.queue_url,
        "body": json.dumps({"case": case}),
        "attributes": {"job": "charge", "idempotency-key": f"node:{case}"},
    }
    sent = subprocess.run(
        ["node", str(HERE / "send.mjs")], input=json.dumps(message), text=True,
        capture_output=True, timeout=60,
        env={**os.environ, "AWS_ENDPOINT_URL": shop.aws.endpoint},
    )
    assert sent.returncode == 0, sent.stderr

    receiver.wait_for(f"/charge/{case}")
    record = shop.wait_record("charge", f"node:{case}", "completed")
    shop.wait_drained()

    assert record["message_id"] == sent.stdout.strip()
    assert len(receiver.requests(f"/charge/{case}")) == 1


def test_copies_of_a_message_run_once(shop, receiver, case):
    body = {"case": case}
    shop.send_together([("charge", f"twice:{case}", body)] * 3)
    shop.wait_record("charge", f"twice:{case}", "completed")
    shop.send(body, job="charge", key=f"twice:{case}")
    shop.wait_drained()

    assert len(receiver.requests(f"/charge/{case}")) == 1
    assert shop.record("charge", f"twice:{case}")["token"] == 1


def test_key_order_in_the_payload_makes_no_other_payload(shop, receiver, case):
    shop.send('{"case":"%s","a":1,"b":{"x":1,"y":2}}' % case, job="charge", key=case)
    shop.wait_record("charge", case, "completed")
    shop.send('{"b":{"y":2,"x":1},"a":1,"case":"%s"}' % case, job="charge", key=case)
    shop.wait_drained()

    assert len(receiver.requests(f"/charge/{case}")) == 1
    assert shop.dead(lambda message: case in message["Body"]) == []


def test_another_amount_under_the_same_key_is_never_run(shop, receiver, case):
    shop.send({"case": case, "amount": 5}, job="charge", key=case)
    before = shop.wait_record("charge", case, "completed")
    shop.send({"case": case, "amount": 500}, job="charge", key=case)

    message = shop.wait_dead(lambda message: case in message["Body"])
    shop.wait_drained()

    mark = json.loads(message["MessageAttributes"]["onlyonce-quarantine"]["StringValue"])
    assert mark["cause"] == "mismatch"
    # Both digests, so that a person can tell which payload was first.
    assert before["fingerprint"] in mark["error"]
    assert json.loads(message["Body"])["amount"] == 500
    assert len(receiver.requests(f"/charge/{case}")) == 1
    assert shop.record("charge", case) == before


def test_fields_outside_the_fingerprint_may_differ(aws, worker_binary, jobs, receiver, case):
    narrowed = jobs.replace('[job."refund"]\n', '[job."refund"]\nfingerprint = ["case", "amount"]\n')
    with deployed(aws, packaged(worker_binary, narrowed), env={"CHARGES_TOKEN": "t"}) as shop:
        shop.send({"case": case, "amount": 5, "sent_at": 1}, job="refund", key=case)
        shop.wait_record("refund", case, "completed")
        shop.send({"case": case, "amount": 5, "sent_at": 2}, job="refund", key=case)
        shop.wait_drained()
        assert shop.dead(lambda message: True) == []

        shop.send({"case": case, "amount": 6, "sent_at": 1}, job="refund", key=case)
        shop.wait_dead(lambda message: json.loads(message["Body"])["amount"] == 6)
        shop.wait_drained()

    (request,) = receiver.requests(f"/refund/{case}")
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert sorted(request.body.decode().split("&")) == ["amount=5", f"case={case}", "sent_at=1"]


def test_two_jobs_with_one_key_both_run(shop, receiver, case):
    shop.send_together([("charge", case, {"case": case}), ("notify", case, {"case": case})])

    receiver.wait_for(f"/charge/{case}")
    (request,) = receiver.wait_for(f"/notify/{case}")
    charge = shop.wait_record("charge", case, "completed")
    notify = shop.wait_record("notify", case, "completed")
    shop.wait_drained()

    assert request.method == "PUT"
    assert charge["pk"] == record_id("charge", case)
    assert charge["pk"] != notify["pk"]


def test_the_key_at_the_provider_is_the_effects_own(shop, receiver, case):
    """Two operations never share a provider key, and it is not the producer's key."""
    shop.send_together([("charge", f"{case}-{n}", {"case": case, "n": n}) for n in range(2)])

    first, second = receiver.wait_for(f"/charge/{case}", count=2)
    shop.wait_drained()

    assert first.headers["idempotency-key"] != second.headers["idempotency-key"]
    assert case not in first.headers["idempotency-key"]
