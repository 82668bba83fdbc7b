"""Servers and programs of other versions: an error says what to upgrade, and none gets what it would ignore."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import grpc
import pytest

from agentfense import (
    AsyncSandboxClient,
    ConnectionError,
    InvalidConfigurationError,
    Sandbox,
    SandboxClient,
    SandboxError,
    VersionMismatchError,
    _skew,
)
from agentfense._errors import Call
from agentfense._gen.sandbox.v1 import codebase_pb2, common_pb2, sandbox_pb2

KNOWN: Dict[str, Tuple[Any, Any]] = {
    "GetSandbox": (sandbox_pb2.GetSandboxRequest, sandbox_pb2.Sandbox),
    "CreateSandbox": (sandbox_pb2.CreateSandboxRequest, sandbox_pb2.Sandbox),
    "ListSandboxes": (sandbox_pb2.ListSandboxesRequest, sandbox_pb2.ListSandboxesResponse),
    "DestroySandbox": (sandbox_pb2.DestroySandboxRequest, common_pb2.Empty),
    "Exec": (sandbox_pb2.ExecRequest, sandbox_pb2.ExecResult),
    "CreateCodebase": (codebase_pb2.CreateCodebaseRequest, codebase_pb2.Codebase),
    "DeleteCodebase": (codebase_pb2.DeleteCodebaseRequest, common_pb2.Empty),
}


class Other(grpc.GenericRpcHandler):
    """A server of another version. Without ``levels`` it is not agentfense's, and has no answer to how it is."""

    def __init__(self, levels: Optional[str], health: grpc.StatusCode = grpc.StatusCode.OK) -> None:
        self.levels = levels
        self.health = health
        self.asked: List[str] = []

    def service(self, details: Any) -> Any:
        name = details.method.rsplit("/", 1)[1]
        self.asked.append(name)
        if name == "Check" and (self.levels or self.health != grpc.StatusCode.OK):
            return grpc.unary_unary_rpc_method_handler(self._check)
        if name == "UploadFiles":
            return grpc.stream_unary_rpc_method_handler(
                lambda messages, context: [*messages] and codebase_pb2.UploadResult(size=1),
                codebase_pb2.UploadChunk.FromString,
                codebase_pb2.UploadResult.SerializeToString,
            )
        if name not in KNOWN:
            return None  # gRPC answers UNIMPLEMENTED
        request, answer = KNOWN[name]
        return grpc.unary_unary_rpc_method_handler(
            lambda message, context: answer(), request.FromString, answer.SerializeToString
        )

    def _check(self, message: bytes, context: Any) -> bytes:
        if self.levels:
            context.send_initial_metadata([("agentfense-api", self.levels)])
        if self.health != grpc.StatusCode.OK:
            context.abort(self.health, "said the server")
        return b"\x08\x01"


@contextmanager
def serving(other: Other, directory: Path) -> Iterator[str]:
    with ThreadPoolExecutor(2) as workers:
        server = grpc.server(workers, handlers=[other])
        address = f"unix://{directory}/other.sock"
        server.add_insecure_port(address.replace("unix://", "unix:"))
        server.start()
        try:
            yield address
        finally:
            server.stop(None).wait(60)


OLDER = "is older than this package, whose level of the API is 1: {}; upgrade agentfense there, and restart the server"
NEWER = "is newer than this package, whose level of the API is 1: {}; upgrade this package"
IGNORED = OLDER.format("{}: it would ignore that")

CASES = [
    ("a call that any server knows", None, lambda c: c.get_sandbox("sb"), None),
    ("a request that any server knows", None, lambda c: c.exec("sb", "true", "text", {"A": "B"}), None),
    ("an upload that any server knows", None, lambda c: c.upload_file("cb", "a", b"x"), None),
    ("a field of ours", None, lambda c: c.exec("sb", "true", b"\xff"), IGNORED.format("stdin_bytes")),
    (
        "a field of a message in it",
        None,
        lambda c: c.create_sandbox("cb", resources={"disk_bytes": 1}),
        IGNORED.format("disk_bytes"),
    ),
    ("a call of ours", None, lambda c: c.diff("sb"), OLDER.format("Method not found!")),
    ("the same version", "1-1", lambda c: c.exec("sb", "true", b"\xff"), None),
    ("newer, and fit", "1-9", lambda c: c.exec("sb", "true", b"\xff"), None),
    ("newer, without a call", "1-9", lambda c: c.diff("sb"), NEWER.format("Method not found!")),
    ("newer, and not fit", "2-9", lambda c: c.get_sandbox("sb"), NEWER.format("it speaks levels 2 to 9 of the API")),
    ("no level", "1.0", lambda c: c.get_sandbox("sb"), "which this package does not know: upgrade this package"),
]


@pytest.mark.parametrize(("levels", "call", "says"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
async def test_a_server_of_another_version(
    home: Path, tmp_path: Path, levels: Optional[str], call: Callable[[Any], Any], says: Optional[str]
) -> None:
    other = Other(levels)
    with serving(other, tmp_path) as address:
        client = AsyncSandboxClient(address)
        async with client:
            for _ in range(2):
                if says is None:
                    await call(client)
                else:
                    with pytest.raises(VersionMismatchError, match=re.escape(says)):
                        await call(client)
        of_async, other.asked = other.asked, []
        with SandboxClient(address) as plain:
            for _ in range(2):
                if says is None:
                    call(plain)
                else:
                    with pytest.raises(VersionMismatchError, match=re.escape(says)):
                        call(plain)
    if levels not in ("1.0", "2-9"):
        assert of_async.count("Check") == other.asked.count("Check") == 1
    for asked in (of_async, other.asked):
        reached = [name for name in asked if name != "Check"]
        assert bool(reached) == (says is None or "Method" in says)


def test_streams_too(home: Path, tmp_path: Path) -> None:
    other = Other(None)
    with serving(other, tmp_path) as address, SandboxClient(address) as client:
        with pytest.raises(VersionMismatchError, match="stdin_bytes: it would ignore that"):
            client.exec_stream("sb", "true", b"\xff")
        with pytest.raises(VersionMismatchError, match="older than this package"):
            list(client.audit("sb"))
    assert other.asked == ["Check", "Audit"]


async def test_a_repeated_page_token_is_an_error(home: Path, tmp_path: Path) -> None:
    class Again(Other):
        def service(self, details: Any) -> Any:
            answer = {
                "ListView": sandbox_pb2.ListViewResponse,
                "Diff": sandbox_pb2.DiffResponse,
                "ListSandboxes": sandbox_pb2.ListSandboxesResponse,
                "ListCodebases": codebase_pb2.ListCodebasesResponse,
            }.get(details.method.rsplit("/", 1)[1])
            if answer is None:
                return super().service(details)
            page = answer(next_page_token="again").SerializeToString()
            return grpc.unary_unary_rpc_method_handler(lambda message, context: page)

    lists: List[Callable[[Any], Any]] = [
        lambda c: c.list_view("sb"),
        lambda c: c.diff("sb"),
        lambda c: c.list_sandboxes(),
        lambda c: c.list_codebases(),
    ]
    with serving(Again("1-1"), tmp_path) as address, SandboxClient(address) as plain:
        async with AsyncSandboxClient(address) as client:
            for ask in lists:
                with pytest.raises(SandboxError, match="returned the same page token again"):
                    ask(plain)
                with pytest.raises(SandboxError, match="returned the same page token again"):
                    await ask(client)


def test_upload_tree_needs_a_server_of_agentfense(home: Path, tmp_path: Path, project: Path) -> None:
    other = Other(None)
    with serving(other, tmp_path) as address, pytest.raises(VersionMismatchError, match="older than this package"):
        Sandbox.from_local(project, endpoint=address)
    assert "CreateSandbox" not in other.asked and "DeleteCodebase" in other.asked


@pytest.mark.parametrize(
    ("health", "raised"),
    [
        (grpc.StatusCode.UNAVAILABLE, ConnectionError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, ConnectionError),
        (grpc.StatusCode.UNAUTHENTICATED, None),
    ],
)
async def test_a_server_without_the_health_service(
    home: Path, tmp_path: Path, health: grpc.StatusCode, raised: Any
) -> None:
    other = Other(None, health)
    with serving(other, tmp_path) as address:
        async with AsyncSandboxClient(address) as client:
            with SandboxClient(address) as plain:
                if raised:
                    with pytest.raises(raised, match="said the server"):
                        plain.exec("sb", "true")
                    with pytest.raises(raised, match="said the server"):
                        await client.exec("sb", "true")
                else:
                    plain.exec("sb", "true")
                    await client.exec("sb", "true")
    assert ("Exec" in other.asked) == (raised is None)


def test_a_server_of_agentfense_has_the_level_of_this_package(client: SandboxClient) -> None:
    client.list_codebases()
    versions = client._connection._versions
    assert (versions._least, versions._level) == (1, _skew.LEVEL)


def test_a_server_of_agentfense_ignores_no_field(client: SandboxClient) -> None:
    request = codebase_pb2.ListCodebasesRequest()
    request.MergeFromString(b"\xc0\x3e\x01")  # number 1000
    with pytest.raises(VersionMismatchError, match="ListCodebasesRequest has no field 1000; upgrade agentfense there"):
        client._connection.call("ListCodebases", request, Call("list"))


def test_an_unsupported_request_is_an_invalid_configuration() -> None:
    assert issubclass(VersionMismatchError, InvalidConfigurationError)
