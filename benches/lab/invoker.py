"""Lambda's runtime API for one process, served by the thread that invokes: between an event and its
answer there is nothing but their sockets, so that what is measured is the process.
"""

import json
import os
import selectors
import socket
import subprocess
import time
import uuid
from dataclasses import dataclass

PATIENCE = 120  # seconds for anything


@dataclass(frozen=True)
class Answer:
    failed: bool
    body: object
    seconds: float  # from the event's first byte to the answer's last


class Invoker:
    def __init__(self, command, env, cwd=None, log=subprocess.DEVNULL):
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listening, selectors.EVENT_READ)
        self._received = {}  # connection -> what came and is no whole request yet
        self._asking = []  # connections that wait for an event
        self._answer = None
        self.first_asked = None
        environment = {
            **os.environ,
            "AWS_LAMBDA_RUNTIME_API": "127.0.0.1:%d" % self._listening.getsockname()[1],
            "AWS_LAMBDA_FUNCTION_NAME": "worker",
            "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
            "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
            "AWS_LAMBDA_LOG_GROUP_NAME": "/aws/lambda/worker",
            "AWS_LAMBDA_LOG_STREAM_NAME": "bench",
            **env,
        }
        # Roots beside those of SSL_CERT_FILE, where the machine sets it: no Lambda has it.
        environment.pop("SSL_CERT_DIR", None)
        self.spawned = time.perf_counter()
        self.process = subprocess.Popen(
            [str(part) for part in command], env=environment, cwd=cwd, stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )

    def wait_ready(self):
        """Returns once the process asks for an event; milliseconds from its start to the first time."""
        self._serve_until(lambda: self._asking, "/next")
        return (self.first_asked - self.spawned) * 1000

    def invoke(self, payload):
        """The process's answer; returns once it also asks for the next event."""
        self.wait_ready()
        request_id, self._answer = str(uuid.uuid4()), None
        head = (
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            f"Lambda-Runtime-Aws-Request-Id: {request_id}\r\n"
            f"Lambda-Runtime-Deadline-Ms: {int((time.time() + PATIENCE) * 1000)}\r\n"
            "Lambda-Runtime-Invoked-Function-Arn: arn:aws:lambda:us-east-1:000000000000:function:worker\r\n"
            f"Content-Length: {len(payload)}\r\n\r\n"
        ).encode()
        begun = time.perf_counter()
        self._send(self._asking.pop(), head + payload)
        self._serve_until(lambda: self._answer, "an answer")
        path, body, at = self._answer
        self.wait_ready()
        answered_id, kind = path.split("/")[-2:]
        if answered_id != request_id:
            raise RuntimeError("the answer is for another invocation")
        return Answer(kind == "error", json.loads(body), at - begun)

    def cpu(self):
        """Seconds of processor time so far, of all its threads, ended ones too, to the nanosecond."""
        # What clock_getcpuclockid answers for a process: its number inverted, and which of its clocks.
        return time.clock_gettime((~self.process.pid << 3) | 2)

    def memory(self):
        """Bytes: resident now, and at most so far."""
        found = {}
        with open(f"/proc/{self.process.pid}/status") as status:
            for line in status:
                name, _, value = line.partition(":")
                if name in ("VmRSS", "VmHWM"):
                    found[name] = int(value.split()[0]) * 1024
        return found["VmRSS"], found["VmHWM"]

    def close(self):
        self.process.kill()
        self.process.wait(timeout=10)
        for connection in (*self._received, self._listening):
            connection.close()
        self._selector.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def _serve_until(self, done, what):
        deadline = time.monotonic() + PATIENCE
        while not done():
            # Cut, so that a process that has ended is told at once.
            for key, _ in self._selector.select(0.5):
                if key.fileobj is self._listening:
                    connection, _ = self._listening.accept()
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    self._received[connection] = bytearray()
                    self._selector.register(connection, selectors.EVENT_READ)
                else:
                    self._receive(key.fileobj)
            if done():
                return
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.process.args[0]} ended with {self.process.returncode} before {what}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"no {what} within {PATIENCE} s from {self.process.args[0]}")

    def _receive(self, connection):
        try:
            data = connection.recv(1 << 20)
        except ConnectionError:
            data = b""
        if not data:
            self._selector.unregister(connection)
            del self._received[connection]
            self._asking = [asking for asking in self._asking if asking is not connection]
            connection.close()
            return
        received = self._received[connection]
        received += data
        while request := whole(received):
            method, path, body = request
            if method == "GET":
                self.first_asked = self.first_asked or time.perf_counter()
                self._asking.append(connection)
            elif "/runtime/init/" in path:
                raise RuntimeError(f"{self.process.args[0]} cannot start: {body.decode(errors='replace')}")
            else:
                self._answer = (path, bytes(body), time.perf_counter())
                self._send(connection, b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n")

    def _send(self, connection, data):
        connection.settimeout(PATIENCE)
        connection.sendall(data)


def whole(received):
    """Takes the first whole request out of what came: method, path and body."""
    end = received.find(b"\r\n\r\n")
    if end < 0:
        return None
    lines = received[:end].decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    at = end + 4
    if headers.get("transfer-encoding", "").lower() == "chunked":
        found = chunks(received, at)
        if found is None:
            return None
        body, at = found
    else:
        length = int(headers.get("content-length", 0))
        if len(received) < at + length:
            return None
        body, at = received[at:at + length], at + length
    del received[:at]
    return method, path, body


def chunks(received, at):
    """A body in chunks, and where it ends; none while it has not come whole."""
    body = bytearray()
    while (end := received.find(b"\r\n", at)) >= 0:
        size = int(received[at:end].split(b";")[0], 16)
        at = end + 2
        if len(received) < at + size + 2:
            return None
        body += received[at:at + size]
        at += size + 2
        if size == 0:
            return body, at
    return None
