"""A message that cannot be understood goes to the dead-letter queue; its neighbours run."""

import json
import time

import pytest

POISON = {
    "no-key": (dict(job="charge"), '{"case":"%s"}', "key"),
    "no-job": (dict(key="k-%s"), '{"case":"%s"}', "job"),
    "unknown-job": (dict(job="no.such.job", key="k-%s"), '{"case":"%s"}', "no.such.job"),
    "not-json": (dict(job="charge", key="k-%s"), "%s is not JSON", "JSON"),
}


@pytest.mark.parametrize("kind", POISON)
def test_poison_is_quarantined_with_its_reason(shop, receiver, case, kind):
    names, body, reason = POISON[kind]
    names = {name: value.replace("%s", case) for name, value in names.items()}
    body = body.replace("%s", case)
    neighbour = f"{case}-neighbour"
    before = int(time.time() * 1000)

    shop.send(body, **names)
    shop.send({"case": neighbour}, job="charge", key=neighbour)

    receiver.wait_for(f"/charge/{neighbour}")
    shop.wait_record("charge", neighbour, "completed")
    message = shop.wait_dead(lambda message: case in message["Body"] and neighbour not in message["Body"])
    shop.wait_drained()

    mark = quarantine_mark(message)
    assert mark["cause"], mark
    assert reason.lower() in mark["error"].lower(), mark
    assert before <= mark["at"] <= int(time.time() * 1000) + 1000, mark
    assert len(mark["error"]) <= 1024
    # What the producer said travels along, so that a repaired message can be sent again as it is.
    for name, attribute in (("job", "job"), ("key", "idempotency-key")):
        if name in names:
            assert message["MessageAttributes"][attribute]["StringValue"] == names[name]
    assert receiver.requests(f"/charge/{case}") == []


def test_keyless_messages_share_no_record(shop, case):
    for n in range(2):
        shop.send({"case": f"{case}-{n}"}, job="charge")

    for n in range(2):
        shop.wait_dead(lambda message: f"{case}-{n}" in message["Body"])
    shop.wait_drained()

    assert shop.record("charge", "") is None


def quarantine_mark(message):
    return json.loads(message["MessageAttributes"]["onlyonce-quarantine"]["StringValue"])
