"""Attached commands, for an event loop."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Optional, Union

from . import _requests as requests
from ._attach import AsyncAttached
from ._connection import ANSWER
from .exceptions import CommandTimeoutError, ExecEndedError


class AsyncAttachedExec(AsyncAttached):
    """A running command that you control: an asynchronous iterator of its output, with both streams merged.

    ``chunks()`` yields the pieces with their streams instead; a terminal has one stream. After the
    last piece ``exit_code``, ``denied`` and ``changed`` are set. Closing it, leaving its ``async
    with`` block or dropping it ends the command, unless the command is detached: then it keeps
    running, and ``exec_id`` is its id for ``resume`` as long as the sandbox runs.

    The command starts when this is awaited, entered by ``async with``, or used in another way.

    One task may read while others write. After the command has ended, methods that send something
    raise ExecEndedError.
    """

    _input_closed = False

    async def open(self) -> AsyncAttachedExec:  # async only
        """Start the command if it has not started, and return this when it runs."""
        return await self._open()

    async def wait(self, timeout: Optional[float] = None) -> int:
        """Discard the remaining output, and return the exit code.

        After ``timeout`` seconds, closes this and raises CommandTimeoutError. None means no limit.
        """
        in_time = await self._drain(timeout)
        if self.exit_code is None:
            if not in_time:
                raise CommandTimeoutError(self._about.command, timeout)
            raise ExecEndedError(self.exec_id, f"exec {self.exec_id}: it was closed before its end")
        return self.exit_code

    async def kill(self) -> int:
        """Kill the command, even a detached one, and return its exit code."""
        with suppress(ExecEndedError):
            await self.signal(signal.SIGKILL)
        return await self.wait(ANSWER)

    async def write(self, data: Union[str, bytes]) -> None:
        """Send input; a string is sent in UTF-8.

        Waits while the command does not read. After 10 minutes, closes this and raises
        CommandTimeoutError.
        """
        if self._input_closed:
            raise ValueError("write: the input is closed")
        for message in requests.stdin(data):
            await self._say(message)

    async def close_stdin(self) -> None:
        """End the input; on a terminal this is Ctrl-D. A second call does nothing."""
        if not self._input_closed:
            await self._say(requests.stdin_end())
            self._input_closed = True

    async def resize(self, rows: int, columns: int) -> None:
        """Set the size of the terminal. Without a terminal this does nothing."""
        await self._say(requests.resize(rows, columns))

    async def signal(self, number: int) -> None:
        """Send a signal, such as ``signal.SIGINT``. Closing this at once may overtake the signal."""
        await self._say(requests.signal(number))

    async def _undo(self) -> None:
        """End a command that started in spite of a cancellation: also a detached one, as nobody has its id."""
        if self._detach:
            await self.kill()
        else:
            await super()._undo()
