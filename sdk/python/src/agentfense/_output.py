# Made from _async_output.py by make gen: do not edit.

"""Streams of a command's output, of audit events and of logs, for threads."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List

from ._connection import Connection
from ._ending import Ended, Ending
from ._errors import Call
from ._streams import Stream
from ._wire import audit_event_of, chunk_of, log_record_of
from .types import AuditEvent, LogRecord, OutputChunk


class ExecStream(Ended, Stream[bytes]):
    """The output of a running command: an iterator of bytes, with both streams merged.

    ``chunks()`` yields the pieces with their streams instead. After the last piece ``exit_code``,
    ``denied`` and ``changed`` are set. Closing the stream, leaving its ``with`` block or dropping
    it ends the command.
    """

    def __init__(self, start: Callable[[], Any], about: Call, connection: Connection) -> None:
        self._ending = Ending()
        super().__init__(start, about, connection)

    def chunks(self) -> Iterator[OutputChunk]:
        """Yield the pieces of output, each with its stream."""
        while (message := self.read()) is not None:
            yield from self._chunks(message)

    def _values(self, message: Any) -> List[bytes]:
        return [chunk.data for chunk in self._chunks(message)]

    def _chunks(self, message: Any) -> List[OutputChunk]:
        self._ending.note(message)
        chunk = chunk_of(message)
        return [] if chunk is None else [chunk]


class AuditStream(Stream[AuditEvent]):
    """The audit events of a sandbox, the oldest first: an iterator."""

    def _values(self, message: Any) -> List[AuditEvent]:
        return [audit_event_of(message)]


class LogStream(Stream[LogRecord]):
    """The output of a sandbox's detached commands, the oldest first: an iterator."""

    def _values(self, message: Any) -> List[LogRecord]:
        return [log_record_of(message)]
