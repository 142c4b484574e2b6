"""What fails comes back when it is worth it, and is given up where it is not."""

import time

from harness.deployment import record_id, until
from test_poison import quarantine_mark

SKEW_MS = 5_000


def test_a_server_error_is_retried_under_the_same_key(shop, receiver, case):
    receiver.answer(f"/charge/{case}", 500, 200)
    shop.send({"case": case}, job="charge", key=case)

    first, second = receiver.wait_for(f"/charge/{case}", count=2)
    record = shop.wait_record("charge", case, "completed")
    shop.wait_drained()

    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.body == second.body
    assert record["attempt"] == 2
    assert record["token"] == 2


def test_retry_after_is_honoured(shop, receiver, case):
    receiver.answer(f"/charge/{case}", 429, 200, headers={"Retry-After": "3"})
    shop.send({"case": case}, job="charge", key=case)

    first, second = receiver.wait_for(f"/charge/{case}", count=2)
    shop.wait_record("charge", case, "completed")
    shop.wait_drained()

    # The policy alone would be back within a second.
    assert second.at - first.at >= 2.9


def test_a_client_error_is_terminal(shop, receiver, case):
    receiver.answer(f"/charge/{case}", 422)
    shop.send({"case": case}, job="charge", key=case)

    message = shop.wait_dead(lambda message: case in message["Body"])
    shop.wait_drained()
    record = shop.record("charge", case)
    mark = quarantine_mark(message)

    assert record["status"] == "failed"
    assert record["quarantine"] == "sent"
    assert record["parked"]
    assert "422" in record["error"]
    assert mark["job"] == "charge"
    assert mark["key"] == record_id("charge", case)
    assert mark["token"] == record["token"]
    assert "422" in mark["error"]
    assert len(receiver.requests(f"/charge/{case}")) == 1


def test_a_spent_budget_is_quarantined(shop, receiver, case):
    receiver.answer(f"/fragile/{case}", 503)
    shop.send({"case": case}, job="fragile", key=case)

    message = shop.wait_dead(lambda message: case in message["Body"])
    shop.wait_drained()
    record = shop.record("fragile", case)

    assert record["status"] == "failed"
    assert record["attempt"] == 2
    assert len(receiver.requests(f"/fragile/{case}")) == 2
    assert quarantine_mark(message)["cause"]


def test_a_message_sent_again_from_the_dead_letters_runs_once_more(shop, receiver, case):
    """A redrive has a new message id and the old key; the failed key opens for it, once."""
    receiver.answer(f"/charge/{case}", 400)
    first_id = shop.send({"case": case}, job="charge", key=case)
    message = shop.wait_dead(lambda message: case in message["Body"])
    shop.wait_drained()
    failed = shop.record("charge", case)
    assert failed["status"] == "failed"

    receiver.answer(f"/charge/{case}", 200)
    # A copy of the message that failed could be this young; only one sent later opens the key.
    until("the skew is over", lambda: time.time() * 1000 > failed["updated_at"] + SKEW_MS, every=0.1)
    assert resend(shop, message) != first_id

    completed = shop.wait_record("charge", case, "completed")
    shop.wait_drained()
    assert completed["token"] > failed["token"]
    assert len(receiver.requests(f"/charge/{case}")) == 2

    resend(shop, message)
    shop.wait_drained()
    assert len(receiver.requests(f"/charge/{case}")) == 2
    assert shop.record("charge", case) == completed


def resend(shop, message):
    """As an operator's redrive does: body and attributes as they lie there, the mark included."""
    return shop.aws.sqs.send_message(
        QueueUrl=shop.queue_url,
        MessageBody=message["Body"],
        MessageAttributes={
            name: {"DataType": value["DataType"], "StringValue": value["StringValue"]}
            for name, value in message["MessageAttributes"].items()
        },
    )["MessageId"]
