# Made from async_attach.py by make gen: do not edit.

"""Commands that are spoken with while they run, for threads."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Optional, Union

from . import _requests as requests
from ._attach import Attached
from ._connection import ANSWER
from .exceptions import CommandTimeoutError, ExecEndedError


class AttachedExec(Attached):
    """A command that is spoken with while it runs: an iterator of its output, both streams in one.

    ``chunks()`` yields the pieces with their streams instead; a terminal has one stream. After the last piece
    ``exit_code``, ``denied`` and ``changed`` are set. Closing it, leaving its ``with`` block or forgetting it
    ends the command, unless the command is detached: then it keeps running, and ``exec_id`` is its id for ``resume``
    as long as the sandbox runs.

    One thread may read while others write. What sends something raises ExecEndedError once the command has ended,
    and ValueError for what makes no sense.
    """

    _input_closed = False

    def wait(self, timeout: Optional[float] = None) -> int:
        """Drop what it still writes, and return its exit code.

        CommandTimeoutError if it has not ended after ``timeout`` seconds, and then it is closed. None is no limit.
        """
        in_time = self._drain(timeout)
        if self.exit_code is None:
            if not in_time:
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

    def _undo(self) -> None:
        """End what was started in spite of a cancellation: a detached command too, whose id nobody would know."""
        if self._detach:
            self.kill()
        else:
            super()._undo()
