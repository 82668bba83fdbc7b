"""Each error of the server becomes the most specific exception of this package."""

from __future__ import annotations

import pickle
from typing import Any, Dict, Tuple

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from agentfense import exceptions as e
from agentfense._errors import Call, error_of, write_error
from agentfense._generated import Reason

S = grpc.StatusCode
SANDBOX = Call("exec", sandbox_id="sb_1", endpoint="here")
CODEBASE = Call("get codebase", codebase_id="cb_1")
SESSION = Call("exec", session_id="sess_1", command="true", timeout=2.0)
UPLOAD = Call("upload", codebase_id="cb_1", path="a")
DOWNLOAD = Call("download", codebase_id="cb_1", path="a")

CASES: list[Tuple[grpc.StatusCode, str, Call, type, Dict[str, Any]]] = [
    (S.UNAVAILABLE, "connection refused", SANDBOX, e.ConnectionError, {"endpoint": "here"}),
    (S.UNAUTHENTICATED, "the token is not known here", SANDBOX, e.PermissionDeniedError, {"operation": "exec"}),
    (S.PERMISSION_DENIED, "not yours", DOWNLOAD, e.PermissionDeniedError, {"operation": "download", "path": "a"}),
    (S.NOT_FOUND, "open a: no such file or directory", DOWNLOAD, e.FileNotFoundError, {"file_path": "a"}),
    (S.FAILED_PRECONDITION, "it is a linked directory", UPLOAD, e.UploadError, {"file_path": "a"}),
    (S.FAILED_PRECONDITION, "sandboxes are made of it", CODEBASE, e.CodebaseError, {}),
    (S.FAILED_PRECONDITION, "no bwrap on the PATH", Call("start", "sb_1"), e.InvalidConfigurationError, {}),
    (S.NOT_FOUND, "no such sandbox", SANDBOX, e.SandboxError, {}),
    (S.DEADLINE_EXCEEDED, "command timed out", SESSION, e.CommandTimeoutError, {"timeout_seconds": 2.0}),
    (S.DEADLINE_EXCEEDED, "deadline", SANDBOX, e.ConnectionError, {}),
    (S.RESOURCE_EXHAUSTED, "disk full", SANDBOX, e.ResourceLimitExceededError, {}),
    (S.INVALID_ARGUMENT, "path: ..", UPLOAD, e.UploadError, {}),
    (S.INVALID_ARGUMENT, "command: missing", SANDBOX, e.InvalidConfigurationError, {}),
    (S.UNIMPLEMENTED, "no such call", SANDBOX, e.VersionMismatchError, {}),
    (S.ALREADY_EXISTS, "name", SANDBOX, e.SandboxError, {}),
    (S.INTERNAL, "incident", SANDBOX, e.SandboxError, {}),
    (S.UNKNOWN, "?", SANDBOX, e.SandboxError, {}),
]

REASONS: Dict[Reason, Tuple[grpc.StatusCode, Call, type]] = {
    Reason.SANDBOX_NOT_FOUND: (S.NOT_FOUND, SANDBOX, e.SandboxNotFoundError),
    Reason.CODEBASE_NOT_FOUND: (S.NOT_FOUND, DOWNLOAD, e.CodebaseNotFoundError),
    Reason.SESSION_NOT_FOUND: (S.NOT_FOUND, SESSION, e.SessionNotFoundError),
    Reason.EXEC_NOT_FOUND: (S.NOT_FOUND, SANDBOX, e.ExecNotFoundError),
    Reason.SANDBOX_NOT_RUNNING: (S.FAILED_PRECONDITION, SANDBOX, e.SandboxNotRunningError),
    Reason.SANDBOX_ALREADY_RUNNING: (S.FAILED_PRECONDITION, Call("start", "sb_1"), e.SandboxError),
    Reason.SESSION_CLOSED: (S.FAILED_PRECONDITION, SESSION, e.SessionClosedError),
    Reason.LIMIT_EXCEEDED: (S.RESOURCE_EXHAUSTED, SANDBOX, e.ResourceLimitExceededError),
    Reason.COMMAND_NOT_STARTED: (S.INVALID_ARGUMENT, SANDBOX, e.InvalidConfigurationError),
}
"""Each reason with a call that it refuses, and what that raises, whatever the text says."""


class Rpc(grpc.RpcError):
    def __init__(self, code: Any, text: Any, *details: Any) -> None:
        self._code, self._text, self._said = code, text, status_pb2.Status()
        for detail in details:
            self._said.details.add().Pack(detail)

    def code(self) -> Any:
        return self._code

    def details(self) -> Any:
        return self._text

    def trailing_metadata(self) -> Any:
        return (("x", "y"), ("grpc-status-details-bin", self._said.SerializeToString())) if self._said.details else None


@pytest.mark.parametrize(("code", "text", "call", "cls", "has"), CASES)
def test_error_of(code: Any, text: str, call: Call, cls: type, has: Dict[str, Any]) -> None:
    error = error_of(Rpc(code, text), call)
    assert type(error) is cls
    assert error.grpc_code == code.value
    assert error.details == text
    assert {name: getattr(error, name) for name in has} == has
    assert str(error) == error.message != ""
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), vars(copy), str(copy)) == (cls, vars(error), str(error))


def info(domain: str = "agentfense", reason: str = "LIMIT_EXCEEDED", **metadata: str) -> Any:
    return error_details_pb2.ErrorInfo(reason=reason, domain=domain, metadata=metadata)


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_tells_errors_apart_and_not_the_text(reason: Reason) -> None:
    code, call, cls = REASONS[reason]
    error = error_of(Rpc(code, "some text", info(reason=reason.value)), call)
    assert type(error) is cls and error.details == "some text"
    stranger = error_of(Rpc(S.NOT_FOUND, "x", info("another", reason=reason.value)), SANDBOX)
    assert type(stranger) is e.SandboxError


def in_the_way(*paths: Tuple[str, str]) -> Any:
    violation = error_details_pb2.PreconditionFailure.Violation
    return error_details_pb2.PreconditionFailure(
        violations=[violation(type=kind, subject=path) for kind, path in paths]
    )


@pytest.mark.parametrize(
    ("code", "text", "details", "cls", "has"),
    [
        (
            S.FAILED_PRECONDITION,
            "apply x: nothing applied",
            [in_the_way(("refused", "a"), ("conflict", "b/\\xff"), ("conflict", "c"), ("new", "d"))],
            e.ConflictError,
            {"sandbox_id": "sb_1", "paths": ["b/\udcff", "c"]},
        ),
        (
            S.FAILED_PRECONDITION,
            "apply x: nothing applied",
            [in_the_way(("refused", "a"))],
            e.PermissionDeniedError,
            {"operation": "exec", "path": "a"},
        ),
        (
            S.FAILED_PRECONDITION,
            "sandbox is not running",
            [info(reason="SANDBOX_NOT_RUNNING", status="stopped")],
            e.SandboxNotRunningError,
            {"current_status": "stopped"},
        ),
        (
            S.RESOURCE_EXHAUSTED,
            "full",
            [info("another", limit="x"), info(resource="files", limit="3")],
            e.ResourceLimitExceededError,
            {"resource_type": "files", "limit": 3},
        ),
        (S.RESOURCE_EXHAUSTED, "full", [], e.ResourceLimitExceededError, {"resource_type": "exec", "limit": None}),
    ],
)
def test_details(code: Any, text: str, details: Any, cls: type, has: Dict[str, Any]) -> None:
    error = error_of(Rpc(code, text, *details), SANDBOX)
    assert type(error) is cls
    assert {name: getattr(error, name) for name in has} == has


@pytest.mark.parametrize("packed", [b"\xff", b"\x1a\x02\xff\xff"], ids=["no status", "a detail that is none"])
def test_malformed_details(packed: bytes) -> None:
    error = Rpc(S.RESOURCE_EXHAUSTED, "full")
    error.trailing_metadata = lambda: (("grpc-status-details-bin", packed),)  # type: ignore[method-assign]
    assert type(error_of(error, SANDBOX)) is e.ResourceLimitExceededError
    broken = status_pb2.Status()
    detail = broken.details.add()
    detail.Pack(info(limit="1"))
    detail.value = b"\xff"
    error.trailing_metadata = lambda: (  # type: ignore[method-assign]
        ("grpc-status-details-bin", broken.SerializeToString()),
    )
    result = error_of(error, SANDBOX)
    assert isinstance(result, e.ResourceLimitExceededError) and result.limit is None


@pytest.mark.parametrize("limit", ["", "x", "1.5", "-1", "\u00b2", "9" * 5000])
def test_a_limit_that_is_not_a_number(limit: str) -> None:
    error = error_of(Rpc(S.RESOURCE_EXHAUSTED, "full", info(resource="files", limit=limit)), SANDBOX)
    assert isinstance(error, e.ResourceLimitExceededError)
    assert (error.resource_type, error.limit) == ("files", None)


def test_an_unknown_status() -> None:
    assert error_of(Rpc(99, None), SANDBOX).grpc_code == S.UNKNOWN.value


@pytest.mark.parametrize(
    ("said", "cls"),
    [
        ("sh: 1: cannot create ./a: Permission denied\n", e.PermissionDeniedError),
        ("mkdir: cannot create directory 'x': Read-only file system", e.PermissionDeniedError),
        ("sh: 1: cannot create ./a: Directory nonexistent", e.FileNotFoundError),
        ("cat: write error: No space left on device", e.ResourceLimitExceededError),
        ("cat: write error: Input/output error", e.SandboxError),
    ],
)
def test_write_error(said: str, cls: type) -> None:
    assert type(write_error("a", said)) is cls


def test_messages_without_a_server() -> None:
    assert str(e.SandboxNotRunningError("sb_1", "stopped")) == "sandbox sb_1: sandbox is not running (it is stopped)"
    assert str(e.CommandTimeoutError("make", 2.5)) == "command 'make': took longer than 2.5 s"
    assert str(e.ResourceLimitExceededError("memory", 5)) == "memory: the limit of 5 is exceeded"
    assert str(e.SandboxError("text", {"a": 1}, (5, "not found"))) == "text"
