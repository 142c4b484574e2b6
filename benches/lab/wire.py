"""Passes bytes between a process and the store, counts them, may hold each answer back for a time,
and may be the store's TLS end. A process of its own, so that it takes no time from whoever measures.

    wire.py HOST:PORT SECONDS [CERTIFICATE KEY]     prints its port; then each line `read` is answered
                                                    with the bytes in and out since the last one
"""

import asyncio
import selectors
import ssl
import subprocess
import sys


class Wire:
    """The process, and what it counts."""

    def __init__(self, upstream, delay=0.0, certificate=None):
        command = [sys.executable, __file__, upstream.split("//")[-1], str(delay), *map(str, certificate or ())]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self._process.stdout.readline())
        self.url = f"{'https' if certificate else 'http'}://127.0.0.1:{self.port}"

    def read(self):
        """The bytes to the store and from it, since the last time."""
        print("read", file=self._process.stdin, flush=True)
        return tuple(map(int, self._process.stdout.readline().split()))

    def close(self):
        self._process.stdin.close()
        self._process.wait(timeout=10)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class End(asyncio.Protocol):
    """One end of a connection. What comes here goes to the other end, `delay` later."""

    def __init__(self, counts, index, delay):
        self.counts, self.index, self.delay = counts, index, delay
        self.transport = self.other = None
        self.early = []

    def connection_made(self, transport):
        self.transport = transport
        for data in self.early:
            transport.write(data)

    def data_received(self, data):
        self.counts[self.index] += len(data)
        if self.delay:
            asyncio.get_running_loop().call_later(self.delay, self.other.write, data)
        else:
            self.other.write(data)

    def write(self, data):
        if self.transport is None:
            self.early.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def connection_lost(self, _):
        if self.other and self.other.transport:
            self.other.transport.close()


class Inner(End):
    """The end at the process, which opens the one at the store."""

    def __init__(self, counts, upstream, delay):
        super().__init__(counts, 0, 0)
        self.other = End(counts, 1, delay)
        self.other.other = self
        self.upstream = upstream

    def connection_made(self, transport):
        super().connection_made(transport)
        loop = asyncio.get_running_loop()
        self.opening = loop.create_task(loop.create_connection(lambda: self.other, *self.upstream))


async def serve(upstream, delay, certificate):
    counts = [0, 0]
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*certificate)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Inner(counts, upstream, delay), "127.0.0.1", 0, ssl=tls, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    asked = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(asked), sys.stdin)
    while await asked.readline():
        print(*counts, flush=True)
        counts[:] = 0, 0


def main(upstream, delay, *certificate):
    host, port = upstream.rsplit(":", 1)
    # Unlike the default one, which rounds a wait up to whole milliseconds, it waits as long as it is told.
    loop = asyncio.SelectorEventLoop(selectors.SelectSelector())
    try:
        loop.run_until_complete(serve((host, int(port)), float(delay), certificate))
    finally:
        loop.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
