"""Changes of a sandbox's view as they happen. A watch that is closed, or forgotten, ends."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from typing import Any, Callable, List, Optional

import grpc

from ._connection import ANSWER
from ._errors import Call
from ._results import file_change_of
from ._streams import AsyncStream, Stream, Values
from .exceptions import ConnectionError
from .results import FileChange
from .words import ChangeKind

_SOON = 0.1
"""Seconds before a watch's end in which a reset is that end: the server's clock may strike first."""


def _timed_out(error: Any, end: float) -> bool:
    """Tell whether a watch ended because its time was up, which it was at ``end``."""
    if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
        return True
    reset = error.code() == grpc.StatusCode.CANCELLED or "RST_STREAM" in (error.details() or "")
    return reset and time.monotonic() >= end - _SOON


def _unanswered(about: Call) -> ConnectionError:
    return ConnectionError(about.endpoint, f"the server at {about.endpoint} does not answer within {ANSWER:g} s")


class _Watched(Values[FileChange]):
    """What both kinds of watches have in common."""

    def __init__(
        self, start: Callable[[], Any], about: Call, connection: Any, path: str, seconds: Optional[float]
    ) -> None:
        self._path = path
        self._seconds = seconds
        self._end = math.inf
        super().__init__(start, about, connection)

    def _set_end(self) -> None:
        """Note when a watch that begins now is at its end, on the monotonic clock."""
        if self._seconds is not None:
            self._end = time.monotonic() + self._seconds

    def _values(self, message: Any) -> List[FileChange]:
        """Return the changes in a message: what was lost first, because it came before."""
        lost = [FileChange(self._path, ChangeKind.LOST)] if message.lost else []
        return lost + [file_change_of(change) for change in message.changes]

    def _ends(self, error: Any) -> bool:
        return _timed_out(error, self._end)


class FileWatch(_Watched, Stream[FileChange]):
    """What changes in a sandbox's view, from when it was made: an iterator that waits for the next change.

    It ends when the sandbox is stopped, when its time is up, or when it is closed, which another thread may do.
    """

    def _begin(self) -> None:
        self._set_end()
        super()._begin()
        late = threading.Timer(ANSWER, self.close)
        late.daemon = True
        late.start()
        try:
            self._call.initial_metadata()  # the watch is there, or there is an error to read
        except BaseException:
            self.close()
            raise
        finally:
            late.cancel()
        if self._closed:
            raise _unanswered(self._about)


class AsyncFileWatch(_Watched, AsyncStream[FileChange]):
    """What changes in a sandbox's view: an asynchronous iterator that waits for the next change.

    It begins when its ``async with`` block is entered, or without one when the first change is asked for. It ends when
    the sandbox is stopped, when its time is up, or when it is closed, which another task may do.
    """

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
            self._set_end()
        await super().begin()
