"""Commands that are spoken with while they run, and those that go on without their client, for threads."""

from __future__ import annotations

import signal
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Callable, Deque, List, Optional, Union

from . import _requests as requests
from ._connection import ANSWER, WORK
from ._errors import Call
from ._streams import ExecStream
from ._wire import time_of
from .exceptions import CommandTimeoutError, ConnectionError, ExecEndedError


@dataclass
class DetachedExec:
    """A command that keeps running without its client."""

    exec_id: str
    argv: List[str]
    """The program and its arguments, or the text of a session's command; its beginning, if it is longer than 4 KiB."""
    session_id: Optional[str] = None
    """The session whose command it is."""
    started_at: Optional[datetime] = None
    exit_code: Optional[int] = None
    """None while it runs; 128 and its number where a signal ended the command, 124 at a time-out."""

    @property
    def running(self) -> bool:
        """Whether it has not ended."""
        return self.exit_code is None


class Input:
    """What a client says to a command: an iterator for gRPC's own thread, which may not outlive the call."""

    MOST = 16
    """Messages that wait, each of at most 64 KiB."""

    def __init__(self, first: Any) -> None:
        self._changed = threading.Condition()
        self._waiting: Deque[Any] = deque([first])
        self._ended = False

    def __iter__(self) -> Input:
        return self

    def __next__(self) -> Any:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._ended)
            if self._ended:
                raise StopIteration
            self._changed.notify_all()
            return self._waiting.popleft()

    def put(self, message: Any, limit: float) -> bool:
        """Pass a message on, and return whether the call still goes on. TimeoutError if nobody takes it in time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._ended or len(self._waiting) < self.MOST, limit):
                raise TimeoutError
            if not self._ended:
                self._waiting.append(message)
                self._changed.notify_all()
            return not self._ended

    def end(self) -> None:
        """Let nobody wait any more. Only once the call is over: to its server an end before means no more input."""
        with self._changed:
            self._ended = True
            self._waiting.clear()
            self._changed.notify_all()


class _Alarm:
    """Ends a stream that takes too long; in a ``with`` block."""

    def __init__(self, seconds: Optional[float], end: Callable[[], None]) -> None:
        self.rang = False
        self._end = end
        self._timer = None if seconds is None else threading.Timer(seconds, self._ring)

    def _ring(self) -> None:
        self.rang = True
        self._end()

    def __enter__(self) -> _Alarm:
        if self._timer is not None:
            self._timer.daemon = True
            self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None  # else the two would hold each other, and the stream, which ends when it is forgotten


class AttachedExec(ExecStream):
    """A command that is spoken with while it runs: an iterator of its output as bytes, both streams in one.

    ``chunks()`` tells them apart instead; a terminal has one. After the last piece ``exit_code``, ``denied`` and
    ``changed`` are set. Closing it, leaving its ``with`` block or forgetting it ends the command, unless that is
    detached: then it keeps running, and ``exec_id`` is its id for ``resume`` as long as the sandbox runs.

    One thread may read while others write. What sends something raises ExecEndedError once the command has ended, and
    ValueError for what makes no sense.
    """

    def __init__(self, call: Any, about: Call, said: Input) -> None:
        super().__init__(call, about)
        self._said = said
        self._input_closed = False
        self._unread: Any = None
        self.lost_bytes = 0
        """Bytes of its output that are kept no longer, where it was taken up."""
        if not call.add_callback(said.end):
            said.end()
        self._begin()

    def _begin(self) -> None:
        """Wait until the command runs."""
        with _Alarm(ANSWER, self.close) as alarm:
            message = super().read()
        if message is None:
            where = self._about.endpoint
            raise ConnectionError(where, f"attach: the server at {where} {'is late' if alarm.rang else 'said nothing'}")
        if message.HasField("exit_code") or message.data:
            self._unread = message
        self.ending.note(message)
        self.lost_bytes = message.lost_bytes

    def read(self) -> Any:
        """Return the next message, None at the end."""
        message, self._unread = self._unread, None
        return message or super().read()

    def wait(self, timeout: Optional[float] = None) -> int:
        """Drop what it still writes, and return its exit code.

        CommandTimeoutError if it has not ended after ``timeout`` seconds, and then it is closed. None is no limit.
        """
        with _Alarm(timeout, self.close) as alarm:
            for _ in self:
                pass
        if self.exit_code is None:
            if alarm.rang:
                raise CommandTimeoutError(self._about.command, timeout)
            raise ExecEndedError(self.exec_id, f"exec {self.exec_id}: it was left before its end")
        return self.exit_code

    def kill(self) -> int:
        """End the command at once, also a detached one, and return its exit code."""
        with suppress(ExecEndedError):
            self.signal(signal.SIGKILL)
        return self.wait(ANSWER)

    def write(self, data: Union[str, bytes]) -> None:
        """Send input; a text is sent in UTF-8.

        Waits while the command does not read; CommandTimeoutError after 10 minutes, and then it is closed.
        """
        if self._input_closed:
            raise ValueError("write: the input is closed")
        for message in requests.stdin(data):
            self._say(message)

    def close_stdin(self) -> None:
        """Say that no more input comes; on a terminal this is Ctrl-D. A second call does nothing."""
        if not self._input_closed:
            self._say(requests.stdin_end())
            self._input_closed = True

    def resize(self, rows: int, columns: int) -> None:
        """Give its terminal another size; without one nothing happens."""
        self._say(requests.resize(rows, columns))

    def signal(self, number: int) -> None:
        """Send it a signal, such as ``signal.SIGINT``. Whoever closes it at once may be faster than the signal."""
        self._say(requests.signal(number))

    def _say(self, message: Any) -> None:
        try:
            goes_on = not self._closed and self.exit_code is None and self._said.put(message, WORK)
        except TimeoutError:
            self.close()
            raise CommandTimeoutError(self._about.command, WORK, unread(WORK)) from None
        if not goes_on:
            raise ExecEndedError(self.exec_id)


def unread(seconds: float) -> str:
    """Say that a command does not read."""
    return f"write: the command has read nothing for {seconds:g} s"


def detached_exec_of(message: Any) -> DetachedExec:
    """Return a detached command of the API."""
    return DetachedExec(
        exec_id=message.exec_id,
        argv=list(message.argv),
        session_id=message.session_id or None,
        started_at=time_of(message.started_at),
        exit_code=message.exit_code if message.HasField("exit_code") else None,
    )
