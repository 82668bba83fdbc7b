"""Attached commands: what differs between threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Awaitable, Callable, Generator, Optional, TypeVar

import grpc

from ._async_output import AsyncExecStream
from ._connection import ANSWER, WORK, AsyncConnection, Connection
from ._errors import Call
from ._output import ExecStream
from .exceptions import CommandTimeoutError, ConnectionError, ExecEndedError

A = TypeVar("A", bound="AsyncAttached")


class _Attached:
    """What both kinds have in common."""

    lost_bytes: int = 0
    """The number of bytes of output that the supervisor no longer had when ``resume`` reconnected."""

    _about: Call
    _unread: Any = None
    """The first message, if it has output or the exit code."""

    def _note_first(self, message: Any) -> None:
        if message.HasField("exit_code") or message.data:
            self._unread = message
        self.lost_bytes = message.lost_bytes

    def _late(self, endpoint: str) -> ConnectionError:
        return ConnectionError(endpoint, f"attach: the server at {endpoint} does not answer within {ANSWER:g} s")

    def _unheard(self) -> CommandTimeoutError:
        return CommandTimeoutError(self._about.command, WORK, f"write: the command has read nothing for {WORK:g} s")


class _Alarm:
    """A context manager that ends a stream after a number of seconds."""

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
            self._timer = None  # else a reference cycle would keep the stream, which must end when it is dropped


class Attached(_Attached, ExecStream):
    """An attached command, for threads. Making it starts the command."""

    def __init__(self, start: Callable[[], Any], about: Call, connection: Connection, detach: bool = False) -> None:
        self._detach = detach
        super().__init__(start, about, connection)

    def _begin(self) -> None:
        if self._detach:
            self._connection.finish(self._begin_command, lambda _: self._undo())
        else:
            self._begin_command()

    def _undo(self) -> None:
        """End a command that started in spite of an interrupt."""
        self.close()

    def _begin_command(self) -> None:
        """Start the command, and wait until it runs."""
        super()._begin()
        with _Alarm(ANSWER, self.close) as alarm:
            message = super().read()
        if message is None:
            where = self._about.endpoint
            raise (
                self._late(where)
                if alarm.rang
                else ConnectionError(where, f"attach: the server at {where} ended the call without an answer")
            )
        self._ending.note(message)
        self._note_first(message)

    def read(self) -> Any:
        """Return the next message, None at the end."""
        message, self._unread = self._unread, None
        return message or super().read()

    def _drain(self, timeout: Optional[float]) -> bool:
        """Discard the remaining output, and return whether it ended within ``timeout`` seconds."""
        with _Alarm(timeout, self.close) as alarm:
            for _ in self:
                pass
        return not alarm.rang

    def _say(self, message: Any) -> None:
        try:
            runs = not self._closed and self.exit_code is None and self._call.write(message, WORK)
        except TimeoutError:
            self.close()
            raise self._unheard() from None
        if not runs:
            raise ExecEndedError(self.exec_id)


class AsyncAttached(_Attached, AsyncExecStream):
    """An attached command, for an event loop. Awaiting, entering or using it starts the command."""

    def __init__(
        self, start: Callable[[], Awaitable[Any]], about: Call, connection: AsyncConnection, detach: bool = False
    ) -> None:
        self._detach = detach
        super().__init__(start, about, connection)
        self._begun = False
        self._beginning = asyncio.Lock()
        self._writing = asyncio.Lock()

    async def _open(self: A) -> A:
        """Start the command if it has not started, and return this when it runs."""
        async with self._beginning:
            if not self._begun:
                await self._connection.finish(self._begin, lambda _: self._undo())
        return self

    async def _undo(self) -> None:
        """End a command that started in spite of a cancellation."""
        await self.aclose()

    async def _begin(self) -> None:
        """Start the command, and wait until it runs."""
        try:
            message = await asyncio.wait_for(super().read(), ANSWER)
        except asyncio.TimeoutError:
            raise self._late(self._connection.about(self._about).endpoint) from None
        if message is None:
            raise ExecEndedError(self.exec_id, "attach: it was closed before the command started")
        self._begun = True
        self._ending.note(message)
        self._note_first(message)

    def __await__(self: A) -> Generator[Any, None, A]:
        return self._open().__await__()

    async def __aenter__(self: A) -> A:
        return await self._open()

    async def _ensure_open(self) -> None:
        if not self._begun and not self._closed:
            await self._open()

    async def read(self) -> Any:
        """Return the next message, None at the end."""
        await self._ensure_open()
        message, self._unread = self._unread, None
        return message or await super().read()

    async def _drain(self, timeout: Optional[float]) -> bool:
        """Discard the remaining output, and return whether it ended within ``timeout`` seconds."""
        try:
            await asyncio.wait_for(self._drained(), timeout)
        except asyncio.TimeoutError:
            return False
        return True

    async def _drained(self) -> None:
        async for _ in self:
            pass

    async def _say(self, message: Any) -> None:
        await self._ensure_open()
        try:
            async with self._writing:
                if self._closed or self.exit_code is not None:
                    raise ExecEndedError(self.exec_id)
                await asyncio.wait_for(self._call.write(message), WORK)
        except asyncio.TimeoutError:
            await self.aclose()
            raise self._unheard() from None
        except (asyncio.InvalidStateError, grpc.RpcError):
            raise ExecEndedError(self.exec_id) from None
