"""Holds calls back between a worker and a server, until a test has decided what becomes of them."""

import queue

from . import processes

# Nothing is held longer than this, whatever a test forgets.
LIMIT = 60

RELEASE, FORWARD, DROP = "release", "forward", "drop"


class Barrier:
    """Within a `with`, holds the calls that `matches` accepts; at its end lets them all go."""

    def __init__(self, barriers, lock, matches):
        self._barriers, self._lock = barriers, lock
        self.matches = matches
        self._arrived = queue.Queue()
        self._held = []
        self._is_over = False

    def wait(self, timeout=45):
        """The next call that is held."""
        try:
            return self._arrived.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"no call was held within {timeout} s") from None

    def hold(self, call):
        """Called by the forwarder, with a call that matches."""
        held = Held(call)
        with self._lock:
            self._held.append(held)
            if self._is_over:
                held.release()
        self._arrived.put(held)
        return held

    def __enter__(self):
        with self._lock:
            self._barriers.append(self)
        return self

    def __exit__(self, *_):
        with self._lock:
            self._barriers.remove(self)
            self._is_over = True
            for held in self._held:
                held.release()


class Held:
    """One call that is held back: the server has not seen it until `forward` or `release`."""

    def __init__(self, call):
        self.call = call
        # Now, while its connection is certain to be there.
        self.pid = processes.connected(*call.ports)
        self._decisions = queue.Queue()
        self._answered = queue.Queue()

    def release(self):
        """Lets it go its way, and its answer, too."""
        self._decisions.put(RELEASE)

    def forward(self, timeout=45):
        """Lets it reach the server, and holds the answer back, which is returned."""
        self._decisions.put(FORWARD)
        try:
            return self._answered.get(timeout=timeout)
        except queue.Empty:
            raise AssertionError(f"the server has not answered within {timeout} s") from None

    def drop(self):
        """It comes no further, nor does its answer: its sender's connection is closed."""
        self._decisions.put(DROP)

    def answer_with(self, answer):
        """Its sender gets this answer, whether or not the server has seen it."""
        self._decisions.put(answer)

    # Called by the forwarder.

    def decision(self):
        try:
            return self._decisions.get(timeout=LIMIT)
        except queue.Empty:
            return DROP

    def answered(self, answer):
        self._answered.put(answer)
