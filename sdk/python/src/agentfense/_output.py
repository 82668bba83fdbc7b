# Made from _async_output.py by make gen: do not edit.

"""What the server sends piece by piece: a command's output, audit events, logs; for threads."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List

from ._connection import Connection
from ._ending import Ended, Ending
from ._errors import Call
from ._streams import Stream
from ._wire import audit_event_of, chunk_of, log_record_of
from .types import AuditEvent, LogRecord, OutputChunk


class ExecStream(Ended, Stream[bytes]):
    """A running command's output as it comes: an iterator of bytes, both streams in one.

    ``chunks()`` yields the pieces with their streams instead. After the last piece ``exit_code``, ``denied`` and
    ``changed`` are set. Closing the stream, leaving its ``with`` block or forgetting it ends the command.
    """

    def __init__(self, start: Callable[[], Any], about: Call, connection: Connection) -> None:
        self._ending = Ending()
        super().__init__(start, about, connection)

    def chunks(self) -> Iterator[OutputChunk]:
        """Yield the pieces of output, each with the stream it was written to."""
        while (message := self.read()) is not None:
            yield from self._chunks(message)

    def _values(self, message: Any) -> List[bytes]:
        return [chunk.data for chunk in self._chunks(message)]

    def _chunks(self, message: Any) -> List[OutputChunk]:
        self._ending.note(message)
        chunk = chunk_of(message)
        return [] if chunk is None else [chunk]


class AuditStream(Stream[AuditEvent]):
    """A sandbox's audit events, the oldest first."""

    def _values(self, message: Any) -> List[AuditEvent]:
        return [audit_event_of(message)]


class LogStream(Stream[LogRecord]):
    """What the detached commands of a sandbox wrote, the oldest first."""

    def _values(self, message: Any) -> List[LogRecord]:
        return [log_record_of(message)]
