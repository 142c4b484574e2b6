"""stripe-stateful-mock: a payment provider that honours idempotency keys, in a process of its own."""

import json
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from .emulator import free_port
from .processes import end_group

PROGRAM = Path(__file__).resolve().parents[1] / "node_modules/stripe-stateful-mock/dist/cli.js"

# It takes any key of this form.
TOKEN = "Bearer sk_test_of_the_tests"


class Stripe:
    def __init__(self, home):
        """Starts it; returns once it takes connections."""
        assert PROGRAM.exists(), f"{PROGRAM} is missing: it comes with `make tools`"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = home / "stripe.log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["node", str(PROGRAM)], stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
                env={**os.environ, "PORT": str(self.port), "LOG_LEVEL": "error"},
            )
        try:
            self._wait_ready(30)
        except BaseException:
            self.close()
            raise

    def charges(self):
        """All charges it has made, declined ones too, the oldest first."""
        made = self._get("/v1/charges")["data"]
        # A list gives them the youngest first, by whole seconds.
        return sorted(made, key=lambda charge: charge["created"])

    def charge(self, id):
        return self._get(f"/v1/charges/{id}")

    def close(self):
        end_group(self.process)

    def _get(self, path):
        request = urllib.request.Request(self.url + path, headers={"Authorization": TOKEN})
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def _wait_ready(self, timeout):
        deadline = time.monotonic() + timeout
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"the Stripe mock ended at its start:\n{self.log.read_text()[-2000:]}")
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=2).close()
                return
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise RuntimeError(f"the Stripe mock does not answer:\n{self.log.read_text()[-2000:]}")
            time.sleep(0.05)
