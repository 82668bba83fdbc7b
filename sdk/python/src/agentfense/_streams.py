"""Streams of messages from the server. Closing or dropping a stream ends its call."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import (
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Deque,
    Generator,
    Generic,
    Iterable,
    Iterator,
    Optional,
    Type,
    TypeVar,
)

import grpc

from ._connection import AsyncConnection, Connection
from ._errors import Call, error_of

T = TypeVar("T")
S = TypeVar("S", bound="Stream[Any]")
A = TypeVar("A", bound="AsyncStream[Any]")


class Values(Generic[T]):
    """What both kinds of streams have in common."""

    def __init__(self, start: Callable[[], Any], about: Call, connection: Any) -> None:
        self._start = start
        self._about = about
        self._connection = connection
        self._call: Any = None
        self._closed = False
        self._waiting: Deque[T] = deque()

    def _values(self, message: Any) -> Iterable[T]:
        """Return the values in a message."""
        return [message]

    def _ends(self, error: Any) -> bool:
        """Return whether a gRPC error is the normal end of the stream."""
        return False

    def _cancel(self) -> None:
        if not self._closed:
            self._closed = True
            if self._call is not None:
                self._call.cancel()

    def __del__(self) -> None:
        self._cancel()


class Stream(Values[T], Iterator[T]):
    """An iterator of what the server sends. Making it starts the call. One thread at a time may read."""

    def __init__(self, start: Callable[[], Any], about: Call, connection: Connection) -> None:
        super().__init__(start, about, connection)
        self._begin()

    def _begin(self) -> None:
        """Start the call."""
        self._call = self._start()
        self._about = self._connection.about(self._about)

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

    def __next__(self) -> T:
        while self._closed or not self._waiting:
            message = self.read()
            if message is None:
                raise StopIteration
            self._waiting.extend(self._values(message))
        return self._waiting.popleft()

    def close(self) -> None:
        """End the call, if it has not ended."""
        self._cancel()

    def __enter__(self: S) -> S:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.close()


class AsyncStream(Values[T], AsyncIterator[T]):
    """An asynchronous iterator of what the server sends. One task at a time may read.

    Reading the first message starts the call.
    """

    def __init__(self, start: Callable[[], Awaitable[Any]], about: Call, connection: AsyncConnection) -> None:
        super().__init__(start, about, connection)
        self._messages: Any = None

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
            if self._closed:  # by another task, which gRPC reports like this
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
        """Start the call, if it has not started."""
        if self._call is None:
            self._call = await self._start()
            self._messages = self._call.__aiter__()
            if self._closed:  # meanwhile
                self._call.cancel()

    async def __anext__(self) -> T:
        while self._closed or not self._waiting:
            message = await self.read()
            if message is None:
                raise StopAsyncIteration
            self._waiting.extend(self._values(message))
        return self._waiting.popleft()

    async def aclose(self) -> None:
        """End the call, if it has not ended."""
        self._cancel()

    def __await__(self: A) -> Generator[Any, None, A]:
        """Return the stream itself, so that both ``await`` and no ``await`` work."""
        return self._itself().__await__()

    async def _itself(self: A) -> A:
        return self

    async def __aenter__(self: A) -> A:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        await self.aclose()
