"""Watches: the changes of a sandbox's view as they happen. Closing or dropping a watch ends it."""

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

_SOON = 0.1
"""Seconds before a watch's end in which a reset counts as its end, as the server's clock may be first."""


def _timed_out(error: Any, end: float) -> bool:
    """Return whether an error means that a watch reached its time-out, at ``end``."""
    if error.code() == grpc.StatusCode.DEADLINE_EXCEEDED:
        return True
    reset = error.code() == grpc.StatusCode.CANCELLED or "RST_STREAM" in (error.details() or "")
    return reset and time.monotonic() >= end - _SOON


def _unanswered(about: Call) -> ConnectionError:
    return ConnectionError(about.endpoint, f"the server at {about.endpoint} does not answer within {ANSWER:g} s")


class _Watched(Values[FileChange]):
    """What both kinds of watches have in common."""

    def __init__(
        self, start: Callable[[], Any], about: Call, connection: Any, watched: FileChange, seconds: Optional[float]
    ) -> None:
        self._lost = watched
        self._seconds = seconds
        self._end = math.inf
        super().__init__(start, about, connection)

    def _set_end(self) -> None:
        """Set the end of a watch that begins now, on the monotonic clock."""
        if self._seconds is not None:
            self._end = time.monotonic() + self._seconds

    def _values(self, message: Any) -> List[FileChange]:
        """Return the changes in a message: LOST first, because those changes were earlier."""
        lost = [self._lost] if message.lost else []
        return lost + [file_change_of(change) for change in message.changes]

    def _ends(self, error: Any) -> bool:
        return _timed_out(error, self._end)


class FileWatch(_Watched, Stream[FileChange]):
    """An iterator of the changes in a sandbox's view since it was made. It waits for the next change.

    It ends when the sandbox stops, at the time-out, or when it is closed, which another thread may
    do.
    """

    def _begin(self) -> None:
        self._set_end()
        super()._begin()
        late = threading.Timer(ANSWER, self.close)
        late.daemon = True
        late.start()
        try:
            self._call.initial_metadata()  # arrives when the watch is active; else reading raises the error
        except BaseException:
            self.close()
            raise
        finally:
            late.cancel()
        if self._closed:
            raise _unanswered(self._about)


class AsyncFileWatch(_Watched, AsyncStream[FileChange]):
    """An asynchronous iterator of the changes in a sandbox's view. It waits for the next change.

    It begins when its ``async with`` block is entered, or else when the first change is asked for.
    It ends when the sandbox stops, at the time-out, or when it is closed, which another task may
    do.
    """

    async def __aenter__(self) -> AsyncFileWatch:
        try:
            await self.begin()
            await asyncio.wait_for(self._call.initial_metadata(), ANSWER)
        except grpc.RpcError:
            pass  # reading raises it
        except asyncio.TimeoutError:
            await self.aclose()
            raise _unanswered(self._connection.about(self._about)) from None
        except BaseException:
            await self.aclose()
            raise
        return self

    async def begin(self) -> None:
        """Start the call, if it has not started."""
        if self._call is None:
            self._set_end()
        await super().begin()
