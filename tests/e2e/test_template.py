"""template.yaml as a user deploys it: `sam build`, `sam deploy`, and a job of the shipped jobs.toml."""

import json
import os
import re
import subprocess
import tomllib
import uuid

import pytest
import yaml
from conftest import HOST, ROOT
from harness.deployment import TABLE, Deployment, until

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


def test_the_shipped_template_runs_a_job_of_the_shipped_jobs_file(aws, built, stack, receiver, case):
    name, bucket = stack
    shipped = (built / "Worker/jobs.toml").read_text()
    assert shipped == (ROOT / "jobs.toml").read_text()
    job, spec = next(
        (job, spec) for job, spec in tomllib.loads(shipped)["job"].items() if spec["effect"] == "http"
    )
    # As a user would before the first deployment: the sample's address becomes one's own.
    own, path = pointed_at_receiver(shipped, spec["url"], receiver)
    (built / "Worker/jobs.toml").write_text(own)

    sam(
        "deploy", "--template-file", str(built / "template.yaml"), "--stack-name", name,
        "--s3-bucket", bucket, "--capabilities", "CAPABILITY_IAM", "--no-confirm-changeset",
        "--no-progressbar", "--parameter-overrides",
        f"EndpointUrl={aws.inner_endpoint}", "FunctionTimeout=10",
    )
    outputs = {
        output["OutputKey"]: output["OutputValue"]
        for output in aws.stacks.describe_stacks(StackName=name)["Stacks"][0]["Outputs"]
    }
    shop = Deployment(
        aws, outputs["QueueUrl"], outputs["DeadLettersUrl"], outputs["TableName"],
        outputs["WorkerArn"].rsplit(":", 1)[-1],
    )
    shop.send({"amount": 5, "currency": "eur", "case": case}, job=job, key=case)

    (request,) = receiver.wait_for(path)
    record = shop.wait_record(job, case, "completed")
    shop.wait_drained()
    assert len(request.headers["idempotency-key"]) == 32
    assert record["attempt"] == 1

    assert_as_designed(aws, shop)
    aws.dynamodb.delete_table(TableName=shop.table)  # the stack retains it


def assert_as_designed(aws, shop):
    attributes = aws.sqs.get_queue_attributes(QueueUrl=shop.queue_url, AttributeNames=["All"])["Attributes"]
    assert attributes["VisibilityTimeout"] == "60", "six times the function's timeout"
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


def test_the_policy_file_says_what_the_template_says():
    """Those who deploy without SAM get the same rights, and not one more."""
    by_file = {
        statement["Sid"]: actions(statement["Action"])
        for statement in json.loads((ROOT / "infra/iam/worker.json").read_text())["Statement"]
    }
    template = yaml.load((ROOT / "template.yaml").read_text(), Loader=Intrinsics)
    by_template = {
        statement["Sid"]: actions(statement["Action"])
        for statement in statements(template["Resources"]["WorkerRole"])
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
