"""What one message costs in DynamoDB calls, counted between the real worker and the store."""

import pytest
from conftest import HOST
from harness.deployment import deployed
from harness.proxy import CountingProxy


@pytest.fixture
def counted(aws, package):
    proxy = CountingProxy(aws.endpoint, HOST)
    with deployed(aws, package, endpoint=proxy.url, env={"CHARGES_TOKEN": "t"}) as deployment:
        yield deployment, proxy
    proxy.close()


def test_a_lone_message_costs_two_writes_and_a_duplicate_one(counted, receiver, case):
    shop, proxy = counted
    # The first message starts the process, which may warm its connection up.
    shop.send({"case": f"{case}-warm"}, job="charge", key=f"{case}-warm")
    shop.wait_record("charge", f"{case}-warm", "completed")
    shop.wait_drained()

    proxy.reset()
    shop.send({"case": case}, job="charge", key=case)
    shop.wait_record("charge", case, "completed")
    shop.wait_drained()
    assert proxy.calls() == {"PutItem": 1, "UpdateItem": 1}

    proxy.reset()
    shop.send({"case": case}, job="charge", key=case)
    shop.wait_drained()
    assert proxy.calls() == {"PutItem": 1}
    assert len(receiver.requests(f"/charge/{case}")) == 1
