"""A worker that is killed between an effect and its record. The kills are real, and so is the provider."""

import json

from conftest import HOST
from harness.deployment import deployed, packaged
from harness.stripe import TOKEN
from test_poison import quarantine_mark

JOBS = """\
[job."charge"]
effect = "http"
guarantee = "keyed"
url = "http://{host}:{port}/v1/charges"
key_window = "24h"
body = "form"
secret = {{ header = "Authorization", env = "CHARGES_TOKEN" }}
timeout = "3s"
allow_hosts = ["{host}"]
"""

ORDER = {"amount": 4200, "currency": "eur", "source": "tok_visa"}

SKEW = 5

# Short, so that a killed attempt's lease is soon over: it ends with the invocation.
BRIEF = {"timeout": 4, "visibility": 4}


def settles(call):
    """The write that ends an attempt."""
    return call.operation in ("UpdateItem", "TransactWriteItems") and b'"completed"' in call.body


def test_charge_survives_sigkill_between_effect_and_record(aws, worker_binary, proxy, stripe, charging, case):
    package = packaged(worker_binary, JOBS.format(host=HOST, port=charging.port))
    with deployed(aws, package, endpoint=proxy.url, env={"CHARGES_TOKEN": TOKEN}, **BRIEF) as shop:
        with proxy.barrier(settles) as barrier:
            shop.send(ORDER, job="charge", key=case)
            held = barrier.wait()
            charging.wait_for(1)
            shop.kill(held)
            held.drop()
        assert held.call.status is None, "the record's write has reached the store"
        assert shop.record("charge", case)["status"] == "claimed"
        assert len(stripe.charges()) == 1

        record = shop.wait_record("charge", case, "completed")
        shop.wait_drained()
        dead = shop.dead(lambda message: True)

    first, second = charging.requests()
    assert first.headers["idempotency-key"] == second.headers["idempotency-key"]
    assert first.body == second.body
    # Nobody could know that the first was dead: it was believed until its lease and the skew were over.
    assert second.at - first.at > SKEW
    (charge,) = stripe.charges()
    assert (charge["amount"], charge["currency"], charge["paid"]) == (4200, "eur", True)
    # What the provider said of the first request is what the second one's attempt has kept.
    answer = json.loads(record["effects"]["http"]["result"])
    assert json.loads(answer["body"])["id"] == charge["id"]
    assert (record["attempt"], record["token"]) == (2, 2)
    assert dead == []


def parks_after_sigkill(aws, package, proxy, charging, case, env):
    with deployed(aws, package, endpoint=proxy.url, env=env, **BRIEF) as shop:
        with proxy.barrier(settles) as barrier:
            shop.send(ORDER, job="charge-once", key=case)
            held = barrier.wait()
            charging.wait_for(1)
            shop.kill(held)
            held.drop()
        assert held.call.status is None, "the record's write has reached the store"
        assert shop.record("charge-once", case)["status"] == "claimed"

        message = shop.wait_dead(lambda message: True)
        shop.wait_drained()
        parked = shop.record("charge-once", case)
        mark = quarantine_mark(message)
        assert (parked["status"], parked["quarantine"]) == ("unknown", "sent")
        assert parked["parked"]
        assert "expires_at" not in parked
        assert mark["cause"] == "unknown"
        assert (mark["job"], mark["key"]) == ("charge-once", parked["pk"])
        assert json.loads(message["Body"]) == ORDER

        # Nothing brings it back by itself: neither a copy nor the dead message sent again.
        shop.send(ORDER, job="charge-once", key=case)
        shop.wait_dead(lambda other: other["MessageId"] != message["MessageId"])
        shop.wait_drained()
        after = shop.record("charge-once", case)

    assert {name: after[name] for name in ("status", "token", "attempt", "effects")} == {
        name: parked[name] for name in ("status", "token", "attempt", "effects")
    }
    assert len(charging.requests()) == 1


def test_at_most_once_parks_after_sigkill(aws, field_binary, proxy, charging, case):
    env = {"CHARGES_URL": f"{charging.url}/v1/charges", "CHARGES_TOKEN": TOKEN}
    parks_after_sigkill(aws, packaged(field_binary), proxy, charging, case, env)


def test_at_most_once_of_the_jobs_file_parks_after_sigkill(aws, worker_binary, proxy, charging, case):
    jobs = JOBS.replace('"charge"', '"charge-once"').replace('"keyed"', '"at-most-once"')
    jobs = jobs.replace('key_window = "24h"\n', "").format(host=HOST, port=charging.port)
    env = {"CHARGES_TOKEN": TOKEN}
    parks_after_sigkill(aws, packaged(worker_binary, jobs), proxy, charging, case, env)
