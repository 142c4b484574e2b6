"""Stock under duplicates and kills: what is staged with the completion happens exactly once."""

from harness.deployment import deployed, packaged
from harness.stock import Stock

MESSAGES, COPIES, DEATHS = 50, 4, 24
STOCK = 1_000


def test_stock_is_decremented_once_under_duplicates_and_kills(aws, field_binary, proxy, case):
    orders = {f"{case}-{n}": {"sku": case, "quantity": 1 + n % 3} for n in range(MESSAGES)}
    with Stock(aws, f"stock-{case}") as stock, deployed(
        aws, packaged(field_binary), endpoint=proxy.url, env={"STOCK_TABLE": stock.table},
        # Small batches, so that many processes are at work, and a lease that is soon over.
        batch=2, timeout=4, visibility=4, max_receives=1000,
    ) as shop:
        stock.put(case, STOCK)
        takes_stock = lambda call: call.operation == "TransactWriteItems" and case.encode() in call.body
        with proxy.barrier(takes_stock) as barrier:
            for _ in range(COPIES):
                copies = [("reserve", key, order) for key, order in orders.items()]
                for start in range(0, MESSAGES, 10):
                    shop.send_together(copies[start : start + 10])
            unseen, landed = kill_by_turns(shop, barrier)
        shop.wait_drained(60)
        records = [shop.record("reserve", key) for key in orders]
        left = stock.available(case)
        dead = shop.dead(lambda message: True)

    assert [record["status"] for record in records] == ["completed"] * MESSAGES
    assert left == STOCK - sum(order["quantity"] for order in orders.values())
    assert dead == []
    assert unseen >= 10 and landed >= 5


def kill_by_turns(shop, barrier):
    """Kills workers that await the answer to their transaction: by turns before the store has seen
    it, and after. Returns how many had not been seen, and how many had landed."""
    killed = {}  # process -> whether the store has seen its transactions
    unseen = landed = 0
    while len(killed) < DEATHS:
        held = barrier.wait()
        if held.pid is None or held.pid in killed:
            # Of the batch that a worker was killed with: the same happens to it.
            if killed.get(held.pid):
                held.forward()
            held.drop()
            continue
        is_seen = len(killed) % 2 == 1
        answer = held.forward() if is_seen else None
        shop.kill(held)
        killed[held.pid] = is_seen
        if is_seen:
            landed += answer.status == 200
        else:
            assert held.call.status is None
            unseen += 1
        held.drop()
    return unseen, landed
