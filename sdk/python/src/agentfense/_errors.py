"""The errors of gRPC as exceptions of this package. Only this module knows statuses and reasons."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Protocol

import grpc

from ._generated import Reason
from ._skew import Versions
from ._wire import decode_path
from .exceptions import (
    CodebaseError,
    CodebaseNotFoundError,
    CommandTimeoutError,
    ConflictError,
    ConnectionError,
    ExecNotFoundError,
    FileNotFoundError,
    InvalidConfigurationError,
    PermissionDeniedError,
    ResourceLimitExceededError,
    SandboxError,
    SandboxNotFoundError,
    SandboxNotRunningError,
    SessionClosedError,
    SessionNotFoundError,
    UploadError,
)

MAX_READ = 64 << 20
"""The default bound, in bytes, of a file that is read into memory. A sparse file may have any size."""


class RpcError(Protocol):
    """What the errors of gRPC's two Python interfaces have in common."""

    def code(self) -> Any:
        """Return the status."""

    def details(self) -> Optional[str]:
        """Return the text of the status."""

    def trailing_metadata(self) -> Any:
        """Return the metadata after the answer, which holds the details."""


@dataclass(frozen=True)
class Call:
    """A description of a call, for its error."""

    operation: str
    sandbox_id: str = ""
    codebase_id: str = ""
    session_id: str = ""
    exec_id: str = ""
    path: str = ""
    command: str = ""
    timeout: Optional[float] = None
    endpoint: str = ""
    versions: Versions = field(default_factory=Versions, compare=False)


@dataclass
class Details:
    """The details of an error beside its text: see internal/server/service/detail.go."""

    reason: str = ""
    said: Dict[str, str] = field(default_factory=dict)
    conflicts: List[str] = field(default_factory=list)
    refused: List[str] = field(default_factory=list)


_DETAILS = "grpc-status-details-bin"
_MAX_DIGITS = 20
"""The most digits of a 64-bit number."""


def details_of(error: RpcError) -> Details:
    """Return the details of an error; empty if it has none that this package knows."""
    from google.protobuf.message import DecodeError
    from google.rpc import error_details_pb2, status_pb2

    found = Details()
    packed = next((value for name, value in error.trailing_metadata() or () if name == _DETAILS), b"")
    try:
        for detail in status_pb2.Status.FromString(packed).details:
            info, failure = error_details_pb2.ErrorInfo(), error_details_pb2.PreconditionFailure()
            if detail.Unpack(info) and info.domain == "agentfense":
                found.reason = info.reason
                found.said.update(info.metadata)
            elif detail.Unpack(failure):
                for violation in failure.violations:
                    paths = {"conflict": found.conflicts, "refused": found.refused}.get(violation.type, [])
                    paths.append(decode_path(violation.subject))
    except (DecodeError, ValueError):
        return Details()
    return found


def error_of(error: RpcError, call: Call) -> SandboxError:
    """Return the most specific exception for an error of gRPC."""
    code = error.code()
    if not isinstance(code, grpc.StatusCode):
        code = grpc.StatusCode.UNKNOWN
    return _error(code, error.details() or "", details_of(error), call)


@dataclass(frozen=True)
class Refusal:
    """An error that the program ``agentfense`` reported."""

    kind: str
    reason: str
    text: str
    conflicts: List[str]
    refused: List[str]


def refusal_error(refusal: Refusal, call: Call) -> SandboxError:
    """Return the exception that the same error of a server would be."""
    code = _KINDS.get(refusal.kind, grpc.StatusCode.INTERNAL)
    return _error(code, refusal.text, Details(refusal.reason, {}, refusal.conflicts, refusal.refused), call)


def _error(code: grpc.StatusCode, text: str, more: Details, call: Call) -> SandboxError:
    result = _of_reason(call, text, more)
    if result is None:
        detailed = _DETAILED.get(code)
        result = detailed(call, text, more) if detailed else _MAKERS.get(code, _internal)(call, text)
    result.not_started = more.said.get("started") == "false"
    result.details, result.grpc_code = text, code.value
    return result


def _of_reason(call: Call, text: str, more: Details) -> Optional[SandboxError]:
    """Return the exception that a reason alone determines; None for other reasons."""
    if more.reason == Reason.SANDBOX_NOT_FOUND:
        return SandboxNotFoundError(call.sandbox_id, text)
    if more.reason == Reason.CODEBASE_NOT_FOUND:
        return CodebaseNotFoundError(call.codebase_id, text)
    if more.reason == Reason.SESSION_NOT_FOUND:
        return SessionNotFoundError(call.session_id, text)
    if more.reason == Reason.EXEC_NOT_FOUND:
        return ExecNotFoundError(call.exec_id, text)
    if more.reason == Reason.SANDBOX_NOT_RUNNING:
        return SandboxNotRunningError(call.sandbox_id, more.said.get("status", ""), text)
    if more.reason == Reason.SESSION_CLOSED:
        return SessionClosedError(call.session_id, text)
    return None


def too_large(call: Call, max_bytes: int) -> SandboxError:
    """Return the exception for content beyond ``max_bytes``."""
    text = f"{call.operation} {call.path}: larger than {max_bytes} bytes"
    if max_bytes == MAX_READ:
        text += ": pass a higher max_bytes=, or None for any size, or read it in pieces with exec_stream of cat"
    return ResourceLimitExceededError("bytes", max_bytes, text)


def next_page(asked: str, token: str) -> str:
    """Return the token of the next page; empty after the last page. Raises SandboxError if the token repeats."""
    if token and token == asked:  # else this would never end
        raise SandboxError("list: the server returned the same page token again")
    return token


def write_error(path: str, said: str) -> SandboxError:
    """Return the exception for what the shell wrote about a file that it could not store."""
    words = said.strip().rsplit(": ", 1)[-1]
    if words in ("Permission denied", "Read-only file system", "Operation not permitted"):
        return PermissionDeniedError("write", path)
    if words in ("No such file or directory", "Not a directory", "Directory nonexistent", "File exists"):
        return FileNotFoundError("", path, f"write {path}: {words}")
    if words in ("No space left on device", "Disk quota exceeded"):
        return ResourceLimitExceededError("disk", None, f"write {path}: {words}")
    return SandboxError(f"write {path}: {words}")


def _internal(call: Call, text: str) -> SandboxError:
    return SandboxError(f"{call.operation}: {text}")


def _unavailable(call: Call, text: str) -> SandboxError:
    return ConnectionError(
        call.endpoint, f"cannot reach the server at {call.endpoint}: {text}: is `agentfense serve` running there?"
    )


def _unauthenticated(call: Call, text: str) -> SandboxError:
    return PermissionDeniedError(
        call.operation,
        call.path,
        f"{call.operation}: the server at {call.endpoint} does not accept the token: {text}: "
        "pass token=, or set AGENTFENSE_TOKEN or AGENTFENSE_TOKEN_FILE",
    )


def _denied(call: Call, text: str) -> SandboxError:
    return PermissionDeniedError(call.operation, call.path, text)


def _not_found(call: Call, text: str) -> SandboxError:
    if call.path:
        return FileNotFoundError(call.codebase_id, call.path, text)
    return SandboxError(text)


def _invalid(call: Call, text: str) -> SandboxError:
    if call.operation == "upload":
        return UploadError(call.path, call.codebase_id, text)
    return InvalidConfigurationError(text)


def _precondition(call: Call, text: str, details: Details) -> SandboxError:
    if details.conflicts:
        return ConflictError(call.sandbox_id, details.conflicts, text)
    if details.refused:
        return PermissionDeniedError(call.operation, details.refused[0], text)
    if call.operation == "upload":
        return UploadError(call.path, call.codebase_id, text)
    if call.codebase_id and not call.sandbox_id:
        return CodebaseError(text)
    if call.operation in ("start", "create sandbox") and details.reason != Reason.SANDBOX_ALREADY_RUNNING:
        return InvalidConfigurationError(text)
    return SandboxError(text)


def _exists(call: Call, text: str) -> SandboxError:
    return CodebaseError(text) if call.codebase_id and not call.sandbox_id else SandboxError(text)


def _deadline(call: Call, text: str) -> SandboxError:
    if call.command:
        return CommandTimeoutError(call.command, call.timeout)
    return ConnectionError(
        call.endpoint, f"{call.operation}: the server at {call.endpoint} did not answer in time: {text}"
    )


def _exhausted(call: Call, text: str, details: Details) -> SandboxError:
    limit = details.said.get("limit", "")
    what = details.said.get("resource", call.operation)
    is_number = limit.isascii() and limit.isdecimal() and len(limit) <= _MAX_DIGITS
    return ResourceLimitExceededError(what, int(limit) if is_number else None, f"{call.operation}: {text}")


def _unimplemented(call: Call, text: str) -> SandboxError:
    return call.versions.mismatch(call.operation, call.endpoint, text)


_DETAILED = {
    grpc.StatusCode.FAILED_PRECONDITION: _precondition,
    grpc.StatusCode.RESOURCE_EXHAUSTED: _exhausted,
}

_MAKERS = {
    grpc.StatusCode.UNAVAILABLE: _unavailable,
    grpc.StatusCode.UNAUTHENTICATED: _unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: _denied,
    grpc.StatusCode.NOT_FOUND: _not_found,
    grpc.StatusCode.INVALID_ARGUMENT: _invalid,
    grpc.StatusCode.OUT_OF_RANGE: _invalid,
    grpc.StatusCode.ALREADY_EXISTS: _exists,
    grpc.StatusCode.DEADLINE_EXCEEDED: _deadline,
    grpc.StatusCode.UNIMPLEMENTED: _unimplemented,
}

_KINDS = {
    "invalid": grpc.StatusCode.INVALID_ARGUMENT,
    "unauthenticated": grpc.StatusCode.UNAUTHENTICATED,
    "not found": grpc.StatusCode.NOT_FOUND,
    "hidden": grpc.StatusCode.NOT_FOUND,
    "exists": grpc.StatusCode.ALREADY_EXISTS,
    "denied": grpc.StatusCode.PERMISSION_DENIED,
    "precondition": grpc.StatusCode.FAILED_PRECONDITION,
    "exhausted": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "unsupported": grpc.StatusCode.UNIMPLEMENTED,
    "unavailable": grpc.StatusCode.UNAVAILABLE,
    "canceled": grpc.StatusCode.CANCELLED,
    "deadline": grpc.StatusCode.DEADLINE_EXCEEDED,
}
"""The gRPC status of each kind of error, as in internal/server/service/status.go."""
