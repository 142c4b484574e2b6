"""What the end-to-end tests share: the real worker behind a real event source.

Nothing here is a stand-in for the worker. Its binary is the one that cargo-lambda packages; the
endpoint is whatever AWS_ENDPOINT_URL names.
"""

import os
import sys
import uuid
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from harness.deployment import Aws, deployed, packaged  # noqa: E402
from harness.forwarder import Forwarder  # noqa: E402
from harness.proxy import CountingProxy  # noqa: E402
from harness.receiver import Receiver  # noqa: E402
from harness.stripe import Stripe  # noqa: E402

# How functions reach this machine. Processes of an emulator without Docker share its loopback.
HOST = os.environ.get("ONLYONCE_TEST_HOST", "127.0.0.1")

# Looked for in the logs: no line may carry it.
SECRET = "Bearer s3cr3t-of-the-tests"


@pytest.fixture(scope="session")
def aws():
    return Aws(os.environ["AWS_ENDPOINT_URL"], HOST)


@pytest.fixture(scope="session")
def worker_binary():
    return built("worker")


@pytest.fixture(scope="session")
def field_binary():
    return built("field_worker")


@pytest.fixture(scope="session")
def receiver():
    server = Receiver(HOST)
    yield server
    server.close()


@pytest.fixture(scope="session")
def jobs(receiver):
    return jobs_for(HOST, receiver)


@pytest.fixture(scope="session")
def package(worker_binary, jobs):
    return packaged(worker_binary, jobs)


@pytest.fixture(scope="session")
def shop(aws, package):
    """The deployment that most tests use, each with keys and paths of its own."""
    with deployed(aws, package, env={"CHARGES_TOKEN": SECRET}) as deployment:
        yield deployment


@pytest.fixture
def case():
    """A name no other test uses: the last part of the receiver's path, and of the key."""
    return uuid.uuid4().hex[:12]


@pytest.fixture
def proxy(aws):
    """Between a worker and AWS, for deployments that are given its URL as their endpoint."""
    server = CountingProxy(aws.endpoint, HOST)
    yield server
    server.close()


@pytest.fixture
def stripe(tmp_path):
    provider = Stripe(tmp_path)
    yield provider
    provider.close()


@pytest.fixture
def charging(stripe):
    """Between a worker and the payment provider: keeps every request as it was sent."""
    server = Forwarder(stripe.url, HOST)
    yield server
    server.close()


def jobs_for(host, receiver):
    return (ROOT / "tests/e2e/jobs.toml.in").read_text().format(host=host, port=receiver.port)


def built(name):
    binary = ROOT / "target/lambda" / name / "bootstrap"
    assert binary.exists(), f"{binary} is missing: run this through `make test`, which builds it"
    return binary
