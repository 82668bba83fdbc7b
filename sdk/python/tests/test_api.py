"""The public API that existing scripts use: each name and each default."""

from __future__ import annotations

import inspect
import subprocess
import sys
from dataclasses import fields
from datetime import timedelta
from typing import Any, Dict, List, Tuple

import pytest

import agentfense
from agentfense import (
    AsyncSandbox,
    AsyncSandboxClient,
    AsyncSessionWrapper,
    RuntimeType,
    Sandbox,
    SandboxClient,
    SessionWrapper,
    exceptions,
    presets,
    types,
    utils,
)

NO = inspect.Parameter.empty
BWRAP = RuntimeType.BWRAP

MAKING: List[Tuple[str, Any]] = [
    ("preset", "agent-safe"),
    ("permissions", None),
    ("runtime", BWRAP),
    ("image", None),
    ("resources", None),
    ("endpoint", None),
    ("secure", False),
]
EXEC: List[Tuple[str, Any]] = [("command", NO), ("stdin", None), ("env", None), ("workdir", None), ("timeout", None)]

SANDBOX: Dict[str, List[Tuple[str, Any]]] = {
    "from_local": [
        ("path", NO),
        *MAKING,
        ("owner_id", None),
        ("codebase_name", None),
        ("ignore_patterns", None),
        ("labels", None),
        ("auto_start", True),
    ],
    "from_codebase": [("codebase_id", NO), *MAKING, ("labels", None), ("auto_start", True)],
    "connect": [("sandbox_id", NO), ("endpoint", None), ("secure", False)],
    "start": [],
    "stop": [],
    "refresh": [],
    "destroy": [("delete_codebase", None)],
    "run": [("command", NO), ("timeout", 60), ("env", None), ("workdir", None), ("raise_on_error", False)],
    "exec": EXEC,
    "exec_stream": EXEC,
    "session": [("shell", "/bin/sh"), ("env", None)],
    "read_file": [("path", NO)],
    "read_file_bytes": [("path", NO)],
    "write_file": [("path", NO), ("content", NO)],
    "list_files": [("path", ""), ("recursive", False)],
}

CLIENT: Dict[str, List[Tuple[str, Any]]] = {
    "__init__": [("endpoint", None), ("secure", False)],
    "close": [],
    "create_sandbox": [
        ("codebase_id", NO),
        ("permissions", None),
        ("labels", None),
        ("expires_in", None),
        ("runtime", BWRAP),
        ("image", None),
        ("resources", None),
    ],
    "get_sandbox": [("sandbox_id", NO)],
    "list_sandboxes": [("codebase_id", None)],
    "start_sandbox": [("sandbox_id", NO)],
    "stop_sandbox": [("sandbox_id", NO)],
    "destroy_sandbox": [("sandbox_id", NO)],
    "exec": [("sandbox_id", NO), *EXEC],
    "exec_stream": [("sandbox_id", NO), *EXEC],
    "create_session": [("sandbox_id", NO), ("shell", "/bin/sh"), ("env", None)],
    "session": [("sandbox_id", NO), ("shell", "/bin/sh"), ("env", None)],
    "get_session": [("session_id", NO)],
    "list_sessions": [("sandbox_id", NO)],
    "destroy_session": [("session_id", NO)],
    "close_session": [("session_id", NO)],
    "session_exec": [("session_id", NO), ("command", NO), ("timeout", None)],
    "create_codebase": [("name", NO), ("owner_id", NO)],
    "get_codebase": [("codebase_id", NO)],
    "list_codebases": [("owner_id", None)],
    "delete_codebase": [("codebase_id", NO)],
    "upload_file": [("codebase_id", NO), ("file_path", NO), ("content", NO), ("chunk_size", 65536)],
    "download_file": [("codebase_id", NO), ("file_path", NO)],
    "list_files": [("codebase_id", NO), ("path", ""), ("recursive", False)],
}

SESSION: Dict[str, List[Tuple[str, Any]]] = {"exec": [("command", NO), ("timeout", None)], "close": []}

FUNCTIONS: Dict[Any, List[Tuple[str, Any]]] = {
    presets.get_preset: [("name", NO)],
    presets.get_preset_dicts: [("name", NO)],
    presets.list_presets: [],
    presets.extend_preset: [("base", NO), ("additions", None), ("overrides", None)],
    presets.register_preset: [("name", NO), ("rules", NO)],
    utils.walk_directory: [
        ("path", NO),
        ("ignore_patterns", None),
        ("include_default_ignores", True),
        ("max_file_size", 52428800),
    ],
    utils.parse_ignore_file: [("path", NO)],
    utils.human_readable_size: [("n", NO)],
    utils.generate_codebase_name: [("path", NO)],
    utils.generate_owner_id: [],
    utils.count_files: [("path", NO), ("ignore_patterns", None)],
}

FIELDS: Dict[type, List[str]] = {
    types.ResourceLimits: ["memory_bytes", "cpu_quota", "cpu_shares", "pids_limit"],
    types.PermissionRule: ["pattern", "permission", "type", "priority"],
    types.Sandbox: [
        "id",
        "codebase_id",
        "status",
        "permissions",
        "labels",
        "runtime",
        "image",
        "resources",
        "created_at",
        "started_at",
        "stopped_at",
        "expires_at",
    ],
    types.Codebase: ["id", "name", "owner_id", "size", "file_count", "created_at", "updated_at"],
    types.ExecResult: ["stdout", "stderr", "exit_code", "duration", "command"],
    types.FileInfo: ["path", "name", "is_dir", "size", "modified_at"],
    types.UploadResult: ["codebase_id", "file_path", "size", "checksum"],
    types.Session: ["id", "sandbox_id", "status", "shell", "created_at", "closed_at"],
}

ENUMS: Dict[Any, List[str]] = {
    types.Permission: ["none", "view", "read", "write"],
    types.PatternType: ["glob", "directory", "file"],
    types.SandboxStatus: ["pending", "running", "stopped", "error"],
    types.SessionStatus: ["unknown", "active", "closed"],
    types.RuntimeType: ["bwrap", "docker"],
}


def leading(function: Any) -> List[Tuple[str, Any]]:
    """Return the parameters that may be given by position, and their defaults."""
    return [
        (p.name, p.default)
        for p in inspect.signature(function).parameters.values()
        if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self"
    ]


TWINS = [
    (Sandbox, AsyncSandbox, SANDBOX),
    (SandboxClient, AsyncSandboxClient, CLIENT),
    (SessionWrapper, AsyncSessionWrapper, SESSION),
]


@pytest.mark.parametrize(
    ("cls", "name", "want"),
    [(cls, name, want) for sync, twin, table in TWINS for cls in (sync, twin) for name, want in table.items()],
)
def test_method_signatures(cls: type, name: str, want: List[Tuple[str, Any]]) -> None:
    assert leading(getattr(cls, name)) == want


@pytest.mark.parametrize(("sync", "twin", "_table"), TWINS)
def test_both_kinds_have_the_same_methods(sync: type, twin: type, _table: Any) -> None:
    def public(cls: type) -> Dict[str, Any]:
        return {
            name: [str(p).replace("Async", "") for p in inspect.signature(value).parameters.values()]
            if callable(value)
            else "property"
            for name, value in inspect.getmembers(cls)
            if not name.startswith("_") and name != "open"
        }

    assert public(sync) == public(twin)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_function_signatures(function: Any) -> None:
    assert leading(function) == FUNCTIONS[function]
    if function.__module__.endswith(("presets", "utils")):
        assert getattr(agentfense, function.__name__) is function


@pytest.mark.parametrize("cls", FIELDS)
def test_the_first_fields_keep_their_order(cls: Any) -> None:
    assert [f.name for f in fields(cls)][: len(FIELDS[cls])] == FIELDS[cls]


@pytest.mark.parametrize("enum", ENUMS)
def test_enums(enum: Any) -> None:
    assert [value.value for value in enum][: len(ENUMS[enum])] == ENUMS[enum]
    assert all(issubclass(enum, str) and value.name == value.value.upper() for value in enum)


@pytest.mark.parametrize("cls", [Sandbox, AsyncSandbox])
def test_sandbox_properties(cls: type) -> None:
    for name in ("id", "codebase_id", "status", "runtime", "info", "codebase"):
        assert isinstance(getattr(cls, name), property), name


@pytest.mark.parametrize("cls", [SessionWrapper, AsyncSessionWrapper])
def test_session_properties(cls: type) -> None:
    for name in ("id", "sandbox_id", "status", "shell"):
        assert isinstance(getattr(cls, name), property), name


def test_exports() -> None:
    for name in agentfense.__all__:
        assert getattr(agentfense, name) is not None, name
    assert agentfense.SandboxInfo is types.Sandbox
    assert set(agentfense.__all__) <= set(dir(agentfense))
    with pytest.raises(AttributeError, match="no attribute 'Sandbx'"):
        agentfense.Sandbx  # noqa: B018


def test_the_hierarchy_of_exceptions() -> None:
    e = exceptions
    parents = {
        e.SandboxError: Exception,
        e.ConnectionError: e.SandboxError,
        e.SandboxNotFoundError: e.SandboxError,
        e.SandboxNotRunningError: e.SandboxError,
        e.ConflictError: e.SandboxError,
        e.CodebaseError: e.SandboxError,
        e.CodebaseNotFoundError: e.CodebaseError,
        e.FileNotFoundError: e.CodebaseError,
        e.UploadError: e.CodebaseError,
        e.CommandTimeoutError: e.SandboxError,
        e.CommandExecutionError: e.SandboxError,
        e.PermissionDeniedError: e.SandboxError,
        e.SessionError: e.SandboxError,
        e.SessionNotFoundError: e.SessionError,
        e.SessionClosedError: e.SessionError,
        e.ResourceLimitExceededError: e.SandboxError,
        e.InvalidConfigurationError: e.SandboxError,
    }
    for cls, parent in parents.items():
        assert cls.__bases__ == (parent,)
        assert getattr(agentfense, cls.__name__) is cls


def test_results() -> None:
    good = types.ExecResult("out", "err", 0, timedelta(seconds=1), "true")
    assert (good.success, good.output, good.raise_on_error()) == (True, "outerr", good)
    bad = types.ExecResult("", "sh: no\n", 3, command="false")
    with pytest.raises(exceptions.CommandExecutionError, match="'false': exit code 3: sh: no") as caught:
        bad.raise_on_error()
    assert (caught.value.command, caught.value.exit_code, caught.value.stderr) == ("false", 3, "sh: no\n")


def test_importing_is_cheap() -> None:
    """What talks to a server comes with the first name that needs it."""
    code = "import agentfense, sys; print(*[m for m in ('grpc', 'google.protobuf', 'asyncio') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60).stdout == b"\n"
