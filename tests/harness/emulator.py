"""MiniStack: DynamoDB, SQS, Lambda with a real event source, and CloudFormation, in one process."""

import os
import socket
import subprocess
import sys
import time
import urllib.request

from .processes import end_group

CREDENTIALS = {
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    # Keeps every SDK from looking at the developer's own accounts, or at a metadata server.
    "AWS_CONFIG_FILE": "/dev/null",
    "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
    "AWS_EC2_METADATA_DISABLED": "true",
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class MiniStack:
    def __init__(self, program, home, env):
        """Starts `program` with its files under `home`; returns once it answers."""
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = home / "ministack.log"
        environment = {
            **env,
            "GATEWAY_PORT": str(self.port),
            "BIND_HOST": "127.0.0.1",
            "MINISTACK_HOST": "127.0.0.1",
            "TMPDIR": str(home),
        }
        # It would force its own endpoint on every function, and the counting proxy would see none.
        environment.pop("AWS_ENDPOINT_URL", None)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                [str(program)], env=environment, stdout=log, stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._wait_ready(60)
        except BaseException:
            self.close()
            raise

    def close(self):
        end_group(self.process)

    def _wait_ready(self, timeout):
        deadline = time.monotonic() + timeout
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"MiniStack ended at its start:\n{self.log.read_text()[-2000:]}")
            try:
                with urllib.request.urlopen(f"{self.url}/_ministack/health", timeout=2) as answer:
                    if answer.status == 200:
                        return
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise RuntimeError(f"MiniStack does not answer:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.1)
