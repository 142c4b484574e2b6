"""A worker that is set up wrongly says so at its start, and takes no message."""

import os
import subprocess

import pytest
from harness.deployment import TABLE
from harness.runtime_api import Runtime

JOB = """\
[job."charge"]
effect = "http"
{lines}
url = "https://api.example.com/charge"
"""

BAD_JOBS = {
    "unknown-field": ('guarantee = "keyed"\nmethd = "POST"', ["jobs.toml:4", "methd"]),
    "no-guarantee": ('method = "POST"', ["jobs.toml:1", "guarantee"]),
    "guarantee-out-of-reach": ('guarantee = "transactional"', ["jobs.toml:3", "transactional", "keyed"]),
    "no-such-guarantee": ('guarantee = "exactly-once"', ["jobs.toml:3", "exactly-once", "keyed"]),
    "not-toml": ("guarantee =", ["jobs.toml:3"]),
}


@pytest.mark.parametrize("kind", BAD_JOBS)
def test_a_fault_in_the_jobs_file_stops_the_worker_with_its_line(worker_binary, tmp_path, kind):
    lines, wanted = BAD_JOBS[kind]
    (tmp_path / "jobs.toml").write_text(JOB.format(lines=lines))

    status, output = start(worker_binary, tmp_path)

    assert status == 1, output
    for text in wanted:
        assert text in output


def test_no_jobs_file_is_told(worker_binary, tmp_path):
    status, output = start(worker_binary, tmp_path)

    assert status == 1, output
    assert "jobs.toml" in output


@pytest.mark.parametrize(
    "name", ["ONLYONCE_STORE", "ONLYONCE_DLQ_URL", "ONLYONCE_NAMESPACE", "ONLYONCE_CONCURRENCY"]
)
def test_a_variable_set_to_nothing_is_named(worker_binary, tmp_path, name):
    (tmp_path / "jobs.toml").write_text(JOB.format(lines='guarantee = "at-least-once"'))

    status, output = start(worker_binary, tmp_path, **{name: ""})

    assert status == 1, output
    assert name in output


def test_a_missing_secret_is_told_at_the_start(worker_binary, tmp_path):
    line = 'guarantee = "at-least-once"\nsecret = { header = "Authorization", env = "NO_SUCH_TOKEN" }'
    (tmp_path / "jobs.toml").write_text(JOB.format(lines=line))

    status, output = start(worker_binary, tmp_path)

    assert status == 1, output
    assert "NO_SUCH_TOKEN" in output


def start(binary, home, **env):
    """Exit status and output of a worker whose runtime API is nowhere: it should not come that far."""
    done = subprocess.run(
        [str(binary)], cwd=home, capture_output=True, text=True, timeout=30,
        env={
            **os.environ,
            "AWS_LAMBDA_RUNTIME_API": "127.0.0.1:9",
            "AWS_LAMBDA_FUNCTION_NAME": "worker",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128",
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            **env,
        },
    )
    return done.returncode, done.stdout + done.stderr


def test_the_store_is_reached_before_there_is_work_and_nothing_is_left_there(aws, worker_binary, jobs, proxy, tmp_path, case):
    (tmp_path / "jobs.toml").write_text(jobs)
    table = f"start-{case}"
    aws.dynamodb.create_table(TableName=table, **TABLE)
    env = {"AWS_ENDPOINT_URL": proxy.url, "ONLYONCE_STORE": f"dynamodb://{table}", "CHARGES_TOKEN": "t"}
    try:
        with Runtime(worker_binary, env, cwd=tmp_path) as worker:
            worker.wait_ready()
            assert proxy.calls() == {"UpdateItem": 1}
            assert aws.dynamodb.scan(TableName=table)["Items"] == []
    finally:
        aws.dynamodb.delete_table(TableName=table)


def test_a_store_that_is_not_there_is_told_and_work_is_asked_for_all_the_same(worker_binary, jobs, tmp_path):
    (tmp_path / "jobs.toml").write_text(jobs)
    env = {"ONLYONCE_STORE": "dynamodb://no-such-table", "CHARGES_TOKEN": "t"}
    with (tmp_path / "log").open("wb") as log, Runtime(worker_binary, env, cwd=tmp_path, log=log) as worker:
        worker.wait_ready()
    assert "onlyonce setup" in (tmp_path / "log").read_text()
