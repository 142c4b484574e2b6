"""What is deployed otherwise than by template.yaml, held against it: the Terraform module, and the
resources of compose.yaml."""

import json
import os
import re
import shutil
import subprocess

import pytest
from conftest import ROOT
from harness.deployment import TABLE, Aws
from harness.emulator import MiniStack
from harness.iam import statements
from test_template import TEMPLATE, attributes_of

MODULE = ROOT / "infra/terraform"


@pytest.fixture(scope="module")
def module():
    """What the module says: the kinds of blocks of all files, joined."""
    said = subprocess.run(
        ["node", ROOT / "tests/hcl.mjs", "json", MODULE], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    joined = {}
    for file in json.loads(said).values():
        for kind, blocks in file.items():
            joined.setdefault(kind, []).append(blocks)
    return joined


@pytest.fixture(scope="module")
def values(module):
    """Its locals, by name."""
    return {name: value for blocks in module["locals"] for block in blocks for name, value in block.items()}


@pytest.fixture(scope="module")
def resources(module):
    """(type, name) -> what is said of it."""
    return {
        (kind, name): body
        for blocks in module["resource"]
        for kind, named in blocks.items()
        for name, (body,) in named.items()
    }


def test_the_module_raises_the_templates_alarms(values):
    alarms = [
        values["alarm_defaults"] | alarm for group in ("alarms", "outbox_alarms") for alarm in values[group].values()
    ]
    of_module = sorted(
        (
            alarm["namespace"], own(alarm["metric"]), tuple(alarm["dimensions"]), alarm["statistic"], alarm["period"],
            alarm["evaluations"], alarm["points"], own(alarm["threshold"]), alarm["missing"],
        )
        for alarm in alarms
    )
    of_template = sorted(
        (
            alarm["Namespace"], own(alarm["MetricName"]), tuple(it["Name"] for it in alarm.get("Dimensions", [])),
            alarm["Statistic"], int(alarm["Period"]), int(alarm["EvaluationPeriods"]),
            number(alarm.get("DatapointsToAlarm")), own(alarm["Threshold"]), alarm["TreatMissingData"],
        )
        for alarm in of_type("AWS::CloudWatch::Alarm")
    )
    assert of_module == of_template
    assert {alarm["ComparisonOperator"] for alarm in of_type("AWS::CloudWatch::Alarm")} == {"GreaterThanThreshold"}


def test_the_modules_dashboard_shows_what_the_templates_shows():
    (dashboard,) = of_type("AWS::CloudWatch::Dashboard")
    text, with_outbox = dashboard["DashboardBody"][0], dashboard["DashboardBody"][1]["RelayToo"][1][0]
    of_template = metrics(text) | metrics(with_outbox)
    assert len(of_template) > 30
    assert metrics((MODULE / "dashboard.tf").read_text()) == of_template


@pytest.mark.parametrize("policy", ["worker", "relay"])
def test_the_module_says_what_each_statement_is_for(values, policy):
    assert set(values[f"{policy}_resources"]) == {statement["Sid"] for statement in statements(policy)}


def test_the_module_makes_what_the_template_makes(resources):
    template = TEMPLATE["Resources"]
    queue, dead = resources["aws_sqs_queue", "jobs"], resources["aws_sqs_queue", "dead_letters"]
    retention = "message_retention_seconds"
    assert queue[retention] == int(template["Queue"]["Properties"]["MessageRetentionPeriod"])
    assert dead[retention] == int(template["DeadLetters"]["Properties"]["MessageRetentionPeriod"])
    assert queue["visibility_timeout_seconds"] == "${6 * var.function_timeout + var.batching_window}"
    for table, logical in (("claims", "Table"), ("outbox", "OutboxTable")):
        made, wanted = resources["aws_dynamodb_table", table], template[logical]["Properties"]
        keys = [made["hash_key"]] + ([made["range_key"]] if "range_key" in made else [])
        assert keys == [key["AttributeName"] for key in wanted["KeySchema"]]
        assert {it["name"]: it["type"] for it in made["attribute"]} == {
            it["AttributeName"]: it["AttributeType"] for it in wanted["AttributeDefinitions"]
        }
        assert made["ttl"] == [{"attribute_name": "expires_at", "enabled": True}]
        assert made["point_in_time_recovery"] == [{"enabled": True}]
    (index,) = resources["aws_dynamodb_table", "claims"]["global_secondary_index"]
    (wanted,) = template["Table"]["Properties"]["GlobalSecondaryIndexes"]
    assert [index["hash_key"], index["range_key"]] == [key["AttributeName"] for key in wanted["KeySchema"]]
    assert (index["name"], index["projection_type"]) == (wanted["IndexName"], wanted["Projection"]["ProjectionType"])

    jobs = resources["aws_lambda_event_source_mapping", "jobs"]
    assert jobs["function_response_types"] == ["ReportBatchItemFailures"]
    committed = resources["aws_lambda_event_source_mapping", "committed"]
    said = template["Relay"]["Properties"]["Events"]["Committed"]["Properties"]
    for name, property in {
        "starting_position": "StartingPosition", "batch_size": "BatchSize",
        "function_response_types": "FunctionResponseTypes", "parallelization_factor": "ParallelizationFactor",
        "maximum_retry_attempts": "MaximumRetryAttempts", "maximum_record_age_in_seconds": "MaximumRecordAgeInSeconds",
    }.items():
        assert str(committed[name]) == str(said[property]), name
    assert committed["bisect_batch_on_function_error"] is False


def test_the_modules_functions_get_the_templates_variables(values, resources):
    given = lambda text: set(re.findall(r"\b((?:ONLYONCE_|AWS_|RUST_)[A-Z_]+) *=", text))
    variables = lambda function: set(TEMPLATE["Resources"][function]["Properties"]["Environment"]["Variables"])
    assert given(values["environment"]) == variables("Worker")
    (environment,) = resources["aws_lambda_function", "function"]["environment"]
    assert given(values["environment"]) | given(environment["variables"]) == variables("Relay")


def test_the_module_has_the_templates_parameters(module):
    of_module = {name for blocks in module["variable"] for name in blocks}
    snake = lambda name: re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    # What CloudFormation knows, or SAM makes.
    assert of_module - {"name", "package"} == {snake(name) for name in TEMPLATE["Parameters"]}
    assert all(block[0].get("description") for blocks in module["variable"] for block in blocks.values())


@pytest.fixture
def empty(tmp_path):
    """An emulator with nothing in it: the names in infra/localstack.sh are not this test's own."""
    server = MiniStack(ROOT / ".venv/bin/ministack", tmp_path, os.environ)
    yield Aws(server.url)
    server.close()


def test_what_compose_makes_is_what_a_worker_needs(empty, tmp_path):
    """The script that LocalStack runs, run here, by the AWS CLI of the tests."""
    local = tmp_path / "awslocal"
    local.write_text(f'#!/bin/sh\nexec "{ROOT}/.venv/bin/aws" --endpoint-url "{empty.endpoint}" "$@"\n')
    local.chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    assert shutil.which("awslocal", path=env["PATH"]) == str(local)
    done = subprocess.run([ROOT / "infra/localstack.sh"], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    table = empty.dynamodb.describe_table(TableName="onlyonce")["Table"]
    assert table["KeySchema"] == TABLE["KeySchema"]
    (index,), (wanted,) = table["GlobalSecondaryIndexes"], TABLE["GlobalSecondaryIndexes"]
    assert {name: index[name] for name in wanted} == wanted
    ttl = empty.dynamodb.describe_time_to_live(TableName="onlyonce")["TimeToLiveDescription"]
    assert ttl["AttributeName"] == "expires_at"
    url = empty.sqs.get_queue_url(QueueName="jobs")["QueueUrl"]
    assert "dead" in attributes_of(empty, url)["RedrivePolicy"]


def of_type(kind):
    return [resource["Properties"] for resource in TEMPLATE["Resources"].values() if resource["Type"] == kind]


def own(value):
    """A name or number of either side, with the stack's name and parameters said alike."""
    text = str(value).replace("${AWS::StackName}", "NAME").replace("${var.name}", "NAME")
    text = {"AlarmAge": "ALARM_AGE", "${var.alarm_age}": "ALARM_AGE"}.get(text, text)
    return text


def number(value):
    return None if value is None else int(value)


def metrics(text):
    """(namespace or `.`, metric, statistic) of each line of a dashboard, in JSON or HCL."""
    line = re.compile(r'\["(AWS/\w+|onlyonce|\.)", "([^"]+)",.*?"?stat"? ?[:=] "(\w+)"')
    return {
        (namespace, metric.replace("${AWS::StackName}", "NAME").replace("${var.name}", "NAME"), stat)
        for namespace, metric, stat in line.findall(text)
    }
