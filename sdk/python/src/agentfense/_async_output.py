"""Streams of a command's output, of audit events and of logs, for an event loop."""

from __future__ import annotations

from typing import Any, AsyncIterator, Awaitable, Callable, List

from ._connection import AsyncConnection
from ._ending import Ended, Ending
from ._errors import Call
from ._streams import AsyncStream
from ._wire import audit_event_of, chunk_of, log_record_of
from .types import AuditEvent, LogRecord, OutputChunk


class AsyncExecStream(Ended, AsyncStream[bytes]):
    """The output of a running command: an asynchronous iterator of bytes, with both streams merged.

    ``chunks()`` yields the pieces with their streams instead. After the last piece ``exit_code``,
    ``denied`` and ``changed`` are set. Closing the stream, leaving its ``async with`` block or
    dropping it ends the command.

    The command starts when the first piece is asked for.
    """

    def __init__(self, start: Callable[[], Awaitable[Any]], about: Call, connection: AsyncConnection) -> None:
        self._ending = Ending()
        super().__init__(start, about, connection)

    async def chunks(self) -> AsyncIterator[OutputChunk]:
        """Yield the pieces of output, each with its stream."""
        while (message := await self.read()) is not None:
            for chunk in self._chunks(message):
                yield chunk

    def _values(self, message: Any) -> List[bytes]:
        return [chunk.data for chunk in self._chunks(message)]

    def _chunks(self, message: Any) -> List[OutputChunk]:
        self._ending.note(message)
        chunk = chunk_of(message)
        return [] if chunk is None else [chunk]


class AsyncAuditStream(AsyncStream[AuditEvent]):
    """The audit events of a sandbox, the oldest first: an asynchronous iterator."""

    def _values(self, message: Any) -> List[AuditEvent]:
        return [audit_event_of(message)]


class AsyncLogStream(AsyncStream[LogRecord]):
    """The output of a sandbox's detached commands, the oldest first: an asynchronous iterator."""

    def _values(self, message: Any) -> List[LogRecord]:
        return [log_record_of(message)]
