"""The effects that call AWS: what arrives, under which key, and what becomes of failures and kills."""

import json
import uuid
import zipfile
from contextlib import contextmanager
from io import BytesIO

import pytest
from conftest import HOST
from harness.deployment import arn, deployed, effect_key, packaged, until
from harness.forwarder import Answered
from test_poison import quarantine_mark

# A function that does as the receiver says: it tells it of each event, and fails as its answer demands.
FUNCTION = """\
import json
import urllib.error
import urllib.request


class Rejected(Exception):
    pass


class Terminal(Exception):
    pass


class RetryAfter(Exception):
    pass


SAYS = {{403: Rejected("declined"), 422: Terminal("no such order"), 429: RetryAfter("3")}}


def handle(event, context=None):
    url = f"http://{host}:{port}/function/{{event['payload']['case']}}"
    try:
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(event).encode())) as answer:
            return {{"told": answer.status}}
    except urllib.error.HTTPError as error:
        raise SAYS.get(error.code, ValueError("the receiver said no")) from None
"""

# MiniStack's own Python runtime calls every error Runtime.HandlerError. This one says its class, as AWS's does.
BOOTSTRAP = """\
#!/usr/bin/env python3
import json
import os
import urllib.request

from function import handle

API = f"http://{os.environ['AWS_LAMBDA_RUNTIME_API']}/2018-06-01/runtime/invocation"
while True:
    with urllib.request.urlopen(f"{API}/next") as next_event:
        invocation = next_event.headers["Lambda-Runtime-Aws-Request-Id"]
        event = json.load(next_event)
    try:
        answer, where = handle(event), "response"
    except Exception as error:
        answer, where = {"errorType": type(error).__name__, "errorMessage": str(error)}, "error"
    urllib.request.urlopen(urllib.request.Request(f"{API}/{invocation}/{where}", json.dumps(answer).encode()))
"""

DEFAULTS = """\
[defaults]
retry = { policy = "exponential", base = "1s", cap = "1s", attempts = 4 }
"""

FUNCTIONS = """\
[job."python"]
effect = "lambda"
function = "{python}"
guarantee = "keyed"
timeout = "5s"

[job."call"]
effect = "lambda"
function = "{own}"
guarantee = "keyed"
timeout = "5s"

[job."call-once"]
effect = "lambda"
function = "{own}"
guarantee = "at-most-once"
timeout = "5s"
"""

# Short, so that a killed attempt's lease is soon over: it ends with the invocation.
BRIEF = {"timeout": 4, "visibility": 4}


@pytest.fixture(scope="module")
def functions(aws, receiver):
    """The function, once with MiniStack's own Python and once with a runtime that names its errors."""
    code = {"function.py": FUNCTION.format(host=HOST, port=receiver.port)}
    with function(aws, "python3.12", "function.handle", code) as python:
        with function(aws, "provided.al2023", "bootstrap", {"bootstrap": BOOTSTRAP, **code}) as own:
            yield {"python": python, "own": own}


@pytest.fixture(scope="module")
def calling(aws, worker_binary, functions):
    package = packaged(worker_binary, DEFAULTS + FUNCTIONS.format(**functions))
    with deployed(aws, package, visibility=11) as shop:
        yield shop


def test_a_function_gets_the_event_once_and_its_answer_is_kept(calling, receiver, case):
    body = {"case": case, "amount": 5}
    calling.send_together([("python", case, body)] * 3)
    record = calling.wait_record("python", case, "completed")
    calling.send(body, job="python", key=case)
    calling.wait_drained()

    (request,) = receiver.requests(f"/function/{case}")
    key = effect_key("python", case, "lambda", 0)
    assert json.loads(request.body) == {
        "idempotency-key": key, "job": "python", "attempt": 1, "payload": body,
    }
    assert json.loads(record["effects"]["lambda"]["result"]) == {"answer": {"told": 200}}


@pytest.mark.parametrize("job", ["python", "call"])
def test_a_function_that_raises_is_invoked_again_under_the_same_key(calling, receiver, case, job):
    receiver.answer(f"/function/{case}", 500, 200)
    calling.send({"case": case}, job=job, key=case)
    calling.wait_record(job, case, "completed")
    calling.wait_drained()

    first, second = (json.loads(request.body) for request in receiver.requests(f"/function/{case}"))
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert first["idempotency-key"] == second["idempotency-key"] == effect_key(job, case, "lambda", 0)


@pytest.mark.parametrize("status, name", [(422, "Terminal: no such order"), (403, "Rejected: declined")])
@pytest.mark.parametrize("job", ["call", "call-once"])
def test_a_function_that_gives_up_is_quarantined(calling, receiver, case, job, status, name):
    receiver.answer(f"/function/{case}", status)
    calling.send({"case": case}, job=job, key=case)
    message = calling.wait_dead(lambda message: json.loads(message["Body"])["case"] == case)
    calling.wait_drained()

    mark = quarantine_mark(message)
    # Of an effect that must not run twice only a rejection says that it has not run.
    is_certain = job == "call" or status == 403
    assert calling.record(job, case)["status"] == ("failed" if is_certain else "unknown")
    assert name in mark["error"]
    assert len(receiver.requests(f"/function/{case}")) == 1


def test_a_function_may_say_how_long_to_wait(calling, receiver, case):
    receiver.answer(f"/function/{case}", 429, 200)
    calling.send({"case": case}, job="call", key=case)
    first, second = receiver.wait_for(f"/function/{case}", count=2)
    calling.wait_drained()

    # The job's own policy waits a second at most.
    assert second.at - first.at > 2.5


def test_a_function_that_is_not_there_is_told_by_name(aws, worker_binary, case):
    jobs = FUNCTIONS.format(python="no-such-function", own="no-such-function")
    with deployed(aws, packaged(worker_binary, jobs)) as shop:
        for job in ("call", "call-once"):
            shop.send({"case": case}, job=job, key=case)
            record = shop.wait_record(job, case, "failed")
            assert "no-such-function" in record["error"]
            assert "ResourceNotFoundException" in record["error"]
        shop.wait_drained()


def invokes(call):
    return call.path.endswith("/invocations")


@pytest.fixture
def proxied(aws, worker_binary, functions, proxy):
    package = packaged(worker_binary, DEFAULTS + FUNCTIONS.format(**functions))
    with deployed(aws, package, endpoint=proxy.url, visibility=11) as shop:
        yield shop


def test_an_answer_that_is_lost_is_unknown_where_nothing_may_happen_twice(proxied, proxy, receiver, case):
    with proxy.barrier(invokes) as barrier:
        proxied.send({"case": case}, job="call-once", key=case)
        held = barrier.wait()
        assert held.forward().status == 200
        held.drop()
        record = proxied.wait_record("call-once", case, "unknown")
    message = proxied.wait_dead(lambda message: json.loads(message["Body"])["case"] == case)
    proxied.wait_drained()

    assert "its answer was lost" in record["error"]
    assert quarantine_mark(message)["cause"] == "unknown"
    assert len(receiver.requests(f"/function/{case}")) == 1
    assert len(proxy.requests(invokes)) == 1, "the SDK has repeated it by itself"


def test_an_answer_that_is_lost_is_asked_for_again_where_the_key_is_known(proxied, proxy, receiver, case):
    with proxy.barrier(invokes) as barrier:
        proxied.send({"case": case}, job="call", key=case)
        held = barrier.wait()
        held.forward()
        held.drop()
        barrier.wait().release()
        proxied.wait_record("call", case, "completed")
    proxied.wait_drained()

    keys = [json.loads(request.body)["idempotency-key"] for request in receiver.requests(f"/function/{case}")]
    assert keys == [effect_key("call", case, "lambda", 0)] * 2


def test_a_throttle_has_done_nothing_and_is_tried_again_under_each_guarantee(proxied, proxy, receiver, case):
    name = [("x-amzn-errortype", "TooManyRequestsException"), ("content-type", "application/json")]
    throttle = Answered(429, name, b'{"Reason":"ConcurrentInvocationLimitExceeded"}')
    with proxy.barrier(invokes) as barrier:
        proxied.send({"case": case}, job="call-once", key=case)
        barrier.wait().answer_with(throttle)
        barrier.wait().release()
        record = proxied.wait_record("call-once", case, "completed")
    proxied.wait_drained()

    assert record["attempt"] == 2
    assert len(receiver.requests(f"/function/{case}")) == 1


def settles(call):
    """The write that ends an attempt."""
    return call.operation == "UpdateItem" and b'"completed"' in call.body


def killed_after_its_effect(shop, proxy, body, job, case, group=None):
    """Sends a message whose worker is killed when its effect has happened and is not recorded."""
    with proxy.barrier(settles) as barrier:
        shop.send(body, job=job, key=case, group=group)
        held = barrier.wait()
        shop.kill(held)
        held.drop()
    assert shop.record(job, case)["status"] == "claimed"
    record = shop.wait_record(job, case, "completed")
    shop.wait_drained()
    assert record["attempt"] == 2


def test_a_fifo_queue_holds_one_message_although_the_worker_is_killed(aws, worker_binary, proxy, case):
    with queue(aws, fifo=True) as url:
        jobs = f"""
            [job."ship"]
            effect = "sqs"
            queue_url = "{url}"
            group = "{{customer}}"
            guarantee = "keyed"
            """
        with deployed(aws, packaged(worker_binary, jobs), endpoint=proxy.url, **BRIEF) as shop:
            killed_after_its_effect(shop, proxy, {"customer": "c-7"}, "ship", case)
            sends = [call for call in proxy.requests(lambda call: call.operation == "SendMessage")]
        (message,) = taken(aws, url)

    assert len(sends) == 2
    assert message["Attributes"]["MessageDeduplicationId"] == effect_key("ship", case, "sqs", 0)
    assert message["Attributes"]["MessageGroupId"] == "c-7"
    assert json.loads(message["Body"]) == {"customer": "c-7"}


def test_the_next_worker_tells_copies_apart_by_the_key(aws, worker_binary, proxy, shop, receiver, case):
    """A standard queue remembers no key; who receives from it does."""
    jobs = f"""
        [job."relay"]
        effect = "sqs"
        queue_url = "{shop.queue_url}"
        job = "notify"
        guarantee = "keyed"
        deduplicated_by = "consumer"
        """
    with deployed(aws, packaged(worker_binary, jobs), endpoint=proxy.url, **BRIEF) as relay:
        killed_after_its_effect(relay, proxy, {"case": case}, "relay", case)
        sends = [call for call in proxy.requests(lambda call: call.operation == "SendMessage")]
    shop.wait_record("notify", effect_key("relay", case, "sqs", 0), "completed")
    shop.wait_drained()

    assert len(sends) == 2
    assert len(receiver.requests(f"/notify/{case}")) == 1


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_a_message_is_published_once(aws, worker_binary, case, fifo):
    guarantee = 'guarantee = "keyed"\ngroup = "{customer}"' if fifo else 'guarantee = "at-least-once"'
    with queue(aws, fifo=fifo) as url, topic(aws, url, fifo=fifo) as topic_arn:
        jobs = f'[job."tell"]\neffect = "sns"\ntopic_arn = "{topic_arn}"\njob = "next"\n{guarantee}'
        with deployed(aws, packaged(worker_binary, jobs)) as shop:
            shop.send_together([("tell", case, {"customer": "c-7"})] * 3)
            shop.wait_record("tell", case, "completed")
            shop.wait_drained()
        (message,) = taken(aws, url)

    key = effect_key("tell", case, "sns", 0)
    assert json.loads(message["Body"]) == {"customer": "c-7"}
    attributes = {name: value["StringValue"] for name, value in message["MessageAttributes"].items()}
    assert attributes == {"idempotency-key": key, "job": "next"}
    if fifo:
        assert message["Attributes"]["MessageGroupId"] == "c-7"


def test_an_event_is_put_once_and_carries_the_key(aws, worker_binary, case):
    with queue(aws) as url, bus(aws, url) as name:
        jobs = f"""
            [job."announce"]
            effect = "eventbridge"
            bus = "{name}"
            source = "shop.orders"
            detail_type = "OrderShipped"
            guarantee = "at-most-once"
            """
        with deployed(aws, packaged(worker_binary, jobs)) as shop:
            shop.send_together([("announce", case, {"order": 7})] * 3)
            shop.wait_record("announce", case, "completed")
            shop.wait_drained()
        (message,) = taken(aws, url)

    event = json.loads(message["Body"])
    assert (event["source"], event["detail-type"]) == ("shop.orders", "OrderShipped")
    key = effect_key("announce", case, "eventbridge", 0)
    assert event["detail"] == {"order": 7, "idempotency-key": key}


@contextmanager
def function(aws, runtime, handler, files):
    """A function of these files; its name."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o755 << 16
            archive.writestr(entry, text)
    name = f"oo-function-{uuid.uuid4().hex[:8]}"
    aws.functions.create_function(
        FunctionName=name, Runtime=runtime, Handler=handler, Code={"ZipFile": buffer.getvalue()},
        Role="arn:aws:iam::000000000000:role/function", Timeout=10,
    )
    aws.functions.get_waiter("function_active_v2").wait(FunctionName=name)
    try:
        yield name
    finally:
        aws.functions.delete_function(FunctionName=name)


@contextmanager
def queue(aws, fifo=False):
    suffix = ".fifo" if fifo else ""
    attributes = {"FifoQueue": "true"} if fifo else {}
    url = aws.sqs.create_queue(QueueName=f"oo-out-{uuid.uuid4().hex[:8]}{suffix}", Attributes=attributes)["QueueUrl"]
    try:
        yield url
    finally:
        aws.sqs.delete_queue(QueueUrl=url)


@contextmanager
def topic(aws, queue_url, fifo=False):
    """A topic that the queue gets every message of, as it was published."""
    suffix = ".fifo" if fifo else ""
    attributes = {"FifoTopic": "true"} if fifo else {}
    made = aws.topics.create_topic(Name=f"oo-{uuid.uuid4().hex[:8]}{suffix}", Attributes=attributes)["TopicArn"]
    aws.topics.subscribe(
        TopicArn=made, Protocol="sqs", Endpoint=arn(aws.sqs, queue_url), Attributes={"RawMessageDelivery": "true"},
    )
    try:
        yield made
    finally:
        aws.topics.delete_topic(TopicArn=made)


@contextmanager
def bus(aws, queue_url):
    """A bus with a rule that sends the shop's events to the queue."""
    name = f"oo-{uuid.uuid4().hex[:8]}"
    aws.events.create_event_bus(Name=name)
    pattern = json.dumps({"source": ["shop.orders"]})
    aws.events.put_rule(Name="shop", EventBusName=name, EventPattern=pattern)
    target = {"Id": "queue", "Arn": arn(aws.sqs, queue_url)}
    aws.events.put_targets(Rule="shop", EventBusName=name, Targets=[target])
    try:
        yield name
    finally:
        aws.events.remove_targets(Rule="shop", EventBusName=name, Ids=["queue"])
        aws.events.delete_rule(Name="shop", EventBusName=name)
        aws.events.delete_event_bus(Name=name)


def taken(aws, url):
    """All that is in a queue, once there is something."""
    found = []

    def receive():
        messages = aws.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1, AttributeNames=["All"],
            MessageAttributeNames=["All"],
        ).get("Messages", [])
        for message in messages:
            aws.sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        found.extend(messages)
        return messages

    until("a message", receive)
    while receive():
        pass
    return found
