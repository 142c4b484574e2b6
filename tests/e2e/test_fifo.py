"""A FIFO queue: each group in order, and no further than its first failure."""

import json

import pytest

from harness.deployment import deployed


@pytest.fixture(scope="module")
def line(aws, package):
    with deployed(aws, package, fifo=True, visibility=11, env={"CHARGES_TOKEN": "t"}) as deployment:
        yield deployment


def test_a_group_waits_for_its_failure_and_others_go_on(line, receiver, case):
    receiver.answer(f"/notify/{case}-a2", 503, 200)
    names = [("a", 1), ("a", 2), ("b", 1), ("a", 3), ("b", 2), ("b", 3)]
    line.send_together([
        ("notify", f"{case}-{group}{n}", {"case": f"{case}-{group}{n}"}, f"{case}-{group}")
        for group, n in names
    ])

    arrivals = {}
    for group, n in names:
        count = 2 if (group, n) == ("a", 2) else 1
        arrivals[f"{group}{n}"] = receiver.wait_for(f"/notify/{case}-{group}{n}", count=count, timeout=60)
    line.wait_drained()

    assert arrivals["a1"][0].at < arrivals["a2"][0].at
    assert arrivals["a2"][1].at < arrivals["a3"][0].at, "a3 ran before a2 had succeeded"
    assert arrivals["b1"][0].at < arrivals["b2"][0].at < arrivals["b3"][0].at
    # Group b did not wait for group a's retry.
    assert arrivals["b3"][0].at < arrivals["a2"][1].at
    for group, n in names:
        count = 2 if (group, n) == ("a", 2) else 1
        assert len(receiver.requests(f"/notify/{case}-{group}{n}")) == count
        assert line.record("notify", f"{case}-{group}{n}")["status"] == "completed"


def test_a_failed_group_runs_on_in_the_next_batch(line, receiver, case):
    """The failure is not remembered by the warm process."""
    receiver.answer(f"/notify/{case}-1", 500, 200)
    line.send({"case": f"{case}-1"}, job="notify", key=f"{case}-1", group=case)
    receiver.wait_for(f"/notify/{case}-1", count=2)
    line.send({"case": f"{case}-2"}, job="notify", key=f"{case}-2", group=case)
    receiver.wait_for(f"/notify/{case}-2")
    line.wait_drained()


def test_a_quarantined_message_keeps_its_group(line, receiver, case):
    receiver.answer(f"/charge/{case}", 400)
    line.send({"case": case}, job="charge", key=case, group=f"group-{case}")
    line.send({"case": f"{case}-next"}, job="charge", key=f"{case}-next", group=f"group-{case}")

    message = line.wait_dead(lambda message: json.loads(message["Body"])["case"] == case)
    receiver.wait_for(f"/charge/{case}-next")
    line.wait_drained()

    assert message["Attributes"]["MessageGroupId"] == f"group-{case}"
