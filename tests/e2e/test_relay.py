"""Events from a job's commit to the next queue, by the packaged worker on the outbox's stream."""

import json
import uuid
from contextlib import contextmanager

import pytest
from conftest import HOST
from harness.deployment import deployed, digest_of, packaged, until
from harness.redrive import redrive, wait_for_skew
from harness.relay import Source, relayed
from harness.stock import Stock
from test_aws_effects import queue, taken
from test_poison import quarantine_mark

ORDERS, COPIES, STOCK = 50, 3, 1_000

TO_A_QUEUE = """
[job."order.placed"]
effect = "sqs"
guarantee = "at-least-once"
queue_url = "{url}"
job = "mail.receipt"
pass_key = true
"""

TO_A_SERVER = """
[defaults]
retry = {{ policy = "fixed", delay = "2s", attempts = 20 }}

[job."order.placed"]
effect = "http"
guarantee = "keyed"
url = "http://{host}:{port}/placed/{{order}}"
timeout = "2s"
allow_hosts = ["{host}"]
"""

# Of a killed relay the lease is soon over: it ends with the invocation.
BRIEF = 4


@contextmanager
def stocked(aws, field_binary, case, **more):
    """A shop whose orders take stock and tell of it, in one transaction."""
    with Stock(aws, f"stock-{case}") as stock:
        stock.put(case, STOCK)
        with deployed(aws, packaged(field_binary), env={"STOCK_TABLE": stock.table}, **more) as shop:
            yield shop, stock


def order(case, name, quantity=1):
    return {"order": name, "event": "order.placed", "sku": case, "quantity": quantity}


def text(message, name):
    return message["MessageAttributes"][name]["StringValue"]


def test_each_order_is_one_message_under_its_events_id(aws, worker_binary, field_binary, case):
    orders = {f"{case}-{n}": order(case, f"{case}-{n}", 1 + n % 3) for n in range(ORDERS)}
    with queue(aws) as url, stocked(aws, field_binary, case, max_receives=100) as (shop, stock):
        with relayed(aws, shop, packaged(worker_binary, TO_A_QUEUE.format(url=url))) as relay:
            for _ in range(COPIES):
                copies = [("order", key, body) for key, body in orders.items()]
                for start in range(0, ORDERS, 10):
                    shop.send_together(copies[start : start + 10])
            shop.wait_drained(120)
            relay.wait_empty()
            records = {key: shop.record("order", key) for key in orders}
            left = stock.available(case)
            dead = shop.dead(lambda message: True)
        messages = taken(aws, url)

    assert {record["status"] for record in records.values()} == {"completed"}
    assert left == STOCK - sum(body["quantity"] for body in orders.values())
    assert dead == []
    # One each: what the job has answered is its event's id, which is the key that the next one sees.
    sent = sorted((text(message, "idempotency-key"), json.loads(message["Body"])["order"]) for message in messages)
    assert sent == sorted((json.loads(record["output"]), key) for key, record in records.items())
    assert {text(message, "job") for message in messages} == {"mail.receipt"}


def test_an_event_that_fails_holds_up_its_own_order_key_alone(aws, worker_binary, field_binary, receiver, case):
    package = packaged(worker_binary, TO_A_SERVER.format(host=HOST, port=receiver.port))
    # Longer than one invocation has time for.
    receiver.answer(f"/placed/{case}-a", 503, 503, 503, 200)
    with stocked(aws, field_binary, case) as (shop, _), relayed(
        aws, shop, package, timeout=4, source=False
    ) as relay:
        for key, name, quantity in [("a-1", "a", 1), ("b-1", "b", 3), ("a-2", "a", 2)]:
            shop.send(order(case, f"{case}-{name}", quantity), job="order", key=f"{case}-{key}")
            shop.wait_record("order", f"{case}-{key}", "completed")
        source = Source(relay)
        rows, first = source.deliver()
        assert [json.loads(row["body"])["quantity"] for row in rows] == [1, 3, 2]
        assert first == 0, "the stream must come back to it"
        assert len(receiver.requests(f"/placed/{case}-b")) == 1
        assert {row["order_key"] for row in relay.rows()} == {f"{case}-a"}

        rounds = 1
        while first is not None:
            assert rounds < 10
            _, first = source.deliver()
            rounds += 1
        assert relay.rows() == []
        dead = shop.dead(lambda message: True)

    bodies = [json.loads(request.body)["quantity"] for request in receiver.requests(f"/placed/{case}-a")]
    assert bodies == [1, 1, 1, 1, 2]
    assert len(receiver.requests(f"/placed/{case}-b")) == 1
    assert rounds > 1 and dead == []


def test_what_cannot_be_sent_is_quarantined_and_goes_on_once_it_can_be(aws, worker_binary, case):
    with queue(aws) as url:
        missing = f"oo-late-{case}"
        late = TO_A_QUEUE.format(url=url.rsplit("/", 1)[0] + f"/{missing}").replace("order.placed", "order.paid")
        package = packaged(worker_binary, TO_A_QUEUE.format(url=url) + late)
        with deployed(aws, package) as shop, relayed(aws, shop, package) as relay:
            for event in ("order.paid", "order.unheard", "order.placed"):
                relay.put(case, f"{case}-{event}", event, json.dumps({"event": event}))
            dead = {
                event: shop.wait_dead(lambda message: text(message, "job") == event)
                for event in ("order.paid", "order.unheard")
            }
            relay.wait_empty()
            # Those before it are out of its way.
            (sent,) = taken(aws, url)
            assert text(sent, "idempotency-key") == f"{case}-order.placed"

            for event, cause, why in [
                ("order.paid", "failed", "make it, then redrive"), ("order.unheard", "undecodable", "order.unheard")
            ]:
                mark = quarantine_mark(dead[event])
                assert mark["cause"] == cause and why in mark["error"]
                assert json.loads(dead[event]["Body"]) == {"event": event}

            made = aws.sqs.create_queue(QueueName=missing)["QueueUrl"]
            try:
                wait_for_skew(shop.record("order.paid", f"{case}-order.paid"))
                redrive(shop, lambda message: text(message, "job") == "order.paid")
                (paid,) = taken(aws, made)
            finally:
                aws.sqs.delete_queue(QueueUrl=made)
            shop.wait_drained()

    assert text(paid, "idempotency-key") == f"{case}-order.paid"
    assert json.loads(paid["Body"]) == {"event": "order.paid"}


def test_a_sweep_sends_what_the_stream_has_missed(aws, worker_binary, field_binary, case):
    with queue(aws) as url, deployed(aws, packaged(field_binary)) as shop, relayed(
        aws, shop, packaged(worker_binary, TO_A_QUEUE.format(url=url)), source=False
    ) as relay:
        relay.put(case, f"{case}-missed", "order.placed", '{"n":1}', age=300)
        relay.put(case, f"{case}-fresh", "order.placed", '{"n":2}')
        swept = relay.sweep()
        assert (swept["sent"], swept["left"]) == (1, 0)
        assert 300 <= swept["oldest_s"] < 400
        assert [row["event_id"] for row in relay.rows()] == [f"{case}-fresh"], "that is the stream's"
        swept = relay.sweep()
        assert swept == {"sent": 0, "left": 0, "oldest_s": 0}
        (message,) = taken(aws, url)

    assert text(message, "idempotency-key") == f"{case}-missed"
    assert json.loads(message["Body"]) == {"n": 1}


def settles(call):
    """The write that ends the attempt of an event's job."""
    return call.operation == "UpdateItem" and b'"completed"' in call.body


def removes(call):
    """The removal of an event's row."""
    return call.operation == "DeleteItem"


RECEIPT = """
[job."mail.receipt"]
effect = "http"
guarantee = "keyed"
url = "http://{host}:{port}/receipt/{{order}}"
timeout = "2s"
allow_hosts = ["{host}"]
"""


@pytest.mark.parametrize("writes, sends", [(settles, 2), (removes, 1)], ids=["not-recorded", "not-removed"])
def test_a_relay_killed_after_sending_is_one_effect_in_the_end(
    aws, worker_binary, proxy, receiver, case, writes, sends
):
    receipts = packaged(worker_binary, RECEIPT.format(host=HOST, port=receiver.port))
    with deployed(aws, receipts) as shop:
        package = packaged(worker_binary, TO_A_QUEUE.format(url=shop.queue_url))
        with relayed(aws, shop, package, endpoint=proxy.url, timeout=BRIEF) as relay:
            with proxy.barrier(writes) as barrier:
                relay.put(case, case, "order.placed", json.dumps({"order": case}), age=300)
                held = barrier.wait()
                shop.kill(held)
                held.drop()
            assert held.call.status is None, "the write has reached the store"
            assert [row["event_id"] for row in relay.rows()] == [case]
            # The stream brings it again at once; to a sweep it is old enough, too.
            until("the event is gone", lambda: relay.sweep()["left"] == 0 and not relay.rows())
            sent = proxy.requests(lambda call: call.operation == "SendMessage")
            shop.wait_record("mail.receipt", case, "completed")
            shop.wait_drained()
            event = shop.record("order.placed", case)
            dead = shop.dead(lambda message: True)

    assert len(sent) == sends
    assert (event["status"], event["attempt"]) == ("completed", sends)
    (receipt,) = receiver.requests(f"/receipt/{case}")
    assert json.loads(receipt.body) == {"order": case}
    assert dead == []


def test_a_unique_message_holds_its_place_until_its_job_has_ended(aws, worker_binary, receiver, case):
    jobs = RECEIPT.format(host=HOST, port=receiver.port)
    row = f"unique-{digest_of('onlyonce/1/unique', 'default', 'mail.receipt', case).hexdigest()}"
    # The first answer makes it wait: the row must outlast it.
    receiver.answer(f"/receipt/{case}", 503, 200)
    with deployed(aws, packaged(worker_binary, jobs)) as shop, relayed(
        aws, shop, packaged(worker_binary, jobs)
    ) as relay:
        for key in (f"{case}-1", f"{case}-2"):
            relay.put(
                row, "unique", "mail.receipt", json.dumps({"order": case}),
                message_key=key, nonce=uuid.uuid4().hex, until=2**42,
            )
            if key.endswith("-1"):
                receiver.wait_for(f"/receipt/{case}")
                (held,) = until("its row is marked", lambda: [r for r in relay.rows() if "sent_at" in r])
                assert held["message_key"] == key
            shop.wait_record("mail.receipt", key, "completed")
            relay.wait_empty()
        shop.wait_drained()

    assert len(receiver.requests(f"/receipt/{case}")) == 3
