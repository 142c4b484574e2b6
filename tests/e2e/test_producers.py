"""The guide for producers: what it says in each language is run as it stands there, twice.

Its Rust is run by tests/cli/producers.rs.
"""

import os
import shlex
import shutil
import subprocess
import sys

import pytest
from conftest import HOST, ROOT
from harness.deployment import deployed, packaged

GUIDE = ROOT / "src/docs/producers.md"
KEY = "invoice:42:finalize"
JOBS = """
[job."invoice.finalize"]
effect = "http"
url = "http://{host}:{port}/invoices/{{invoice}}"
guarantee = "keyed"
allow_hosts = ["{host}"]
"""

# Fence in the guide -> the program that runs a file of it, and the file's ending.
LANGUAGES = {
    "python": ([sys.executable], ".py"),
    "js": (["node"], ".mjs"),
    "bash": (["bash", "-eu"], ".sh"),
}


@pytest.fixture(scope="module")
def invoices(aws, worker_binary, receiver):
    jobs = JOBS.format(host=HOST, port=receiver.port)
    with deployed(aws, packaged(worker_binary, jobs)) as deployment:
        yield deployment


def snippet(language):
    """The guide's only block in this language."""
    (block,) = GUIDE.read_text().split(f"```{language}\n")[1:]
    return block.split("```")[0]


def sends(language, text, invoices, folder):
    """Runs it as a file of its own, and answers the message id that it prints."""
    command, ending = LANGUAGES[language]
    file = folder / f"producer{ending}"
    file.write_text(text)
    # Where Node looks for its packages.
    if not (folder / "node_modules").exists():
        (folder / "node_modules").symlink_to(ROOT / "tests/node_modules")
    programs = with_endpoint(folder)
    done = subprocess.run(
        [*command, str(file)], text=True, capture_output=True, timeout=120, cwd=folder,
        env={
            **os.environ,
            "ONLYONCE_QUEUE_URL": invoices.queue_url,
            "AWS_ENDPOINT_URL": invoices.aws.endpoint,
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        },
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def with_endpoint(folder):
    """An `aws` that goes to the emulator: for SQS the CLI has hosts of its own, whatever AWS_ENDPOINT_URL says."""
    program = folder / "bin/aws"
    program.parent.mkdir(exist_ok=True)
    real = shutil.which("aws")
    assert real, "the AWS CLI is missing: it comes with `make tools`"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(real)} --endpoint-url "$AWS_ENDPOINT_URL" "$@"\n')
    program.chmod(0o755)
    return program.parent


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_snippet_run_twice_is_one_effect(invoices, receiver, tmp_path, language):
    number = str(4200 + list(LANGUAGES).index(language))
    text = snippet(language)
    assert KEY in text
    # An invoice of its own: the number is in key and payload.
    text = text.replace("invoice:42:", f"invoice:{number}:")
    for payload in ('"invoice": 42,', "invoice: 42,"):
        text = text.replace(payload, payload.replace("42", number))
    first = sends(language, text, invoices, tmp_path)
    receiver.wait_for(f"/invoices/{number}")
    record = invoices.wait_record("invoice.finalize", f"invoice:{number}:finalize", "completed")
    second = sends(language, text, invoices, tmp_path)
    invoices.wait_drained()

    assert record["message_id"] == first != second
    assert len(receiver.requests(f"/invoices/{number}")) == 1
    after = invoices.record("invoice.finalize", f"invoice:{number}:finalize")
    assert after == record
    assert invoices.dead(lambda message: f"invoice:{number}:" in str(message)) == []


def test_all_languages_ask_for_one_operation(invoices, receiver, tmp_path):
    """White space and the order of fields differ among them: it is one payload all the same."""
    sent = {sends(language, snippet(language), invoices, tmp_path) for language in LANGUAGES}
    invoices.wait_record("invoice.finalize", KEY, "completed")
    invoices.wait_drained()

    assert len(sent) == len(LANGUAGES)
    assert len(receiver.requests("/invoices/42")) == 1
    assert invoices.dead(lambda message: KEY in str(message)) == []
