"""Stands between a worker and a server: passes requests on, keeps them, and holds chosen ones back."""

import http.client
import json
import sys
import threading
import time
from dataclasses import dataclass
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from .barrier import DROP, FORWARD, RELEASE, Barrier
from .receiver import address_for, read_body

# Belong to one connection, or are set anew for it, so they are not forwarded.
OWN = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "content-length"}
# A response gets these from our own server.
OWN_ANSWER = OWN | {"server", "date"}


@dataclass(eq=False)
class Call:
    """A request as it was sent."""

    method: str
    path: str
    headers: dict  # names in lower case
    body: bytes
    at: float
    # The ports of the connection it came on, its sender's first.
    ports: tuple
    # Of the answer that the server gave; none as long as there is none.
    status: int | None = None

    @property
    def target(self):
        return self.headers.get("x-amz-target", "")

    @property
    def operation(self):
        return self.target.rsplit(".", 1)[-1]

    @cached_property
    def json(self):
        return json.loads(self.body)


@dataclass(frozen=True)
class Answered:
    """What it is answered."""

    status: int
    headers: list
    body: bytes


class Forwarder:
    def __init__(self, upstream, host="127.0.0.1"):
        target = urlsplit(upstream)
        self._changed = threading.Condition()
        self._calls = []
        self._barriers = []
        forwarder = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body are two writes: the second would wait 40 ms for the first to be acknowledged.
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def _forward(self):
                body = read_body(self)
                headers = {name.lower(): value for name, value in self.headers.items()}
                ports = (self.client_address[1], forwarder.port)
                call = Call(self.command, self.path, headers, body, time.monotonic(), ports)
                answer = forwarder._pass(call, self.headers.items(), target)
                if answer is None:
                    self.close_connection = True
                    return
                self.send_response(answer.status)
                for name, value in answer.headers:
                    if name.lower() not in OWN_ANSWER:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _forward

        self._server = Server((address_for(host), 0), Handler)
        self.port = self._server.server_port
        self.url = f"http://{host}:{self.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def barrier(self, matches):
        """Holds the calls back that `matches` accepts, as long as it is entered."""
        return Barrier(self._barriers, self._changed, matches)

    def requests(self, matches=lambda call: True):
        """The calls that came, as they were sent, in their order."""
        with self._changed:
            return [call for call in self._calls if matches(call)]

    def wait_for(self, count, matches=lambda call: True, timeout=45):
        """The calls that the server has answered, as soon as there are `count` of them."""
        with self._changed:
            found = lambda: [call for call in self._calls if call.status is not None and matches(call)]
            if not self._changed.wait_for(lambda: len(found()) >= count, timeout):
                raise AssertionError(f"{len(found())} of {count} calls after {timeout} s")
            return found()

    def reset(self):
        with self._changed:
            self._calls.clear()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def _pass(self, call, headers, target):
        """The answer to a call; none if it is dropped."""
        with self._changed:
            self._calls.append(call)
        barrier = self._barrier_for(call)
        if barrier is None:
            return self._ask(call, headers, target)
        held = barrier.hold(call)
        answer, decision = None, held.decision()
        if decision in (RELEASE, FORWARD):
            answer = self._ask(call, headers, target)
        if decision == FORWARD:
            held.answered(answer)
            decision = held.decision()
        if decision == DROP:
            return None
        return decision if isinstance(decision, Answered) else answer

    def _ask(self, call, headers, target):
        answer = ask(target, call.method, call.path, headers, call.body)
        with self._changed:
            call.status = answer.status
            self._changed.notify_all()
        return answer

    def _barrier_for(self, call):
        with self._changed:
            barriers = list(self._barriers)
        return next((barrier for barrier in barriers if barrier.matches(call)), None)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        # A client that was killed, or would not wait any longer, is no fault of ours.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


def ask(target, method, path, headers, body):
    headers = {name: value for name, value in headers if name.lower() not in OWN}
    headers["Content-Length"] = str(len(body))
    upstream = http.client.HTTPConnection(target.hostname, target.port, timeout=60)
    try:
        upstream.request(method, path, body, headers)
        answer = upstream.getresponse()
        return Answered(answer.status, answer.getheaders(), answer.read())
    finally:
        upstream.close()
