"""Lambda Managed Instances: one process is given several invocations at once."""

import pytest
from conftest import jobs_for
from harness.forwarder import Forwarder
from harness.runtime_api import Runtime
from test_events import record, store  # noqa: F401 - a fixture


@pytest.fixture
def provider(receiver):
    """In front of the receiver: holds requests back."""
    server = Forwarder(f"http://127.0.0.1:{receiver.port}")
    yield server
    server.close()


@pytest.fixture
def runtime(aws, worker_binary, provider, store, tmp_path):  # noqa: F811
    table, _, dlq_url = store
    (tmp_path / "jobs.toml").write_text(jobs_for("127.0.0.1", provider))
    env = {
        "AWS_LAMBDA_MAX_CONCURRENCY": "2",
        "AWS_ENDPOINT_URL": aws.endpoint,
        "ONLYONCE_STORE": f"dynamodb://{table}",
        "ONLYONCE_DLQ_URL": dlq_url,
        "CHARGES_TOKEN": "t",
    }
    with Runtime(worker_binary, env, cwd=tmp_path) as running:
        running.wait_ready()
        yield running


def charges(call):
    return call.path.startswith("/charge/")


def test_two_invocations_run_at_once_and_each_has_its_own_answer(runtime, provider, receiver, store, case):  # noqa: F811
    receiver.answer(f"/charge/{case}-bad", 503)
    with provider.barrier(charges) as barrier:
        good = runtime.begin({"Records": [record(store, f"{case}-good")]})
        first = barrier.wait()
        # The first is at its effect, and goes no further.
        bad = record(store, f"{case}-bad")
        other = runtime.begin({"Records": [bad]})
        second = barrier.wait()
        assert {first.call.path, second.call.path} == {f"/charge/{case}-good", f"/charge/{case}-bad"}
        assert first.pid == second.pid == runtime.process.pid
        second.release()
        failed = runtime.answer_to(other)
        assert failed.body == {"batchItemFailures": [{"itemIdentifier": bad["messageId"]}]}
        first.release()
        done = runtime.answer_to(good)
    assert not done.failed and done.body == {"batchItemFailures": []}
    assert len(receiver.requests(f"/charge/{case}-good")) == 1


def test_two_copies_in_two_invocations_run_once(runtime, provider, receiver, store, case):  # noqa: F811
    copies = [record(store, case), record(store, case)]
    with provider.barrier(charges) as barrier:
        first = runtime.begin({"Records": copies[:1]})
        held = barrier.wait()
        # Its copy finds the claim of the other invocation, in the same process.
        second = runtime.invoke({"Records": copies[1:]})
        assert second.body == {"batchItemFailures": [{"itemIdentifier": copies[1]["messageId"]}]}
        held.release()
        assert runtime.answer_to(first).body == {"batchItemFailures": []}
    assert runtime.invoke({"Records": copies[1:]}).body == {"batchItemFailures": []}
    assert len(receiver.requests(f"/charge/{case}")) == 1
