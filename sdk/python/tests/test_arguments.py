"""Arguments that are refused, or answered, before a server is asked: of both clients the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agentfense import ApplyResult, AsyncSandboxClient, DiscardResult, Sandbox, SandboxClient, SandboxNotFoundError

NO_SANDBOX = "sb_0123456789abcdef"

CHANGES = pytest.mark.parametrize(
    ("method", "nothing"),
    [("diff", []), ("apply", ApplyResult([], 0, 0)), ("discard", DiscardResult([], 0))],
)


@CHANGES
def test_no_paths_are_no_changes(client: SandboxClient, method: str, nothing: Any) -> None:
    call = getattr(client, method)
    for none in ([], (), (path for path in [])):  # type: ignore[var-annotated]
        assert call(NO_SANDBOX, none) == nothing
    for empty in ("", [""], ["a", ""]):
        with pytest.raises(ValueError, match=r"^an empty path: leave it out for all"):
            call(NO_SANDBOX, empty)
    with pytest.raises(SandboxNotFoundError):  # for all, the server is asked
        call(NO_SANDBOX)


@CHANGES
async def test_no_paths_are_no_changes_async(async_client: AsyncSandboxClient, method: str, nothing: Any) -> None:
    call = getattr(async_client, method)
    assert await call(NO_SANDBOX, []) == nothing
    with pytest.raises(ValueError, match=r"^an empty path: leave it out for all"):
        await call(NO_SANDBOX, "")
    with pytest.raises(SandboxNotFoundError):
        await call(NO_SANDBOX)


def test_changes_stay_where_no_paths_are_chosen(sandbox: Sandbox, project: Path) -> None:
    sandbox.write_file("new.txt", "new\n")
    assert sandbox.apply([]).applied_count == 0 and sandbox.discard([]).path_count == 0
    assert not (project / "new.txt").exists()
    assert [change.path for change in sandbox.diff("/")] == ["new.txt"]
    assert sandbox.apply(["/"]).applied_count == 1
    assert (project / "new.txt").read_text() == "new\n"


EXECS = ["exec", "exec_stream", "exec_detached"]
ONE_STRING = "^command is one string for /bin/sh: join a list by shlex.join, or use attach$"

TYPES = pytest.mark.parametrize(
    ("method", "arguments", "says"),
    [
        *((method, (["ls", "-l"],), ONE_STRING) for method in EXECS),
        *((f"session_{method}", (["ls", "-l"],), ONE_STRING) for method in EXECS),
        *((method, ("true", None, {"X": 1}), "^env: X: want a string, not int$") for method in EXECS),
        ("exec", ("true", None, {1: "x"}), "^env: 1: want a string, not int$"),
        ("create_session", ("/bin/sh", {"X": None}), "^env: X: want a string, not NoneType$"),
        ("attach", (["sleep", 5],), r"^argv\[1\]: want a string, not int$"),
        ("create_sandbox", (None, {"n": 1}), "^labels: n: want a string, not int$"),
    ],
)


@TYPES
def test_what_is_no_string_is_refused(client: SandboxClient, method: str, arguments: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        getattr(client, method)(NO_SANDBOX, *arguments)


@TYPES
async def test_what_is_no_string_is_refused_async(
    async_client: AsyncSandboxClient, method: str, arguments: Any, says: str
) -> None:
    with pytest.raises(TypeError, match=says):
        await getattr(async_client, method)(NO_SANDBOX, *arguments)
