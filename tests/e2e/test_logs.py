"""One line per outcome, and nothing in it that is the customer's."""

import json

from conftest import SECRET
from harness.deployment import record_id, until


def test_a_line_per_outcome_without_payload_secret_or_key(shop, receiver, case):
    private = f"iban-{case}"
    good, bad = f"key-good-{case}", f"key-bad-{case}"
    receiver.answer(f"/charge/{case}-bad", 400)
    shop.send_together([
        ("charge", good, {"case": case, "iban": private}),
        ("charge", bad, {"case": f"{case}-bad", "iban": private}),
    ])
    shop.wait_record("charge", good, "completed")
    shop.wait_dead(lambda message: f"{case}-bad" in message["Body"])
    shop.wait_drained()

    digests = {name: record_id("charge", name) for name in (good, bad)}
    outcomes = until("an outcome line for both", lambda: both(shop.log_lines(), digests))

    for name, line in outcomes.items():
        fields = flat(json.loads(line))
        assert fields["job"] == "charge"
        assert fields["token"] == 1
        assert fields["attempt"] == 1
        assert fields["outcome"]
    text = "\n".join(shop.log_lines())
    for private_text in (private, good, bad, SECRET, SECRET.split()[1]):
        assert private_text not in text


def both(lines, digests):
    found = {
        name: [line for line in lines if digest[:12] in line and "outcome" in line]
        for name, digest in digests.items()
    }
    if not all(found.values()):
        return None
    assert all(len(lines) == 1 for lines in found.values()), found
    return {name: lines[0] for name, lines in found.items()}


def flat(line):
    return {**line, **line.get("fields", {})}
