"""What one message costs in DynamoDB calls, counted between the real worker and the store."""

from harness.deployment import deployed, packaged
from harness.stock import Stock
from harness.stripe import TOKEN


def counted(shop, proxy, job, key, body):
    """The DynamoDB calls of one message, until it is gone."""
    proxy.reset()
    shop.send(body, job=job, key=key)
    record = shop.wait_record(job, key, "completed")
    shop.wait_drained()
    assert record["attempt"] == 1
    return proxy.calls()


def test_a_lone_message_costs_two_writes_and_a_duplicate_one(aws, package, proxy, receiver, case):
    with deployed(aws, package, endpoint=proxy.url, env={"CHARGES_TOKEN": "t"}) as shop:
        # The first message starts the process, which may warm its connection up.
        counted(shop, proxy, "charge", f"{case}-warm", {"case": f"{case}-warm"})

        assert counted(shop, proxy, "charge", case, {"case": case}) == {"PutItem": 1, "UpdateItem": 1}
        assert counted(shop, proxy, "charge", case, {"case": case}) == {"PutItem": 1}
    assert len(receiver.requests(f"/charge/{case}")) == 1


def test_each_class_of_effect_costs_what_it_says(aws, field_binary, proxy, charging, case):
    goods = {"sku": case, "quantity": 3}
    order = {"amount": 4200, "currency": "eur", "source": "tok_visa"}
    with Stock(aws, f"stock-{case}") as stock, deployed(
        aws, packaged(field_binary), endpoint=proxy.url,
        env={
            "STOCK_TABLE": stock.table,
            "CHARGES_URL": f"{charging.url}/v1/charges",
            "CHARGES_TOKEN": TOKEN,
        },
    ) as shop:
        stock.put(case, 10)
        cost = lambda job, body: counted(shop, proxy, job, f"{case}-{job}", body)
        cost("echo", {})  # starts the process
        duplicate = {"PutItem": 1}

        # n keyed effects: n + 1 writes.
        assert cost("three-steps", {}) == {"PutItem": 1, "UpdateItem": 3}
        assert cost("three-steps", {}) == duplicate
        # At most once: one more before.
        assert cost("charge-once", order) == {"PutItem": 1, "UpdateItem": 2}
        assert cost("charge-once", order) == duplicate
        assert len(charging.requests()) == 1
        # Staged writes go with the completion.
        assert cost("reserve-claimed", goods) == {"PutItem": 1, "TransactWriteItems": 1}
        assert cost("reserve-claimed", goods) == duplicate
        assert stock.available(case) == 7


def test_a_fused_job_costs_one_transaction_and_nothing_else(aws, field_binary, proxy, case):
    goods = {"sku": case, "quantity": 3}
    with Stock(aws, f"stock-{case}") as stock, deployed(
        aws, packaged(field_binary), endpoint=proxy.url, env={"STOCK_TABLE": stock.table}
    ) as shop:
        stock.put(case, 10)
        counted(shop, proxy, "echo", case, {})  # starts the process

        assert counted(shop, proxy, "reserve", case, goods) == {"TransactWriteItems": 1}
        # Of a duplicate, too: it loses its condition.
        assert counted(shop, proxy, "reserve", case, goods) == {"TransactWriteItems": 1}
        assert stock.available(case) == 7
