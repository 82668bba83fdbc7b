"""Changes of a sandbox's view as they happen. A watch that is closed, or forgotten, ends."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from typing import Any, AsyncIterator, Awaitable, Callable, Deque, Iterator, List, Optional

import grpc

from ._connection import ANSWER, AsyncConnection
from ._errors import Call
from ._results import file_change_of
from ._streams import AsyncStream, Stream
from .exceptions import ConnectionError
from .results import FileChange
from .words import ChangeKind


def _changes_of(message: Any, path: str) -> List[FileChange]:
    """Return what a message tells: what was lost first, because it came before."""
    lost = [FileChange(path, ChangeKind.LOST)] if message.lost else []
    return lost + [file_change_of(change) for change in message.changes]


_SOON = 0.1
"""Seconds before a watch's end in which a reset is that end: the server's clock may strike first."""


def _timed_out(error: Any, end: float) -> bool:
    """Tell whether a watch ended because its time was up, which it was at ``end``."""
    if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
        return True
    reset = error.code() == grpc.StatusCode.CANCELLED or "RST_STREAM" in (error.details() or "")
    return reset and time.monotonic() >= end - _SOON


def end_of(seconds: Optional[float]) -> float:
    """Return when a watch that begins now is at its end, on the monotonic clock."""
    return math.inf if seconds is None else time.monotonic() + seconds


def _unanswered(about: Call) -> ConnectionError:
    return ConnectionError(about.endpoint, f"the server at {about.endpoint} does not answer within {ANSWER:g} s")


class FileWatch(Stream[FileChange], Iterator[FileChange]):
    """What changes in a sandbox's view, from when it was made: an iterator that waits for the next change.

    It ends when the sandbox is stopped, when its time is up, or when it is closed, which another thread may do.
    """

    def __init__(self, call: Any, about: Call, path: str, end: float) -> None:
        super().__init__(call, about)
        self._path = path
        self._end = end
        self._told: Deque[FileChange] = deque()
        late = threading.Timer(ANSWER, self.close)
        late.daemon = True
        late.start()
        try:
            call.initial_metadata()  # the watch is there, or there is an error to read
        except BaseException:
            self.close()
            raise
        finally:
            late.cancel()
        if self._closed:
            raise _unanswered(about)

    def _ends(self, error: Any) -> bool:
        return _timed_out(error, self._end)

    def __iter__(self) -> FileWatch:
        return self

    def __next__(self) -> FileChange:
        while self._closed or not self._told:
            message = self.read()
            if message is None:
                raise StopIteration
            self._told.extend(_changes_of(message, self._path))
        return self._told.popleft()


class AsyncFileWatch(AsyncStream[FileChange], AsyncIterator[FileChange]):
    """What changes in a sandbox's view: an asynchronous iterator that waits for the next change.

    It begins when its ``async with`` block is entered, or without one when the first change is asked for. It ends when
    the sandbox is stopped, when its time is up, or when it is closed, which another task may do.
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[Any]],
        about: Call,
        connection: AsyncConnection,
        path: str,
        seconds: Optional[float],
    ) -> None:
        super().__init__(start, about, connection)
        self._path = path
        self._seconds = seconds
        self._end = math.inf
        self._told: Deque[FileChange] = deque()

    async def __aenter__(self) -> AsyncFileWatch:
        try:
            await self.begin()
            await asyncio.wait_for(self._call.initial_metadata(), ANSWER)
        except grpc.RpcError:
            pass  # the first reading tells
        except asyncio.TimeoutError:
            await self.aclose()
            raise _unanswered(self._connection.about(self._about)) from None
        except BaseException:
            await self.aclose()
            raise
        return self

    async def begin(self) -> None:
        """Make the call, unless that is done."""
        if self._call is None:
            self._end = end_of(self._seconds)
        await super().begin()

    def _ends(self, error: Any) -> bool:
        return _timed_out(error, self._end)

    def __aiter__(self) -> AsyncFileWatch:
        return self

    async def __anext__(self) -> FileChange:
        while self._closed or not self._told:
            message = await self.read()
            if message is None:
                raise StopAsyncIteration
            self._told.extend(_changes_of(message, self._path))
        return self._told.popleft()
