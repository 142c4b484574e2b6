"""What comes back from the dead-letter queue, by an operator's hand."""

from conftest import HOST
from harness.deployment import deployed, effect_key, packaged
from harness.redrive import redrive, wait_for_skew
from harness.stripe import TOKEN


def test_redrive_runs_once_duplicate_does_not(aws, package, receiver, case):
    receiver.answer(f"/charge/{case}", 404)
    with deployed(aws, package, env={"CHARGES_TOKEN": "t"}) as shop:
        body = {"case": case}
        shop.send_together([("charge", case, body)] * 2)
        failed = shop.wait_record("charge", case, "failed")
        # The second was sent before the failure: a stray copy of the message that failed.
        shop.wait_drained()
        failed = shop.record("charge", case)
        assert (failed["status"], failed["attempt"], failed["quarantine"]) == ("failed", 1, "sent")
        assert len(receiver.requests(f"/charge/{case}")) == 1

        receiver.answer(f"/charge/{case}", 200)
        wait_for_skew(failed)
        print("redriven by", redrive(shop, lambda message: True))
        dead = shop.dead(lambda message: True)
        completed = shop.wait_record("charge", case, "completed")
        shop.wait_drained()
        assert completed["token"] == failed["token"] + 1
        assert completed["message_id"] != failed["message_id"]
        assert len(receiver.requests(f"/charge/{case}")) == 2

        shop.send(body, job="charge", key=case)
        shop.wait_drained()
        assert shop.record("charge", case) == completed
        assert len(receiver.requests(f"/charge/{case}")) == 2
        assert shop.dead(lambda message: True) == dead


STRIPE_JOBS = """\
[defaults]
retry = {{ policy = "none" }}

[job."charge"]
effect = "http"
provider = "stripe"
guarantee = "keyed"
url = "http://{host}:{port}/v1/charges"
body = "form"
secret = {{ header = "Authorization", env = "CHARGES_TOKEN" }}
timeout = "2s"
allow_hosts = ["{host}"]
"""


def test_declined_card_redriven_gets_a_new_generation_timeout_does_not(
    aws, worker_binary, stripe, charging, case
):
    declined, late = f"{case}-declined", f"{case}-late"
    with deployed(
        aws, packaged(worker_binary, STRIPE_JOBS.format(host=HOST, port=charging.port)),
        env={"CHARGES_TOKEN": TOKEN},
    ) as shop:
        # The mock's own token for a card that is declined first, and charged then.
        order = {"amount": 4200, "currency": "eur", "source": "tok_chargeDeclined|tok_visa"}
        shop.send(order, job="charge", key=declined)
        refused = shop.wait_record("charge", declined, "failed")
        # The provider makes the charge, and its answer comes too late.
        with charging.barrier(lambda call: b"4300" in call.body) as barrier:
            shop.send({**order, "amount": 4300, "source": "tok_visa"}, job="charge", key=late)
            held = barrier.wait()
            assert held.forward().status == 200
            timed_out = shop.wait_record("charge", late, "failed")
            held.drop()
        shop.wait_drained()

        wait_for_skew(refused, timed_out)
        for amount in ("4200", "4300"):
            print("redriven by", redrive(shop, lambda message: amount in message["Body"]))
        shop.wait_record("charge", declined, "completed")
        shop.wait_record("charge", late, "completed")
        shop.wait_drained()

    keys = lambda amount: [
        call.headers["idempotency-key"] for call in charging.requests(lambda call: amount in call.body)
    ]
    key = lambda operation, generation: effect_key("charge", operation, "http", generation)
    assert keys(b"4200") == [key(declined, 0), key(declined, 1)]
    assert keys(b"4300") == [key(late, 0), key(late, 0)]
    assert len({call.body for call in charging.requests()}) == 2
    paid = sorted((charge["amount"], charge["paid"]) for charge in stripe.charges())
    assert paid == [(4200, False), (4200, True), (4300, True)]
