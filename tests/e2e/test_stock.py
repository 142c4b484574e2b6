"""Stock under duplicates and kills: what is staged with the completion happens exactly once."""

import pytest
from harness.deployment import deployed, packaged
from harness.stock import Stock

MESSAGES, COPIES, DEATHS = 50, 4, 24
STOCK = 1_000


@pytest.mark.parametrize("job", ["reserve", "reserve-claimed"])
def test_stock_is_decremented_once_under_duplicates_and_kills(aws, field_binary, proxy, case, job):
    orders = {f"{case}-{n}": {"sku": case, "quantity": 1 + n % 3} for n in range(MESSAGES)}
    with Stock(aws, f"stock-{case}") as stock, deployed(
        aws, packaged(field_binary), endpoint=proxy.url, env={"STOCK_TABLE": stock.table},
        # Small batches, so that many processes are at work, and a time that is soon over.
        batch=2, timeout=6, visibility=6, max_receives=1000,
    ) as shop:
        stock.put(case, STOCK)
        takes_stock = lambda call: call.operation == "TransactWriteItems" and case.encode() in call.body
        with proxy.barrier(takes_stock) as barrier:
            for _ in range(COPIES):
                copies = [(job, key, order) for key, order in orders.items()]
                for start in range(0, MESSAGES, 10):
                    shop.send_together(copies[start : start + 10])
            unseen, seen = kill_by_turns(shop, barrier)
        # Long only where an event source runs one batch at a time.
        shop.wait_drained(240)
        records = [shop.record(job, key) for key in orders]
        left = stock.available(case)
        dead = shop.dead(lambda message: True)

    assert [record["status"] for record in records] == ["completed"] * MESSAGES
    assert left == STOCK - sum(order["quantity"] for order in orders.values())
    assert dead == []
    assert len(unseen) >= 10 and len(seen) >= 10
    # Those that the store had answered well before their worker died are why this is no formality.
    assert seen.count(200) >= 5


def kill_by_turns(shop, barrier):
    """Kills workers that await the answer to their transaction: by turns before the store has seen
    it, and after. Returns those killed before, and what the store had answered to the others."""
    unseen, seen = [], {}
    while len(unseen) + len(seen) < DEATHS:
        held = barrier.wait()
        if held.pid is None or held.pid in unseen or held.pid in seen:
            # Of the batch that a worker was killed with: the same happens to it.
            if held.pid in seen:
                held.forward()
        elif len(seen) < len(unseen):
            seen[held.pid] = held.forward().status
            shop.kill(held)
        else:
            shop.kill(held)
            assert held.call.status is None
            unseen.append(held.pid)
        held.drop()
    return unseen, list(seen.values())
