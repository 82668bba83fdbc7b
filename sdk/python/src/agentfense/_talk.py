"""A call to which messages can be written while it runs, for threads. gRPC offers this for event loops only."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any, Deque


class Outbox:
    """The messages that a client sends: an iterator for a thread of gRPC, which must end with the call."""

    MOST = 16
    """The most messages that wait. A message has at most 64 KiB."""

    def __init__(self, first: Any) -> None:
        self._changed = threading.Condition()
        self._waiting: Deque[Any] = deque([first])
        self._ended = False

    def __iter__(self) -> Outbox:
        return self

    def __next__(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            if self._ended:
                raise StopIteration
            self._changed.notify_all()
            return self._waiting.popleft()

    def put(self, message: Any, limit: float) -> bool:
        """Add a message, and return whether the call still runs.

        Raises TimeoutError if gRPC has not taken enough messages after ``limit`` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended or len(self._waiting) < self.MOST, limit):
                raise TimeoutError
            if not self._ended:
                self._waiting.append(message)
                self._changed.notify_all()
            return not self._ended

    def end(self) -> None:
        """Release all waiting threads.

        Call this only after the end of the call: to the server, an earlier end is an end of input.
        """
        with self._changed:
            self._ended = True
            self._waiting.clear()
            self._changed.notify_all()


class Talk:
    """A call and its outgoing messages."""

    def __init__(self, call: Any, sent: Outbox) -> None:
        self._call = call
        self._sent = sent
        if not call.add_callback(sent.end):
            sent.end()

    def __next__(self) -> Any:
        return next(self._call)

    def write(self, message: Any, limit: float) -> bool:
        """Send a message, and return whether the call still runs; TimeoutError after ``limit`` seconds."""
        return self._sent.put(message, limit)

    def cancel(self) -> None:
        """End the call."""
        self._call.cancel()
