"""A forwarder in front of an AWS endpoint that counts the calls by their X-Amz-Target."""

import collections
import http.client
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

from .receiver import address_for, read_body

# Belong to one connection, or are set anew for it, so they are not forwarded.
OWN = {"connection", "keep-alive", "transfer-encoding", "te", "trailer", "upgrade", "content-length"}
# A response gets these from our own server.
OWN_ANSWER = OWN | {"server", "date"}


class CountingProxy:
    def __init__(self, upstream, host="127.0.0.1"):
        target = urlsplit(upstream)
        self._lock = threading.Lock()
        self._calls = collections.Counter()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def _forward(self):
                body = read_body(self)
                proxy._count(self.headers.get("X-Amz-Target", ""))
                headers = {k: v for k, v in self.headers.items() if k.lower() not in OWN}
                headers["Content-Length"] = str(len(body))
                upstream = http.client.HTTPConnection(target.hostname, target.port, timeout=60)
                try:
                    upstream.request(self.command, self.path, body, headers)
                    answer = upstream.getresponse()
                    content = answer.read()
                finally:
                    upstream.close()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in OWN_ANSWER:
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _forward

        self._server = ThreadingHTTPServer((address_for(host), 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def calls(self, service="DynamoDB"):
        """Operation -> number of calls, of one service, since the last `reset`."""
        with self._lock:
            return {
                target.rsplit(".", 1)[-1]: count
                for target, count in self._calls.items()
                if target.startswith(service)
            }

    def reset(self):
        with self._lock:
            self._calls.clear()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def _count(self, target):
        with self._lock:
            self._calls[target] += 1
