"""The connection between a client and its server, for threads and for event loops."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from contextlib import suppress
from dataclasses import replace
from typing import Any, AsyncIterator, Callable, Coroutine, Dict, Iterator, List, Optional, TypeVar, cast
from weakref import WeakKeyDictionary

import grpc
import grpc.aio

from ._endpoint import Endpoint, channel_options, credentials, find_token, metadata_of
from ._errors import Call, error_of
from ._gen.sandbox.v1.board_pb2_grpc import BoardServiceStub
from ._gen.sandbox.v1.codebase_pb2_grpc import CodebaseServiceStub
from ._gen.sandbox.v1.export_pb2_grpc import ExportServiceStub
from ._gen.sandbox.v1.history_pb2_grpc import HistoryServiceStub
from ._gen.sandbox.v1.sandbox_pb2_grpc import SandboxServiceStub
from ._gen.sandbox.v1.snapshot_pb2_grpc import SnapshotServiceStub
from ._interrupts import awaited, finish, finish_async
from ._server import find_endpoint
from ._skew import GREET, HEALTH, Versions
from ._talk import Outbox, Talk
from .exceptions import ConnectionError, InvalidConfigurationError, SandboxError

T = TypeVar("T")

ANSWER = 60.0
"""The time-out in seconds of a call that does little."""
WORK = 600.0
"""The time-out in seconds of a call that takes a while: start, stop, apply, uploads."""
GRACE = 15.0
"""Seconds that a command's call may take beyond the command's own time-out, which the server enforces."""
CONNECT = 20.0
"""Seconds within which your own server must answer."""
READY = 2.0
"""Seconds after which an attempt to reach your own server is repeated."""

_NOT_SENT = (grpc.StatusCode.INTERNAL, "Internal error from Core")


def within(timeout: Optional[float]) -> Optional[float]:
    """Return the time-out of a command's call. Without one, keepalive still detects a dead server."""
    return None if timeout is None else timeout + GRACE


_process: Optional[int] = None
"""The id of the process that made the first connection."""


def _check_fork() -> None:
    """Raise InvalidConfigurationError in a forked process, where gRPC may hang.

    fork copies the locks of gRPC, but not its threads. gRPC's own support of fork
    (GRPC_ENABLE_FORK_SUPPORT) hangs too, if another thread makes a call during the fork.
    """
    global _process
    if _process not in (None, os.getpid()):
        raise InvalidConfigurationError(
            "this process was forked after its parent had made a client, and gRPC may hang in it: start the process "
            "by spawn (multiprocessing), or fork before the first client"
        )
    _process = os.getpid()


class _Base:
    """What both connections have in common."""

    endpoint: Endpoint
    token: Optional[str]
    """The token that calls carry."""

    def __init__(self) -> None:
        _check_fork()
        self._pid = os.getpid()
        self._closed = False
        self._versions = Versions()

    def _check(self) -> None:
        if self._closed:
            raise InvalidConfigurationError("the client is closed")
        _check_fork()

    def _check_there(self) -> None:
        """Raise ConnectionError if the found server no longer has its port.

        gRPC would otherwise reconnect to any process that took the port.
        """
        endpoint = self.endpoint
        if endpoint.is_there and not endpoint.is_there():
            text = "has ended, and another process may have its port now: make a new client"
            raise ConnectionError(endpoint.text, f"the server at {endpoint.text} {text}")


class Connection(_Base):
    """A connection for threads. Making it connects."""

    def __init__(self, endpoint: Optional[str], secure: bool, token: Optional[str]) -> None:
        super().__init__()
        self.asked = (endpoint, secure, token)
        self._greeting = threading.Lock()
        limit = time.monotonic() + CONNECT
        while not self._open():
            if time.monotonic() > limit:
                raise _unreachable(self.endpoint)

    def _open(self) -> bool:
        """Connect, and return whether your own server answers. One that is just ending does not."""
        endpoint, secure, token = self.asked
        self.endpoint = find_endpoint(endpoint, secure)
        self._channel = _channel(grpc, self.endpoint)
        try:
            if self.endpoint.found and not self._is_ready():
                self._channel.close()
                return False
            self.token = find_token(self.endpoint, token)
            self._metadata = metadata_of(self.token)
            self._methods = _methods(self._channel)
        except BaseException:
            self._channel.close()
            raise
        return True

    def _is_ready(self) -> bool:
        """Return whether your own server answers. It then stays as long as the connection."""
        # Not channel_ready_future: closing the channel waits 200 ms for its thread.
        try:
            awaited(lambda: _health_of(self._channel)(b"", timeout=READY, wait_for_ready=True))
        except grpc.RpcError as error:
            return error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        return True

    def call(self, method: str, request: Any, about: Call, limit: Optional[float] = ANSWER) -> Any:
        """Return the server's single answer. ``request`` is an iterator if the method takes a stream."""
        request = self._fit(request, about)
        try:
            return self._methods[method](request, timeout=limit, metadata=self._metadata)
        except grpc.RpcError as error:
            raise error_of(error, self.about(about)) from None

    def _fit(self, request: Any, about: Call) -> Any:
        """Return the request if this server understands all of it. Asks the server for its version once."""
        self._check()
        self._check_there()
        with self._greeting:
            if not self._versions.known:
                self._greet()
        self._versions.check(self.endpoint.text)
        return self._versions.fit(about.operation, self.endpoint.text, request)

    def _greet(self) -> None:
        try:
            call: Any = _health_of(self._channel).with_call(b"", timeout=GREET, metadata=self._metadata)[1]
        except grpc.RpcError as error:
            call = error
        if not self._versions.hear(self.endpoint.text, call.initial_metadata(), call.code()):
            raise error_of(call, self.about(Call("connect")))

    def send(self, method: str, messages: Iterator[Any], about: Call) -> Any:
        """Return the server's single answer to messages made of files. Raises what making a message raises."""
        failed: List[Exception] = []
        try:
            return self.call(method, _noting(messages, failed), about, None)
        except SandboxError:
            if failed:  # the call failed because this did
                raise failed[0] from None
            raise

    def make(self, method: str, request: Any, about: Call, undo: Callable[[Any], object]) -> Any:
        """Return the server's answer, which describes something new. An interrupt removes it again."""
        return self.finish(lambda: self.call(method, request, about), undo)

    def finish(self, making: Callable[[], T], undo: Callable[[T], object]) -> T:
        """Return the result of ``making``. If an interrupt comes meanwhile, ``undo`` is called with the result."""
        return finish(making, undo, GREET + ANSWER + GRACE)

    def stream(self, method: str, request: Any, limit: Optional[float] = None) -> Any:
        """Start a call whose answers come as a stream."""
        request = self._fit(request, Call(method))
        return self._methods[method](request, timeout=limit, metadata=self._metadata)

    def talk(self, method: str, first: Any, limit: Optional[float] = None) -> Talk:
        """Start a call to which more messages than ``first`` can be written."""
        sent = Outbox(first)
        return Talk(self.stream(method, sent, limit), sent)

    def about(self, about: Call) -> Call:
        """Return a description of a call with the server's address."""
        return replace(about, endpoint=self.endpoint.text, versions=self._versions)

    def close(self) -> None:
        """Close the connection. This ends the calls that run."""
        if not self._closed:
            self._closed = True
            if self._pid == os.getpid():
                self._channel.close()


class End:
    """The status with which a server ends a call of an event loop.

    If the server ends the call while a message is being sent, gRPC may first report that sending
    failed.
    """

    def __init__(self, call: Any) -> None:
        self._told = asyncio.Event()
        self._error: Any = None
        call.add_done_callback(self._note)

    def _note(self, call: Any) -> None:
        """Record the status that gRPC reports. gRPC calls this again if the status changes."""
        code, details = _ready(call.code()), _ready(call.details())
        if (code, details) != _NOT_SENT:
            trailing = _ready(call.trailing_metadata())  # which holds the reason
            ok = code is grpc.StatusCode.OK
            self._error = None if ok else grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, details)
            self._told.set()

    async def of(self, error: Any) -> Any:
        """Return the error with which the server ended the call that failed with ``error``; None if it ended well."""
        if (error.code(), error.details()) != _NOT_SENT:
            return error
        try:
            await asyncio.wait_for(self._told.wait(), GRACE)
        except asyncio.TimeoutError:
            return error
        return self._error


def _ready(value: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that does not wait."""
    try:
        value.send(None)
    except StopIteration as end:
        return cast(T, end.value)
    raise RuntimeError("gRPC reported the end of a call before its status")


class AsyncConnection(_Base):
    """A connection for one event loop. Its first use connects."""

    def __init__(self, endpoint: Optional[str], secure: bool, token: Optional[str]) -> None:
        super().__init__()
        self.asked = (endpoint, secure, token)
        self._loop: Optional[asyncio.AbstractEventLoop] = None
        self._opening: Optional[asyncio.Task[None]] = None
        self._channel: Any = None
        self._ends: WeakKeyDictionary[Any, End] = WeakKeyDictionary()

    async def open(self) -> Endpoint:
        """Connect if not connected, and return the endpoint."""
        self._check()
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise InvalidConfigurationError("the client belongs to another event loop: make one for this loop")
        self._loop = loop
        if self._opening is None or (self._opening.done() and self._channel is None):
            self._opening = asyncio.ensure_future(self._open())
        await asyncio.shield(self._opening)
        return self.endpoint

    async def _open(self) -> None:
        endpoint, secure, token = self.asked
        limit = time.monotonic() + CONNECT
        while True:
            self.endpoint = await asyncio.to_thread(find_endpoint, endpoint, secure)
            channel = _channel(grpc.aio, self.endpoint)
            if not self.endpoint.found:
                break
            try:
                await asyncio.wait_for(channel.channel_ready(), READY)
                break
            except asyncio.TimeoutError:
                await channel.close()
                if time.monotonic() > limit:
                    raise _unreachable(self.endpoint) from None
        try:
            await asyncio.to_thread(self._check_there)
            self.token = find_token(self.endpoint, token)
            self._metadata = metadata_of(self.token)
            await self._greet(channel)
        except BaseException:
            await channel.close()
            raise
        self._methods = _methods(channel)
        self._channel = channel

    async def call(self, method: str, request: Any, about: Call, limit: Optional[float] = ANSWER) -> Any:
        """Return the server's single answer. ``request`` is an iterator if the method takes a stream."""
        request = await self._fit(request, about)
        call = self._methods[method](request, timeout=limit, metadata=self._metadata)
        end = End(call)
        try:
            return await call
        except grpc.RpcError as error:
            raise error_of(await end.of(error) or error, self.about(about)) from None

    async def _fit(self, request: Any, about: Call) -> Any:
        endpoint = await self.open()
        if endpoint.is_there:
            await asyncio.to_thread(self._check_there)
        return self._versions.fit(about.operation, self.endpoint.text, request)

    async def _greet(self, channel: Any) -> None:
        check = _health_of(channel)(b"", timeout=GREET, metadata=self._metadata)
        failed: Any = None
        try:
            await check
        except grpc.RpcError as error:
            failed = error
        where = self.endpoint.text
        if not self._versions.hear(where, await check.initial_metadata(), await check.code()):
            raise error_of(failed, Call("connect", endpoint=where))
        self._versions.check(where)

    async def send(self, method: str, messages: Iterator[Any], about: Call) -> Any:
        """Return the server's single answer to messages made of files. Raises what making a message raises."""
        failed: List[Exception] = []
        try:
            return await self.call(method, _in_threads(_noting(messages, failed)), about, None)
        except (SandboxError, asyncio.CancelledError):
            if failed:  # the call failed because this did
                raise failed[0] from None
            raise

    async def make(
        self, method: str, request: Any, about: Call, undo: Callable[[Any], Coroutine[Any, Any, object]]
    ) -> Any:
        """Return the server's answer, which describes something new. A cancellation removes it again."""
        return await self.finish(lambda: self.call(method, request, about), undo)

    async def finish(
        self, making: Callable[[], Coroutine[Any, Any, T]], undo: Callable[[T], Coroutine[Any, Any, object]]
    ) -> T:
        """Return the result of ``making``. If it is cancelled meanwhile, ``undo`` is called with the result."""
        return await finish_async(making(), undo)

    async def stream(self, method: str, request: Any, limit: Optional[float] = None) -> Any:
        """Start a call whose answers come as a stream."""
        request = await self._fit(request, Call(method))
        call = self._methods[method](request, timeout=limit, metadata=self._metadata)
        self._ends[call] = End(call)
        return call

    async def talk(self, method: str, first: Any, limit: Optional[float] = None) -> Any:
        """Start a call to which more messages than ``first`` can be written."""
        first = await self._fit(first, Call(method))
        call = self._methods[method](timeout=limit, metadata=self._metadata)
        self._ends[call] = End(call)
        try:
            # If the call has already failed, reading it raises the reason.
            with suppress(asyncio.InvalidStateError, grpc.RpcError):
                await call.write(first)
        except BaseException:
            call.cancel()
            raise
        return call

    async def end_of(self, call: Any, error: Any) -> Any:
        """Return the error with which the server ended a call; None if it ended well."""
        return await self._ends[call].of(error) if call in self._ends else error

    def about(self, about: Call) -> Call:
        """Return a description of a call with the server's address."""
        endpoint = self.endpoint.text if self._channel else str(self.asked[0] or "")
        return replace(about, endpoint=endpoint, versions=self._versions)

    async def close(self) -> None:
        """Close the connection. This ends the calls that run."""
        if not self._closed:
            self._closed = True
            if self._channel is not None and self._pid == os.getpid():
                await self._channel.close()


def _noting(messages: Iterator[Any], failed: List[Exception]) -> Iterator[Any]:
    """Yield messages, and record the error that stops them: gRPC would only log it."""
    try:
        yield from messages
    except Exception as error:
        failed.append(error)
        raise


async def _in_threads(messages: Iterator[Any]) -> AsyncIterator[Any]:
    """Yield messages that are made of files, in a thread: an event loop must not wait for files."""
    end = object()
    while (message := await asyncio.to_thread(next, messages, end)) is not end:
        yield message


def _channel(interface: Any, endpoint: Endpoint) -> Any:
    options, tls = channel_options(endpoint), credentials(endpoint)
    if tls is None:
        return interface.insecure_channel(endpoint.target, options=options)
    return interface.secure_channel(endpoint.target, tls, options=options)


def _methods(channel: Any) -> Dict[str, Any]:
    """Return the calls of all services by name."""
    stubs = (
        SandboxServiceStub,
        CodebaseServiceStub,
        SnapshotServiceStub,
        HistoryServiceStub,
        BoardServiceStub,
        ExportServiceStub,
    )
    return {name: call for stub in stubs for name, call in vars(stub(channel)).items()}


def _health_of(channel: Any) -> Any:
    """Return the call that checks the health of a server."""
    return channel.unary_unary(HEALTH, request_serializer=bytes, response_deserializer=bytes)


def _unreachable(endpoint: Endpoint) -> ConnectionError:
    return ConnectionError(endpoint.text, f"cannot reach the server at {endpoint.text} within {CONNECT:g} s")
