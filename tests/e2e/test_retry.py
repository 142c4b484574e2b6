"""What fails comes back when it is worth it, and is given up where it is not."""

from harness.deployment import deployed, record_id
from harness.redrive import resend, wait_for_skew
from test_poison import quarantine_mark


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
    wait_for_skew(failed)
    assert resend(shop, message) != first_id

    completed = shop.wait_record("charge", case, "completed")
    shop.wait_drained()
    assert completed["token"] > failed["token"]
    assert len(receiver.requests(f"/charge/{case}")) == 2

    resend(shop, message)
    shop.wait_drained()
    assert len(receiver.requests(f"/charge/{case}")) == 2
    assert shop.record("charge", case) == completed


def test_a_delay_is_a_change_of_visibility_and_nothing_is_sent(aws, package, proxy, receiver, case):
    """Lambda stops a message that its function sends to its own queue, after 16 such hops."""
    receiver.answer(f"/charge/{case}", 503, 503, 503, 200)
    with deployed(aws, package, endpoint=proxy.url, env={"CHARGES_TOKEN": "t"}) as shop:
        sent = shop.send({"case": case}, job="charge", key=case)
        record = shop.wait_record("charge", case, "completed")
        shop.wait_drained()

    asked = proxy.calls("AmazonSQS")
    assert asked.pop("ChangeMessageVisibilityBatch") == 3
    assert set(asked) <= {"GetQueueUrl"}
    # The same message all along.
    assert (record["message_id"], record["attempt"]) == (sent, 4)
