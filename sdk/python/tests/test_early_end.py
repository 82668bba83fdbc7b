"""A server that ends a call while the client still sends: the caller gets the server's error."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Awaitable, Callable, Iterator, List, Tuple

import grpc
import pytest
from test_skew import Other, serving

from agentfense import AsyncSandboxClient, ResourceLimitExceededError, SandboxClient, _connection
from agentfense._connection import End
from agentfense._gen.sandbox.v1 import codebase_pb2, sandbox_pb2

FULL = "codebase cb: more than 1000 bytes"
SIZE = 4 << 20


class Full(Other):
    """Refuses what is sent after a number of messages."""

    def __init__(self, after: int) -> None:
        super().__init__("1-1")
        self.after = after

    def service(self, details: Any) -> Any:
        name = details.method.rsplit("/", 1)[1]
        if name in ("UploadFiles", "UploadTree"):
            return grpc.stream_unary_rpc_method_handler(self._refuse, codebase_pb2.UploadChunk.FromString, bytes)
        if name == "Attach":
            return grpc.stream_stream_rpc_method_handler(
                self._begin, sandbox_pb2.AttachRequest.FromString, sandbox_pb2.ExecOutput.SerializeToString
            )
        return super().service(details)

    def _begin(self, messages: Iterator[Any], context: Any) -> Iterator[Any]:
        if self.after > 1:
            yield sandbox_pb2.ExecOutput(exec_id="ex")
        self._refuse(messages, context)

    def _refuse(self, messages: Iterator[Any], context: Any) -> None:
        for _ in range(self.after):
            next(messages)
        context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, FULL)


@pytest.fixture(params=[1, 20])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/file").write_bytes(b"x" * SIZE)
    with serving(Full(request.param), tmp_path) as address:
        yield address


def test_a_refusal_in_the_middle_of_an_upload_is_reported(address: str, tmp_path: Path) -> None:
    with SandboxClient(address) as client:
        calls: List[Callable[[], Any]] = [
            lambda: client.upload_file("cb", "file", b"x" * SIZE),
            lambda: client.upload_tree("cb", tmp_path / "tree"),
            lambda: client.write_view("sb", "file", b"x" * SIZE),
        ]
        for call in calls * 3:
            with pytest.raises(ResourceLimitExceededError, match=FULL):
                call()


async def test_a_refusal_in_the_middle_of_an_upload_is_reported_in_an_event_loop(address: str, tmp_path: Path) -> None:
    """gRPC lost it in one upload of five."""
    async with AsyncSandboxClient(address) as client:
        calls: List[Callable[[], Awaitable[Any]]] = [
            lambda: client.upload_file("cb", "file", b"x" * SIZE),
            lambda: client.upload_tree("cb", tmp_path / "tree"),
            lambda: client.write_view("sb", "file", b"x" * SIZE),
        ]
        for call in calls * 20:
            with pytest.raises(ResourceLimitExceededError, match=FULL):
                await call()


LOST = (grpc.StatusCode.INTERNAL, "Internal error from Core")
TOLD = (grpc.StatusCode.RESOURCE_EXHAUSTED, FULL)
WELL = (grpc.StatusCode.OK, "")
DETAILS = grpc.aio.Metadata(("grpc-status-details-bin", b"the reason"))


class Ending:
    """A call of gRPC that ends with one status after the other."""

    def __init__(self, *statuses: Tuple[grpc.StatusCode, str]) -> None:
        self._statuses = statuses

    async def code(self) -> grpc.StatusCode:
        return self._status[0]

    async def details(self) -> str:
        return self._status[1]

    async def trailing_metadata(self) -> grpc.aio.Metadata:
        return DETAILS

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        for status in self._statuses:
            self._status = status
            callback(self)


@pytest.mark.parametrize(
    ("statuses", "said", "want"),
    [
        ([TOLD], TOLD, TOLD),
        ([TOLD, LOST], LOST, TOLD),
        ([LOST, TOLD], LOST, TOLD),
        ([WELL, LOST], LOST, None),
        ([LOST], LOST, LOST),
    ],
)
async def test_errors_of_grpc_itself(statuses: Any, said: Any, want: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_connection, "GRACE", 0.1)
    metadata = grpc.aio.Metadata()
    error = await End(Ending(*statuses)).of(grpc.aio.AioRpcError(said[0], metadata, metadata, said[1]))
    assert (error and (error.code(), error.details())) == want
    if want not in (None, said):  # the details come with the words
        assert error.trailing_metadata() == DETAILS
