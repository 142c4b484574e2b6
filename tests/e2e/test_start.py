"""A worker that is set up wrongly says so at its start, and takes no message."""

import os
import subprocess

import pytest

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
