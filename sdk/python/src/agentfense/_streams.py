"""What comes from the server piece by piece. A stream that is closed, or forgotten, ends what it comes from."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any, AsyncIterator, Awaitable, Callable, Generator, Generic, Iterator, List, Optional, Type, TypeVar

import grpc

from ._connection import AsyncConnection
from ._errors import Call, error_of
from ._results import denial_of, file_change_of
from ._wire import audit_event_of, chunk_of, decode_path, log_record_of
from .results import Denial, FileChange
from .types import AuditEvent, LogRecord, OutputChunk

T = TypeVar("T")
S = TypeVar("S", bound="Stream[Any]")
A = TypeVar("A", bound="AsyncStream[Any]")


class Stream(Generic[T]):
    """Messages of the server. Not for several threads at once."""

    def __init__(self, call: Any, about: Call) -> None:
        self._call = call
        self._about = about
        self._closed = False

    def read(self) -> Any:
        """Return the next message, None at the end."""
        if self._closed:
            return None
        try:
            return next(self._call)
        except StopIteration:
            self._closed = True
            return None
        except grpc.RpcError as error:
            closed, self._closed = self._closed, True
            if closed or self._ends(error):
                return None
            raise error_of(error, self._about) from None
        except BaseException:
            self.close()
            raise

    def _ends(self, error: Any) -> bool:
        """Tell whether a stream ends in order with an error of gRPC."""
        return False

    def close(self) -> None:
        """End what the stream comes from, unless it has ended."""
        if not self._closed:
            self._closed = True
            self._call.cancel()

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()


class AsyncStream(Generic[T]):
    """Messages of the server, awaited. Not for several tasks at once."""

    def __init__(self, start: Callable[[], Awaitable[Any]], about: Call, connection: AsyncConnection) -> None:
        self._start = start
        self._connection = connection
        self._call: Any = None
        self._messages: Any = None
        self._about = about
        self._closed = False

    async def read(self) -> Any:
        """Return the next message, None at the end."""
        if self._closed:
            return None
        try:
            await self.begin()
            return await self._messages.__anext__()
        except StopAsyncIteration:
            self._closed = True
            return None
        except asyncio.CancelledError:
            if self._closed:  # by another task, of which gRPC tells like this
                return None
            await self.aclose()
            raise
        except grpc.RpcError as error:
            closed, self._closed = self._closed, True
            end = None if closed else await self._connection.end_of(self._call, error)
            if end is None or self._ends(end):
                return None
            raise error_of(end, self._connection.about(self._about)) from None
        except BaseException:
            await self.aclose()
            raise

    async def begin(self) -> None:
        """Make the call, unless that is done."""
        if self._call is None:
            self._call = await self._start()
            self._messages = self._call.__aiter__()
            if self._closed:  # meanwhile
                self._call.cancel()

    def _ends(self, error: Any) -> bool:
        """Tell whether a stream ends in order with an error of gRPC."""
        return False

    def _cancel(self) -> None:
        if not self._closed:
            self._closed = True
            if self._call is not None:
                self._call.cancel()

    async def aclose(self) -> None:
        """End what the stream comes from, unless it has ended."""
        self._cancel()

    def __await__(self: A) -> Generator[Any, None, A]:
        """Return the stream: one that is asked for with ``await``, as its siblings are, is the same."""
        return self._itself().__await__()

    async def _itself(self: A) -> A:
        return self

    async def __aenter__(self: A) -> A:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        self._cancel()


class _Ending:
    """What the last message of a command's output tells."""

    exit_code: Optional[int] = None
    """Set once the command has ended; 128 and its number where a signal ended it."""
    conflict_count: int = 0
    exec_id: str = ""
    denied_count: int = 0
    changed_count: int = 0
    sync_held: bool = False

    def __init__(self) -> None:
        self.conflicts: List[str] = []
        self.denied: List[Denial] = []
        self.changed: List[FileChange] = []

    def note(self, message: Any) -> None:
        """Take a message that may be the last."""
        if message.exec_id:
            self.exec_id = message.exec_id
        if message.HasField("exit_code"):
            self.exit_code = message.exit_code
            self.conflicts = [decode_path(path) for path in message.conflicts]
            self.conflict_count = message.conflict_count
            self.denied = [denial_of(denial) for denial in message.denied]
            self.denied_count = message.denied_count
            self.changed = [file_change_of(change) for change in message.changed]
            self.changed_count = message.changed_count
            self.sync_held = message.sync_held


class _Ended:
    """How a streamed command has ended."""

    ending: _Ending

    @property
    def exit_code(self) -> Optional[int]:
        """The command's exit code, None until it has ended."""
        return self.ending.exit_code

    @property
    def exec_id(self) -> str:
        """Of the command's records in the audit log; empty until it is known, at the command's end at the latest."""
        return self.ending.exec_id

    @property
    def denied(self) -> List[Denial]:
        """What the policy refused the command, as in ``ExecResult``; empty until it has ended."""
        return self.ending.denied

    @property
    def denied_count(self) -> int:
        """How many refusals there were, repeats included."""
        return self.ending.denied_count

    @property
    def changed(self) -> List[FileChange]:
        """What the command changed in the sandbox's view, as in ``ExecResult``; empty until it has ended."""
        return self.ending.changed

    @property
    def changed_count(self) -> int:
        """How many changes there were."""
        return self.ending.changed_count

    @property
    def sync_held(self) -> bool:
        """Whether the sandbox keeps its changes for ``apply``, as in ``ExecResult``."""
        return self.ending.sync_held


class ExecStream(_Ended, Stream[bytes], Iterator[bytes]):
    """A running command's output as it comes: an iterator of bytes, both streams in one.

    ``chunks()`` tells them apart instead. After the last piece ``exit_code``, ``denied`` and ``changed`` are set.
    Closing the stream, leaving its ``with`` block or forgetting it ends the command.
    """

    def __init__(self, call: Any, about: Call) -> None:
        super().__init__(call, about)
        self.ending = _Ending()

    def chunks(self) -> Iterator[OutputChunk]:
        """Yield the pieces of output, each with the stream it was written to."""
        while (message := self.read()) is not None:
            self.ending.note(message)
            chunk = chunk_of(message)
            if chunk is not None:
                yield chunk

    def __iter__(self) -> ExecStream:
        return self

    def __next__(self) -> bytes:
        while (message := self.read()) is not None:
            self.ending.note(message)
            chunk = chunk_of(message)
            if chunk is not None:
                return chunk.data
        raise StopIteration


class AsyncExecStream(_Ended, AsyncStream[bytes], AsyncIterator[bytes]):
    """A running command's output as it comes: an asynchronous iterator of bytes, both streams in one.

    ``chunks()`` tells them apart instead. The command starts when the first piece is asked for. After the last
    piece ``exit_code``, ``denied`` and ``changed`` are set. Closing the stream, leaving its ``async with`` block or
    forgetting it ends the command.
    """

    def __init__(self, start: Callable[[], Awaitable[Any]], about: Call, connection: AsyncConnection) -> None:
        super().__init__(start, about, connection)
        self.ending = _Ending()

    async def chunks(self) -> AsyncIterator[OutputChunk]:
        """Yield the pieces of output, each with the stream it was written to."""
        while (message := await self.read()) is not None:
            self.ending.note(message)
            chunk = chunk_of(message)
            if chunk is not None:
                yield chunk

    def __aiter__(self) -> AsyncExecStream:
        return self

    async def __anext__(self) -> bytes:
        while (message := await self.read()) is not None:
            self.ending.note(message)
            chunk = chunk_of(message)
            if chunk is not None:
                return chunk.data
        raise StopAsyncIteration


class AuditStream(Stream[AuditEvent], Iterator[AuditEvent]):
    """A sandbox's audit events, the oldest first."""

    def __iter__(self) -> AuditStream:
        return self

    def __next__(self) -> AuditEvent:
        message = self.read()
        if message is None:
            raise StopIteration
        return audit_event_of(message)


class AsyncAuditStream(AsyncStream[AuditEvent], AsyncIterator[AuditEvent]):
    """A sandbox's audit events, the oldest first."""

    def __aiter__(self) -> AsyncAuditStream:
        return self

    async def __anext__(self) -> AuditEvent:
        message = await self.read()
        if message is None:
            raise StopAsyncIteration
        return audit_event_of(message)


class LogStream(Stream[LogRecord], Iterator[LogRecord]):
    """What the detached commands of a sandbox wrote, the oldest first."""

    def __iter__(self) -> LogStream:
        return self

    def __next__(self) -> LogRecord:
        message = self.read()
        if message is None:
            raise StopIteration
        return log_record_of(message)


class AsyncLogStream(AsyncStream[LogRecord], AsyncIterator[LogRecord]):
    """What the detached commands of a sandbox wrote, the oldest first."""

    def __aiter__(self) -> AsyncLogStream:
        return self

    async def __anext__(self) -> LogRecord:
        message = await self.read()
        if message is None:
            raise StopAsyncIteration
        return log_record_of(message)
