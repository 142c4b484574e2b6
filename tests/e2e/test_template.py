"""template.yaml as a user deploys it: `sam build`, `sam deploy`, and a job of the shipped jobs.toml."""

import json
import os
import re
import subprocess
import tomllib
import uuid
from contextlib import contextmanager

import pytest
import yaml
from conftest import HOST, ROOT
from harness.deployment import TABLE, Deployment, arn, until
from harness.relay import OUTBOX, SWEEP, Relay

SAM = ROOT / ".venv-sam/bin/sam"
STACK_TIMEOUT = 300


@pytest.fixture
def built(tmp_path):
    """`sam build` as a user runs it; cargo's cache makes it quick after the packaged worker."""
    sam("build", "--template", str(ROOT / "template.yaml"), "--build-dir", str(tmp_path / "build"))
    return tmp_path / "build"


@pytest.fixture
def stack(aws):
    name = f"oo-{uuid.uuid4().hex[:8]}"
    bucket = f"{name}-artifacts"
    aws.s3.create_bucket(Bucket=bucket)
    yield name, bucket
    aws.stacks.delete_stack(StackName=name)
    until("the stack is gone", lambda: gone(aws, name), timeout=60)


@pytest.fixture
def deploy(aws, built, stack, receiver):
    """Deploys with these parameters; returns the outputs, the job that is pointed at the receiver, and its path."""
    name, bucket = stack
    shipped = (built / "Worker/jobs.toml").read_text()
    assert shipped == (ROOT / "jobs.toml").read_text()
    job, spec = next(
        (job, spec) for job, spec in tomllib.loads(shipped)["job"].items() if spec["effect"] == "http"
    )
    # As a user would before the first deployment: the sample's address becomes one's own.
    own, path = pointed_at_receiver(shipped, spec["url"], receiver)
    for function in ("Worker", "Relay"):
        (built / function / "jobs.toml").write_text(own)

    def deploy(*parameters):
        sam(
            "deploy", "--template-file", str(built / "template.yaml"), "--stack-name", name,
            "--s3-bucket", bucket, "--capabilities", "CAPABILITY_IAM", "--no-confirm-changeset",
            "--no-progressbar", "--parameter-overrides",
            f"EndpointUrl={aws.inner_endpoint}", "FunctionTimeout=10", *parameters,
        )
        outputs = aws.stacks.describe_stacks(StackName=name)["Stacks"][0]["Outputs"]
        return {output["OutputKey"]: output["OutputValue"] for output in outputs}, job, path

    return deploy


def test_the_shipped_template_runs_a_job_of_the_shipped_jobs_file(aws, deploy, stack, receiver, case):
    outputs, job, path = deploy()
    before = len(receiver.requests(path))
    shop = deployment(aws, outputs["QueueUrl"], outputs)
    shop.send({"amount": 5, "currency": "eur", "case": case}, job=job, key=case)

    request = receiver.wait_for(path, count=before + 1)[-1]
    record = shop.wait_record(job, case, "completed")
    shop.wait_drained()
    assert len(request.headers["idempotency-key"]) == 32
    assert record["attempt"] == 1

    assert_as_designed(aws, shop)
    assert_watched(aws, shop, stack[0])
    assert "RelayArn" not in outputs
    aws.dynamodb.delete_table(TableName=shop.table)  # the stack retains it


def test_the_shipped_template_relays_events_to_their_jobs(aws, deploy, stack, receiver, case):
    outputs, job, path = deploy("Outbox=true")
    before = len(receiver.requests(path))
    shop = deployment(aws, outputs["QueueUrl"], outputs)
    relay = Relay(aws, outputs["OutboxTableName"], function_of(outputs["RelayArn"]), None)
    assert relay.table == f"{shop.table}-outbox"
    relay.put(case, case, job, json.dumps({"case": case}))

    request = receiver.wait_for(path, count=before + 1)[-1]
    relay.wait_empty()
    assert case in request.body.decode()
    assert shop.record(job, case)["status"] == "completed"

    assert_relay_as_designed(aws, stack[0], relay)
    assert_watched(aws, shop, stack[0], relay)
    for table in (shop.table, relay.table):
        aws.dynamodb.delete_table(TableName=table)  # the stack retains them


def test_an_existing_fifo_queue_and_table_get_a_relay(aws, deploy, receiver, case):
    with existing(aws, case) as (queue_url, table, stream):
        outputs, job, path = deploy(
            "Outbox=true", f"ExistingQueueArn={arn(aws.sqs, queue_url)}", f"ExistingTableName={table}",
            f"ExistingOutboxStreamArn={stream}",
        )
        before = len(receiver.requests(path))
        shop = deployment(aws, queue_url, outputs)
        relay = Relay(aws, outputs["OutboxTableName"], function_of(outputs["RelayArn"]), stream)
        assert (shop.table, relay.table) == (table, f"{table}-outbox")
        variables = aws.functions.get_function_configuration(FunctionName=relay.function)["Environment"]["Variables"]
        name = queue_url.rsplit("/", 1)[-1]
        assert variables["ONLYONCE_QUEUE_URL"] == f"https://sqs.us-east-1.amazonaws.com/000000000000/{name}"

        # A unique message goes to the queue, with the group and deduplication id that it wants.
        relay.put(
            f"unique-{case}", "unique", job, json.dumps({"case": case}),
            message_key=case, nonce=case, until=2**42,
        )
        request = receiver.wait_for(path, count=before + 1)[-1]
        assert case in request.body.decode()
        shop.wait_record(job, case, "completed")
        relay.wait_empty()
        shop.wait_drained()


def test_a_fifo_queue_keeps_each_groups_order(aws, deploy, stack, receiver, case):
    outputs, job, path = deploy("Fifo=true", "MaximumConcurrency=2", "Dashboard=false")
    assert outputs["QueueUrl"].endswith("-jobs.fifo") and outputs["DeadLettersUrl"].endswith("-dead.fifo")
    assert "DashboardUrl" not in outputs and not dashboards(aws, stack[0])
    shop = deployment(aws, outputs["QueueUrl"], outputs, fifo=True)
    before = len(receiver.requests(path))
    names = [f"{case}-{n}" for n in range(3)]
    shop.send_together([(job, name, {"case": name}, "group") for name in names])
    bodies = [request.body.decode() for request in receiver.wait_for(path, count=before + 3)[before:]]
    assert [next(name for name in names if name in body) for body in bodies] == names
    # What nobody can run goes to the dead-letter queue, which is FIFO, too.
    shop.send("{}", key=f"{case}-lost", group="group")
    shop.wait_dead(lambda message: True)
    shop.wait_drained()
    (mapping,) = aws.functions.list_event_source_mappings(FunctionName=shop.function)["EventSourceMappings"]
    assert mapping["ScalingConfig"] == {"MaximumConcurrency": 2}
    assert mapping.get("MaximumBatchingWindowInSeconds", 0) == 0
    aws.dynamodb.delete_table(TableName=shop.table)


def test_a_key_of_ones_own_encrypts_queues_and_tables(aws, deploy, receiver, case):
    key = aws.keys.create_key()["KeyMetadata"]["Arn"]
    outputs, job, path = deploy(
        "Outbox=true", f"KmsKeyArn={key}", "BatchSize=50", "BatchingWindow=1", "LogRetention=7", "AlarmAge=120"
    )
    shop = deployment(aws, outputs["QueueUrl"], outputs)
    before = len(receiver.requests(path))
    shop.send({"case": case}, job=job, key=case)
    receiver.wait_for(path, count=before + 1)
    shop.wait_record(job, case, "completed")
    shop.wait_drained()
    for url in (shop.queue_url, shop.dlq_url):
        attributes = attributes_of(aws, url)
        assert attributes["KmsMasterKeyId"] == key
        assert attributes.get("SqsManagedSseEnabled", "false") == "false"
    assert attributes_of(aws, shop.queue_url)["VisibilityTimeout"] == "80", "the window is added"
    # The emulator does not tell what encrypts a table.
    for table in ("Table", "OutboxTable"):
        condition, with_key, _ = TEMPLATE["Resources"][table]["Properties"]["SSESpecification"]
        assert (condition, with_key["SSEType"], with_key["KMSMasterKeyId"]) == ("HasKey", "KMS", "KmsKeyArn")
    (mapping,) = aws.functions.list_event_source_mappings(FunctionName=shop.function)["EventSourceMappings"]
    assert (mapping["BatchSize"], mapping["MaximumBatchingWindowInSeconds"]) == (50, 1)
    for function in (shop.function, function_of(outputs["RelayArn"])):
        group = aws.functions.get_function_configuration(FunctionName=function)["LoggingConfig"]["LogGroup"]
        (found,) = aws.logs.describe_log_groups(logGroupNamePrefix=group)["logGroups"]
        assert found["retentionInDays"] == 7
        role = aws.functions.get_function_configuration(FunctionName=function)["Role"].rsplit("/", 1)[-1]
        (name,) = aws.iam.list_role_policies(RoleName=role)["PolicyNames"]
        granted = aws.iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]["Statement"]
        (statement,) = [statement for statement in granted if statement["Sid"] == "Key"]
        assert statement["Resource"] == key
    (age,) = [alarm for alarm in alarms_of(aws) if alarm["MetricName"] == "ApproximateAgeOfOldestMessage"
              and alarm["Dimensions"] == [dimension("QueueName", name_of(shop.queue_url))]]
    assert age["Threshold"] == 120
    for table in (shop.table, outputs["OutboxTableName"]):
        aws.dynamodb.delete_table(TableName=table)  # the stack retains them


@pytest.mark.parametrize(
    "parameters, says",
    [
        ({"BatchSize": "11"}, "needs a BatchingWindow"),
        ({"Fifo": "true", "BatchSize": "11", "BatchingWindow": "1"}, "FIFO"),
        ({"Fifo": "true", "BatchingWindow": "1"}, "FIFO"),
        ({"MaximumConcurrency": "1"}, "2 to 1000"),
        ({"ExistingOutboxStreamArn": "arn:aws:dynamodb:us-east-1:000000000000:table/a-outbox/stream/1"}, "ExistingTableName"),
    ],
)
def test_settings_that_exclude_one_another_are_refused_before_anything_is_made(aws, parameters, says):
    name = f"oo-{uuid.uuid4().hex[:8]}"
    # Packaged, as far as it comes to that.
    template = (ROOT / "template.yaml").read_text().replace("CodeUri: infra/worker/", "CodeUri: s3://bucket/key")
    with pytest.raises(aws.stacks.exceptions.ClientError, match=says):
        aws.stacks.create_stack(
            StackName=name, TemplateBody=template,
            Capabilities=["CAPABILITY_IAM", "CAPABILITY_AUTO_EXPAND"],
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()],
        )


@contextmanager
def existing(aws, case):
    """What was there before: a FIFO queue, a claim table and its outbox."""
    queue_url = aws.sqs.create_queue(
        QueueName=f"oo-{case}.fifo", Attributes={"FifoQueue": "true", "VisibilityTimeout": "60"}
    )["QueueUrl"]
    table = f"oo-{case}"
    aws.dynamodb.create_table(TableName=table, **TABLE)
    outbox = aws.dynamodb.create_table(TableName=f"{table}-outbox", **OUTBOX)["TableDescription"]
    try:
        for name in (table, outbox["TableName"]):
            aws.dynamodb.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        yield queue_url, table, outbox["LatestStreamArn"]
    finally:
        aws.sqs.delete_queue(QueueUrl=queue_url)
        for name in (table, outbox["TableName"]):
            aws.dynamodb.delete_table(TableName=name)


def deployment(aws, queue_url, outputs, fifo=False):
    return Deployment(
        aws, queue_url, outputs["DeadLettersUrl"], outputs["TableName"], function_of(outputs["WorkerArn"]), fifo
    )


def attributes_of(aws, url):
    return aws.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]


def alarms_of(aws):
    return [alarm for page in aws.alarms.get_paginator("describe_alarms").paginate() for alarm in page["MetricAlarms"]]


def dashboards(aws, stack):
    """The metrics on the dashboard of a stack: (namespace, name, dimensions); `None` without one."""
    try:
        body = json.loads(aws.alarms.get_dashboard(DashboardName=stack)["DashboardBody"])
    except aws.alarms.exceptions.ClientError:
        return None
    shown = set()
    for widget in body["widgets"]:
        last = []
        for metric in widget["properties"].get("metrics", []):
            words = [word for word in metric if isinstance(word, str)]
            # A dot stands for what the line above has in its place.
            last = [last[at] if word == "." else word for at, word in enumerate(words)]
            if last:
                shown.add((*last[:2], *(f"{name}={value}" for name, value in zip(last[2::2], last[3::2]))))
    return shown


def name_of(url):
    return url.rsplit("/", 1)[-1]


def dimension(name, value):
    return {"Name": name, "Value": value}


def function_of(arn):
    return arn.rsplit(":", 1)[-1]


def assert_as_designed(aws, shop):
    attributes = attributes_of(aws, shop.queue_url)
    assert attributes["VisibilityTimeout"] == "60", "six times the function's timeout"
    dead = attributes_of(aws, shop.dlq_url)
    assert int(dead["MessageRetentionPeriod"]) > int(attributes["MessageRetentionPeriod"])
    assert json.loads(attributes["RedrivePolicy"])["maxReceiveCount"] in (10, "10")
    table = aws.dynamodb.describe_table(TableName=shop.table)["Table"]
    assert table["KeySchema"] == TABLE["KeySchema"]
    (index,) = table["GlobalSecondaryIndexes"]
    (wanted,) = TABLE["GlobalSecondaryIndexes"]
    assert {name: index[name] for name in wanted} == wanted
    queue_name = {"Name": "QueueName", "Value": shop.dlq_url.rsplit("/", 1)[-1]}
    alarms = aws.alarms.describe_alarms()["MetricAlarms"]
    assert any(queue_name in alarm["Dimensions"] for alarm in alarms)
    mappings = aws.functions.list_event_source_mappings(FunctionName=shop.function)["EventSourceMappings"]
    assert [m["FunctionResponseTypes"] for m in mappings] == [["ReportBatchItemFailures"]]


# What the worker tells of itself, and the dashboard shows.
OUTCOMES = ["Claimed", "Replayed", "Busy", "LostLease", "Retried", "Completed", "Failed", "Unknown", "Quarantined", "StoreError"]
LATENCIES = ["EffectLatency", "StoreLatency", "Age"]


def assert_watched(aws, shop, stack, relay=None):
    """Each alarm is on a metric of this deployment, and the dashboard shows these and the rest."""
    queue, dead, worker, claims, service = (
        f"QueueName={name_of(shop.queue_url)}", f"QueueName={name_of(shop.dlq_url)}", f"FunctionName={shop.function}",
        f"TableName={shop.table}", f"Service={stack}",
    )
    wanted = {
        ("AWS/SQS", "ApproximateNumberOfMessagesVisible", dead),
        ("AWS/SQS", "ApproximateAgeOfOldestMessage", queue),
        ("AWS/Lambda", "Errors", worker),
        ("AWS/Lambda", "Throttles", worker),
        ("AWS/DynamoDB", "WriteThrottleEvents", claims),
        *(("onlyonce", metric, service) for metric in ("Unknown", "LostLease", "StoreError")),
    }
    more = {
        ("AWS/SQS", "ApproximateNumberOfMessagesVisible", queue),
        ("AWS/Lambda", "Invocations", worker),
        ("AWS/Lambda", "Duration", worker),
        ("AWS/DynamoDB", "ConsumedWriteCapacityUnits", claims),
        *(("onlyonce", metric, service) for metric in OUTCOMES + LATENCIES),
    }
    if relay:
        of_relay = f"FunctionName={relay.function}"
        wanted |= {
            ("AWS/Lambda", "IteratorAge", of_relay),
            ("AWS/Lambda", "Errors", of_relay),
            ("AWS/DynamoDB", "WriteThrottleEvents", f"TableName={relay.table}"),
            ("onlyonce", f"{stack}-outbox-oldest"),
        }
    named = [alarm for alarm in alarms_of(aws) if alarm["AlarmName"].startswith(f"{stack}-")]
    found = {
        (alarm["Namespace"], alarm["MetricName"], *(f"{it['Name']}={it['Value']}" for it in alarm["Dimensions"]))
        for alarm in named
    }
    assert found == wanted and len(named) == len(wanted)
    shown = dashboards(aws, stack)
    assert shown >= wanted | more, sorted((wanted | more) - shown)
    body = json.loads(aws.alarms.get_dashboard(DashboardName=stack)["DashboardBody"])
    (listed,) = [widget["properties"]["alarms"] for widget in body["widgets"] if widget["type"] == "alarm"]
    assert set(listed) == {alarm["AlarmArn"] for alarm in named}
    variables = aws.functions.get_function_configuration(FunctionName=shop.function)["Environment"]["Variables"]
    assert variables["ONLYONCE_SERVICE"] == stack


def assert_relay_as_designed(aws, stack, relay):
    table = aws.dynamodb.describe_table(TableName=relay.table)["Table"]
    assert {name: table[name] for name in ("KeySchema", "StreamSpecification")} == {
        name: OUTBOX[name] for name in ("KeySchema", "StreamSpecification")
    }
    (mapping,) = aws.functions.list_event_source_mappings(FunctionName=relay.function)["EventSourceMappings"]
    assert mapping["EventSourceArn"] == table["LatestStreamArn"]
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    # More batches at once would let the events of one order key overtake each other.
    assert mapping.get("ParallelizationFactor", 1) == 1
    assert mapping.get("MaximumRetryAttempts", -1) == -1
    function = aws.functions.get_function_configuration(FunctionName=relay.function)
    assert function["Environment"]["Variables"]["ONLYONCE_QUEUE_URL"].startswith("http")

    (rule,) = [rule for rule in aws.events.list_rules()["Rules"] if rule["Name"].startswith(f"{stack}-")]
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    (target,) = aws.events.list_targets_by_rule(Rule=rule["Name"])["Targets"]
    assert target["Arn"] == function["FunctionArn"]
    assert json.loads(target["Input"]) == SWEEP

    # The metric is made of a line that a sweep has really written.
    swept = aws.invoke(relay.function, json.loads(target["Input"]))
    group = function["LoggingConfig"]["LogGroup"]
    (metric,) = aws.logs.describe_metric_filters(logGroupName=group)["metricFilters"]
    assert metric["filterPattern"] == '{ $.message = "outbox swept" }'
    (value,) = metric["metricTransformations"]
    assert value["metricValue"] == "$.oldest_s"
    pages = aws.logs.get_paginator("filter_log_events").paginate(logGroupName=group)
    lines = [event["message"] for page in pages for event in page["events"]]
    lines = [json.loads(line) for line in lines if "outbox swept" in line]
    assert lines, "no sweep is in the log"
    assert {lines[-1]["message"], lines[-1]["oldest_s"]} == {"outbox swept", swept["oldest_s"]}
    (age,) = [alarm for alarm in alarms_of(aws) if alarm["MetricName"] == value["metricName"]]
    assert age["Namespace"] == value["metricNamespace"]


@pytest.mark.parametrize("policy, role", [("worker", "WorkerRole"), ("relay", "RelayRole")])
def test_the_policy_file_says_what_the_template_says(policy, role):
    """Those who deploy without SAM get the same rights, and not one more."""
    by_file = {
        statement["Sid"]: actions(statement["Action"])
        for statement in json.loads((ROOT / f"infra/iam/{policy}.json").read_text())["Statement"]
    }
    by_template = {
        statement["Sid"]: actions(statement["Action"])
        for statement in statements(TEMPLATE["Resources"][role])
    }
    assert by_template == by_file
    assert not any("*" in action for granted in by_file.values() for action in granted)


class Intrinsics(yaml.SafeLoader):
    """Reads `!If [..]` and its like as their plain arguments."""


def argument(loader, _, node):
    if isinstance(node, yaml.ScalarNode):
        return loader.construct_scalar(node)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_mapping(node, deep=True)


Intrinsics.add_multi_constructor("!", argument)

TEMPLATE = yaml.load((ROOT / "template.yaml").read_text(), Loader=Intrinsics)


def statements(node):
    """The policy statements below a node, conditional ones included."""
    inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else []
    own = [node] if isinstance(node, dict) and "Sid" in node else []
    return own + [found for child in inner for found in statements(child)]


def actions(value):
    return {value} if isinstance(value, str) else set(value)


def pointed_at_receiver(text, url, receiver):
    """The jobs file with one job's address changed, and the new address's path."""
    path = re.sub(r"^https?://[^/]+", "", url)
    assert "{" not in path, "the first job's path is the same for every payload"
    own = f'url = "http://{HOST}:{receiver.port}{path}"\nallow_hosts = ["{HOST}"]'
    line = f'url = "{url}"'
    assert line in text
    return text.replace(line, own), path


def sam(*arguments):
    done = subprocess.run(
        [str(SAM), *arguments], cwd=ROOT, env={**os.environ, "SAM_CLI_TELEMETRY": "0"},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=STACK_TIMEOUT,
    )
    assert done.returncode == 0, f"sam {arguments[0]}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"


def gone(aws, name):
    try:
        stacks = aws.stacks.describe_stacks(StackName=name)["Stacks"]
    except aws.stacks.exceptions.ClientError:
        return True
    return not stacks or stacks[0]["StackStatus"] == "DELETE_COMPLETE"
