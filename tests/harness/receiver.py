"""The other side of an `http` effect: an HTTP server that remembers what reached it."""

import threading
import time
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: dict  # names in lower case
    body: bytes
    at: float


class Receiver:
    """Answers 200, or what `answer` said for the path, and wakes whoever awaits an arrival."""

    def __init__(self, host="127.0.0.1"):
        self._arrived = threading.Condition()
        self._requests = []
        self._answers = {}
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Head and body are two writes: the second would wait 40 ms for the first to be acknowledged.
            disable_nagle_algorithm = True

            def log_message(self, *_):
                pass

            def _serve(self):
                body = read_body(self)
                status, headers = receiver._record(self.command, self.path, self.headers, body)
                answer = b'{"ok":true}'
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

        self._server = ThreadingHTTPServer((address_for(host), 0), Handler)
        self._server.daemon_threads = True
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, path, *statuses, headers=None):
        """Answers `path` with these statuses in turn; the last one stays."""
        with self._arrived:
            self._answers[path] = [(status, headers or {}) for status in statuses]

    def requests(self, path):
        with self._arrived:
            return [request for request in self._requests if request.path == path]

    def wait_for(self, path, count=1, timeout=45):
        """The requests to `path`, as soon as there are `count` of them."""
        with self._arrived:
            found = lambda: [request for request in self._requests if request.path == path]
            if not self._arrived.wait_for(lambda: len(found()) >= count, timeout):
                raise AssertionError(
                    f"{path}: {len(found())} of {count} requests after {timeout} s; "
                    f"seen elsewhere: {sorted({r.path for r in self._requests})}"
                )
            return found()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def _record(self, method, path, headers, body):
        with self._arrived:
            headers = {name.lower(): value for name, value in headers.items()}
            self._requests.append(Request(method, path, headers, body, time.monotonic()))
            answers = self._answers.get(path) or [(200, {})]
            answer = answers.pop(0) if len(answers) > 1 else answers[0]
            self._arrived.notify_all()
            return answer


def address_for(host):
    """Where to listen to be reached as `host`: other than the loopback, it is a container's way in."""
    return "127.0.0.1" if host == "127.0.0.1" else "0.0.0.0"


def read_body(handler):
    """The body of a request, whether it came with a length or in chunks."""
    if "chunked" not in handler.headers.get("Transfer-Encoding", "").lower():
        return handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
    chunks = []
    while size := int(handler.rfile.readline().strip() or b"0", 16):
        chunks.append(handler.rfile.read(size))
        handler.rfile.readline()
    handler.rfile.readline()
    return b"".join(chunks)
