"""Lambda's runtime API for one worker process: hands it events and takes its answers.

The emulators' own event source only sends events that are well formed. This one sends anything,
shows the exact answer, and tells when the worker first asked for work.
"""

import json
import os
import queue
import subprocess
import threading
import time
import uuid
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from .receiver import read_body


@dataclass(frozen=True)
class Answer:
    failed: bool  # the invocation ended in an error
    body: object


class Runtime:
    """A worker process behind a runtime API of its own."""

    def __init__(self, binary, env, cwd=None, log=None):
        self._events = queue.Queue()
        self._answers = {}
        self._answered = threading.Condition()
        self._asked = threading.Event()
        self._stopped = threading.Event()
        self.init_error = None
        runtime = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body are two writes: the second would wait 40 ms for the first to be acknowledged.
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def do_GET(self):
                if not self.path.endswith("/runtime/invocation/next"):
                    return self._reply(404)
                runtime._mark_asked()
                event = runtime._next()
                if event is None:
                    self.close_connection = True
                    return
                request_id, timeout, payload = event
                self._reply(200, payload, {
                    "Lambda-Runtime-Aws-Request-Id": request_id,
                    "Lambda-Runtime-Deadline-Ms": str(int((time.time() + timeout) * 1000)),
                    "Lambda-Runtime-Invoked-Function-Arn": FUNCTION_ARN,
                })

            def do_POST(self):
                body = read_body(self)
                kind = self.path.rsplit("/", 1)[-1]
                if "/runtime/init/" in self.path:
                    runtime.init_error = body.decode(errors="replace")
                    runtime._mark_asked()
                elif kind in ("response", "error"):
                    request_id = self.path.split("/")[-2]
                    runtime._take(request_id, Answer(kind == "error", parsed(body)))
                self._reply(202)

            def _reply(self, status, body=b"", headers=None):
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        environment = {
            **os.environ,
            "AWS_LAMBDA_RUNTIME_API": f"127.0.0.1:{self._server.server_port}",
            "AWS_LAMBDA_FUNCTION_NAME": "worker",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_LOG_GROUP_NAME": "/aws/lambda/worker",
            "AWS_LAMBDA_LOG_STREAM_NAME": "test",
            **env,
        }
        self.first_asked_ms = None
        self._spawned = time.perf_counter()
        self.process = subprocess.Popen(
            [str(binary)], env=environment, cwd=cwd, stdout=log, stderr=subprocess.STDOUT if log else None
        )

    def wait_ready(self, timeout=20):
        """Returns once the worker asks for its first event; milliseconds since its start."""
        deadline = time.monotonic() + timeout
        # The wait is cut so that a worker that dies at its start is told at once.
        while not self._asked.wait(0.05):
            if self.process.poll() is not None:
                raise AssertionError(f"the worker ended with {self.process.returncode} before /next")
            if time.monotonic() > deadline:
                raise AssertionError(f"no /next within {timeout} s")
        return self.first_asked_ms

    def invoke(self, event, timeout=10):
        """Sends `event` (bytes as they are, else as JSON) and returns the worker's `Answer`."""
        return self.answer_to(self.begin(event, timeout), timeout + 5)

    def begin(self, event, timeout=10):
        """Sends `event` and returns the id of its invocation, which has `timeout` seconds."""
        payload = event if isinstance(event, bytes) else json.dumps(event).encode()
        request_id = str(uuid.uuid4())
        self._events.put((request_id, timeout, payload))
        return request_id

    def answer_to(self, request_id, timeout=15):
        """The worker's `Answer` to an invocation that has begun."""
        with self._answered:
            if not self._answered.wait_for(lambda: request_id in self._answers, timeout):
                raise AssertionError(f"no answer within {timeout} s")
            return self._answers.pop(request_id)

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            for line in status:
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) * 1024
        raise AssertionError("no VmRSS: the worker is gone")

    def close(self):
        self._stopped.set()
        self.process.kill()
        self.process.wait(timeout=10)
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _take(self, request_id, answer):
        with self._answered:
            assert request_id not in self._answers, "an invocation is answered once"
            self._answers[request_id] = answer
            self._answered.notify_all()

    def _mark_asked(self):
        if self.first_asked_ms is None:
            self.first_asked_ms = (time.perf_counter() - self._spawned) * 1000
            self._asked.set()

    def _next(self):
        while not self._stopped.is_set():
            try:
                return self._events.get(timeout=0.2)
            except queue.Empty:
                continue
        return None


FUNCTION_ARN = "arn:aws:lambda:us-east-1:000000000000:function:worker"


def parsed(body):
    try:
        return json.loads(body)
    except ValueError:
        return body.decode(errors="replace")
