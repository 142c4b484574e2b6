"""A user's own worker, with a job that panics."""

import json

import pytest

from harness.deployment import deployed, packaged, until


@pytest.fixture(scope="module")
def field(aws, field_binary):
    with deployed(aws, packaged(field_binary)) as deployment:
        yield deployment


def test_a_panic_fails_its_own_message_only(field, case):
    field.send_together([
        ("echo", f"{case}-1", {"n": 1}),
        ("explode", f"{case}-2", {"n": 2}),
        ("echo", f"{case}-3", {"n": 3}),
    ])

    for n in (1, 3):
        record = field.wait_record("echo", f"{case}-{n}", "completed")
        assert record["attempt"] == 1
        assert json.loads(record["output"]) == {"n": n}
    # Retryable, so it comes back, in the same process or a new one, and panics again.
    exploded = until(
        "the panic comes back",
        lambda: (record := field.record("explode", f"{case}-2")) and record["attempt"] >= 2 and record,
    )
    assert exploded["status"] in ("claimed", "released", "failed")
