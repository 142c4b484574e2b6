"""The policies of infra/iam, against what worker, relay, command and producer really ask AWS for.

No emulator refuses what a policy does not allow. So what each asks for is recorded on its way, and
must be what its policy says: all of it, and nothing beside it.
"""

import json
import os
import subprocess

import pytest
from conftest import HOST, ROOT
from harness.deployment import deployed, packaged, record_id, until
from harness.iam import granted, needed, statements
from harness.proxy import CountingProxy
from harness.relay import relayed
from harness.stock import Stock
from test_aws_effects import queue

# Whose calls go past the proxy (Lambda's own, for logs and the stream) or depend on what jobs.toml
# names.
OF_LAMBDA = {"Logs", "Stream"}
OF_JOBS = {"Secrets", "Rows", "Effects"}
# SQS and DynamoDB use a key on the caller's behalf.
OF_THE_KEY = {"Key"}

JOBS = """
[defaults]
retry = {{ policy = "none" }}

[job."echo"]
effect = "http"
guarantee = "keyed"
url = "http://{host}:{port}/echo/{{case}}"
key_window = "24h"
key_header = "Idempotency-Key"
body = "json"
timeout = "5s"
allow_hosts = ["{host}"]

[job."once"]
effect = "http"
guarantee = "at-most-once"
url = "http://{host}:{port}/once/{{case}}"
body = "json"
timeout = "5s"
allow_hosts = ["{host}"]
"""


@pytest.fixture
def second_proxy(aws):
    server = CountingProxy(aws.endpoint, HOST)
    yield server
    server.close()


def names_of(shop):
    return {
        table(shop.table): "TABLE",
        table(f"{shop.table}-outbox"): "TABLE-outbox",
        named(shop.queue_url): "QUEUE",
        named(shop.dlq_url): "DEAD_LETTER_QUEUE",
    }


def table(name):
    return "table", name


def named(url):
    return "queue", url.rsplit("/", 1)[-1]


def test_worker_and_relay_ask_for_what_their_policies_allow(
    aws, worker_binary, field_binary, receiver, proxy, second_proxy, tmp_path, case
):
    package = packaged(field_binary)
    with Stock(aws, f"stock-{case}") as stock, queue(aws) as polled, deployed(
        aws, package, endpoint=proxy.url, env={"STOCK_TABLE": stock.table}
    ) as shop, relayed(
        aws, shop, package, endpoint=second_proxy.url, env={"STOCK_TABLE": stock.table}
    ) as relay:
        stock.put(case, 100)
        order = {"order": case, "event": "echo", "sku": case, "quantity": 1}
        # The worker: done, alone and together, and again; tried again and given up; not known; and with an
        # event that the relay sends on.
        shop.send({}, job="echo", key=case)
        together = [("echo", f"{case}-{n}", {}) for n in range(10)]
        for _ in range(2):
            shop.send_together(together)
            shop.wait_drained()
        shop.send({}, job="explode", key=case)
        shop.send({}, job="nobody-knows", key=case)
        shop.send(order, job="order", key=case)
        # The relay: an event whose job stages the next, one that fails until it is given up, and a
        # unique message, whose job the worker ends; several together, and again.
        relay.put(f"{case}-next", f"{case}-next", "order", json.dumps({**order, "order": f"{case}-last"}))
        relay.put(f"{case}-bad", f"{case}-bad", "explode", "{}")
        relay.put(f"{case}-unique", "unique", "echo", "{}", message_key=f"{case}-unique", nonce=case, until=2**42)
        events = [(f"{case}-with-{n}", f"{case}-with-{n}", "echo", "{}") for n in range(10)]
        for _ in range(2):
            relay.put_together(events)
            relay.wait_empty()
        shop.wait_record("echo", case, "completed")
        shop.wait_record("explode", case, "failed")
        shop.wait_record("echo", f"{case}-unique", "completed")
        shop.wait_drained()
        until("the relay is done", lambda: relay.sweep() and not relay.rows())

        poll(worker_binary, receiver, proxy, shop, polled, tmp_path, case)
        names = names_of(shop) | {table(stock.table): "ROWS", named(polled): "QUEUE"}
        of_worker, of_relay = (needed(server.requests(), names) for server in (proxy, second_proxy))

    rows = {(resource, action) for resource, action in of_worker | of_relay if resource == "ROWS"}
    (of_rows,) = (statement for statement in statements("worker") if statement["Sid"] == "Rows")
    assert rows and {action for _, action in rows} <= set(of_rows["Action"])
    without = OF_LAMBDA | OF_JOBS | OF_THE_KEY
    assert of_worker - rows == granted("worker", without)
    assert of_relay - rows == granted("relay", without)


def poll(binary, receiver, proxy, shop, url, folder, case):
    """A worker outside Lambda does a job, and is told to stop."""
    (folder / "jobs.toml").write_text(JOBS.format(host=HOST, port=receiver.port))
    shop.aws.sqs.send_message(
        QueueUrl=url, MessageBody=json.dumps({"case": case}),
        MessageAttributes={
            name: {"DataType": "String", "StringValue": value}
            for name, value in {"job": "echo", "idempotency-key": f"{case}-polled"}.items()
        },
    )
    worker = subprocess.Popen(
        [binary], cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        env={**environment(proxy, shop), "ONLYONCE_QUEUE_URL": url},
    )
    try:
        proxy.wait_for(1, lambda call: call.operation.startswith("DeleteMessage"))
    finally:
        worker.terminate()
        assert worker.wait(30) == 0


def environment(proxy, shop):
    return {
        **os.environ,
        "AWS_ENDPOINT_URL": proxy.url,
        "ONLYONCE_STORE": f"dynamodb://{shop.table}",
        "ONLYONCE_QUEUE_URL": shop.queue_url,
        "ONLYONCE_DLQ_URL": shop.dlq_url,
        "ONLYONCE_JOBS": "jobs.toml",
    }


def test_the_command_and_a_producer_ask_for_what_their_policies_allow(
    aws, worker_binary, receiver, proxy, second_proxy, tmp_path, case
):
    jobs = JOBS.format(host=HOST, port=receiver.port)
    (tmp_path / "jobs.toml").write_text(jobs)
    keys = {name: f"{case}-{name}" for name in ("bad", "lost", "unknown", "dead", "new", "sent")}
    receiver.answer(f"/echo/{keys['bad']}", 404)
    receiver.answer(f"/echo/{keys['lost']}", 404)
    receiver.answer(f"/once/{keys['unknown']}", 500)
    made = f"{case}-made"
    with deployed(aws, packaged(worker_binary, jobs)) as shop:
        def run(*words, through=proxy, **env):
            command = subprocess.run(
                [ROOT / "target/debug/onlyonce", *words], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                env={**environment(through, shop), **env},
            )
            assert command.returncode == 0, f"{words}: {command.stdout}{command.stderr}"
            return command.stdout

        def file(name, *lines):
            (tmp_path / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
            return name

        message = lambda job, key: {"job": job, "idempotency-key": key, "body": {"case": key}}
        sent = file("sent", *(message("echo", keys[name]) for name in ("bad", "lost")), message("once", keys["unknown"]))
        run("send", sent)
        for name, status in (("bad", "failed"), ("lost", "failed")):
            shop.wait_record("echo", keys[name], status)
        shop.wait_record("once", keys["unknown"], "unknown")
        shop.wait_drained()

        # What happened is long ago: the verbs wait until nothing of it can be under way.
        for job, name in (("echo", "bad"), ("echo", "lost"), ("once", "unknown")):
            long_ago(shop, job, keys[name])
        run("inspect", "echo", keys["bad"])
        run("list", "failed")
        run("list", "completed", "--scan")
        letter = json.loads(run("--json", "dlq", "list").splitlines()[0])
        run("dlq", "show", letter["message_id"])
        for name in ("bad", "lost"):
            receiver.answer(f"/echo/{keys[name]}", 200)
        run("dlq", "replay", "--job", "echo", "--cause", "failed", "--yes")
        shop.wait_record("echo", keys["lost"], "completed")
        run("resolve", "once", keys["unknown"], "--not-done")
        died(shop, "echo", keys["lost"])
        run("release", "echo", keys["lost"])
        run("forget", "echo", keys["bad"], "--yes")
        receiver.answer(f"/echo/{keys['new']}", 404)
        shop.send({"case": keys["new"]}, job="echo", key=keys["new"])
        shop.wait_record("echo", keys["new"], "failed")
        run("replay", "echo", keys["new"], "--body", file("new", {"case": keys["new"]}))
        run("import", file("done", {"job": "echo", "idempotency-key": f"{case}-done"}))
        try:
            for _ in range(2):  # the second finds all of it
                run("setup", "--queue", made, ONLYONCE_STORE=f"dynamodb://{made}")
        finally:
            for name in (made, f"{made}-outbox"):
                aws.dynamodb.delete_table(TableName=name)
            for name in (made, f"{made}-dead"):
                aws.sqs.delete_queue(QueueUrl=aws.sqs.get_queue_url(QueueName=name)["QueueUrl"])

        run("send", file("produced", message("echo", keys["sent"])), through=second_proxy)
        shop.wait_record("echo", keys["sent"], "completed")
        names = names_of(shop) | {
            table(made): "TABLE",
            table(f"{made}-outbox"): "TABLE-outbox",
            named(made): "QUEUE",
            named(f"{made}-dead"): "DEAD_LETTER_QUEUE",
        }
        asked, produced = (needed(server.requests(), names) for server in (proxy, second_proxy))

    assert asked == granted("operator", OF_THE_KEY | of_operator("Doctor") | of_operator("Drill"))
    assert produced == granted("producer", OF_THE_KEY)


def test_a_drill_asks_for_what_the_operators_policy_allows(aws, worker_binary, receiver, proxy, tmp_path, case):
    jobs = JOBS.format(host=HOST, port=receiver.port)
    in_drill = {"ONLYONCE_DRILL": "1", "ONLYONCE_NAMESPACE": "drill"}
    # What writes to the ledger, brings a dead letter back, and resolves what is unknown.
    only = [part for name in ("redrive", "killed-at-most-once") for part in ("--only", name)]
    with deployed(aws, packaged(worker_binary, jobs), env=in_drill) as shop:
        others = shop.aws.sqs.send_message(QueueUrl=shop.dlq_url, MessageBody="another's")["MessageId"]
        drill = subprocess.run(
            [ROOT / "target/debug/onlyonce", "drill", "--queue-url", shop.queue_url, *only], cwd=tmp_path,
            capture_output=True, text=True, timeout=240, env=environment(proxy, shop),
        )
        assert drill.returncode == 0, f"{drill.stdout}{drill.stderr}"
        asked = needed(proxy.requests(), names_of(shop))
        assert [letter["MessageId"] for letter in shop.dead(lambda _: True)] == [others]
    of_others = OF_THE_KEY | of_operator("Doctor") | of_operator("Setup")
    own = granted("operator", {statement["Sid"] for statement in statements("operator")} - of_operator("Drill"))
    assert asked <= granted("operator", of_others)
    assert own <= asked


def test_the_operators_doctor_only_reads():
    for statement in statements("operator"):
        if statement["Sid"].startswith("Doctor"):
            for action in [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]:
                assert action.split(":")[1].startswith(("Get", "List", "Describe")), action


def of_operator(verb):
    """The operator's statements that are for one verb."""
    return {statement["Sid"] for statement in statements("operator") if statement["Sid"].startswith(verb)}


def long_ago(shop, job, key, **more):
    """Makes a record look as if all of it had been ten minutes earlier."""
    id = {"pk": {"S": record_id(job, key)}}
    item = shop.aws.dynamodb.get_item(TableName=shop.table, Key=id, ConsistentRead=True)["Item"]
    shop.aws.dynamodb.put_item(TableName=shop.table, Item={**earlier(item), **more})


def died(shop, job, key):
    """Makes a record look as if a worker had died over it."""
    long_ago(shop, job, key, status={"S": "claimed"})


def earlier(value):
    if isinstance(value, dict):
        if set(value) == {"N"} and int(value["N"]) > 10**12:
            return {"N": str(int(value["N"]) - 600_000)}
        return {name: earlier(inner) for name, inner in value.items()}
    return [earlier(inner) for inner in value] if isinstance(value, list) else value
