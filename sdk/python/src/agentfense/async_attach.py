"""Commands that are spoken with while they run, for an event loop."""

from __future__ import annotations

import asyncio
import signal
from contextlib import suppress
from typing import Any, Awaitable, Callable, Generator, Optional, Union

import grpc

from . import _requests as requests
from ._connection import ANSWER, WORK, AsyncConnection
from ._errors import Call
from ._streams import AsyncExecStream
from .attach import unread
from .exceptions import CommandTimeoutError, ConnectionError, ExecEndedError


class AsyncAttachedExec(AsyncExecStream):
    """A command that is spoken with while it runs: an asynchronous iterator of its output, both streams in one.

    ``chunks()`` tells them apart instead; a terminal has one. The command starts when this is awaited, entered by
    ``async with``, or used in another way. After the last piece ``exit_code``, ``denied`` and ``changed`` are set.
    Closing it, leaving its ``async with`` block or forgetting it ends the command, unless that is detached: then it
    keeps running, and ``exec_id`` is its id for ``resume`` as long as the sandbox runs.

    One task may read while others write. Each method but ``aclose`` raises ExecEndedError once the command has ended,
    and ValueError for what makes no sense.
    """

    def __init__(self, start: Callable[[], Awaitable[Any]], about: Call, connection: AsyncConnection) -> None:
        super().__init__(start, about, connection)
        self._begun = False
        self._beginning = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._input_closed = False
        self._unread: Any = None
        self.lost_bytes = 0
        """Bytes of its output that are kept no longer, where it was taken up."""

    async def open(self) -> AsyncAttachedExec:
        """Start the command, unless that is done, and return this when it runs."""
        async with self._beginning:
            if not self._begun:
                await self._connection.finish(self._begin(), lambda _: self._undo())
        return self

    async def _begin(self) -> None:
        """Wait until the command runs."""
        endpoint = self._connection.about(self._about).endpoint
        try:
            message = await asyncio.wait_for(super().read(), ANSWER)
        except asyncio.TimeoutError:
            raise ConnectionError(endpoint, f"attach: the server at {endpoint} is late") from None
        if message is None:
            raise ExecEndedError(self.exec_id, "attach: it was left before it began")
        self._begun = True
        if message.HasField("exit_code") or message.data:
            self._unread = message
        self.ending.note(message)
        self.lost_bytes = message.lost_bytes

    async def _undo(self) -> None:
        """End what was started for somebody who does not want it any more."""
        await self.aclose()

    def __await__(self) -> Generator[Any, None, AsyncAttachedExec]:
        return self.open().__await__()

    async def __aenter__(self) -> AsyncAttachedExec:
        return await self.open()

    async def read(self) -> Any:
        """Return the next message, None at the end."""
        await self._ensure_open()
        message, self._unread = self._unread, None
        return message or await super().read()

    async def _ensure_open(self) -> None:
        if not self._begun and not self._closed:
            await self.open()

    async def wait(self, timeout: Optional[float] = None) -> int:
        """Drop what it still writes, and return its exit code.

        CommandTimeoutError if it has not ended after ``timeout`` seconds, and then it is closed. None is no limit.
        """
        try:
            await asyncio.wait_for(self._drain(), timeout)
        except asyncio.TimeoutError:
            raise CommandTimeoutError(self._about.command, timeout) from None
        if self.exit_code is None:
            raise ExecEndedError(self.exec_id, f"exec {self.exec_id}: it was left before its end")
        return self.exit_code

    async def _drain(self) -> None:
        async for _ in self:
            pass

    async def kill(self) -> int:
        """End the command at once, also a detached one, and return its exit code."""
        with suppress(ExecEndedError):
            await self.signal(signal.SIGKILL)
        return await self.wait(ANSWER)

    async def write(self, data: Union[str, bytes]) -> None:
        """Send input; a text is sent in UTF-8.

        Waits while the command does not read; CommandTimeoutError after 10 minutes, and then it is closed.
        """
        if self._input_closed:
            raise ValueError("write: the input is closed")
        for message in requests.stdin(data):
            await self._say(message)

    async def close_stdin(self) -> None:
        """Say that no more input comes; on a terminal this is Ctrl-D. A second call does nothing."""
        if not self._input_closed:
            await self._say(requests.stdin_end())
            self._input_closed = True

    async def resize(self, rows: int, columns: int) -> None:
        """Give its terminal another size; without one nothing happens."""
        await self._say(requests.resize(rows, columns))

    async def signal(self, number: int) -> None:
        """Send it a signal, such as ``signal.SIGINT``. Whoever closes it at once may be faster than the signal."""
        await self._say(requests.signal(number))

    async def _say(self, message: Any) -> None:
        await self._ensure_open()
        try:
            async with self._writing:
                if self._closed or self.exit_code is not None:
                    raise ExecEndedError(self.exec_id)
                await asyncio.wait_for(self._call.write(message), WORK)
        except asyncio.TimeoutError:
            await self.aclose()
            raise CommandTimeoutError(self._about.command, WORK, unread(WORK)) from None
        except (asyncio.InvalidStateError, grpc.RpcError):
            raise ExecEndedError(self.exec_id) from None


class AsyncDetaching(AsyncAttachedExec):
    """One whose command goes on; unless whoever starts it is cancelled meanwhile, who could not know its name."""

    async def _undo(self) -> None:
        await self.kill()
