"""Arguments that both clients check without asking a server."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any, Dict, List, Tuple, Type

import pytest

from agentfense import (
    ApplyResult,
    AsyncSandbox,
    AsyncSandboxClient,
    DiscardResult,
    Sandbox,
    SandboxClient,
    SandboxInfo,
    SandboxNotFoundError,
    SandboxStatus,
)

NO_SANDBOX = "sb_0123456789abcdef"

CHANGES = pytest.mark.parametrize(
    ("method", "nothing"),
    [("diff", []), ("apply", ApplyResult([], 0, 0)), ("discard", DiscardResult([], 0))],
)


@CHANGES
def test_an_empty_list_of_paths_selects_nothing(client: SandboxClient, method: str, nothing: Any) -> None:
    call = getattr(client, method)
    for none in ([], (), (path for path in [])):  # type: ignore[var-annotated]
        assert call(NO_SANDBOX, none) == nothing
    for empty in ("", [""], ["a", ""]):
        with pytest.raises(ValueError, match=r"^empty path: leave it out"):
            call(NO_SANDBOX, empty)
    with pytest.raises(SandboxNotFoundError):  # for all, the server is asked
        call(NO_SANDBOX)


@CHANGES
async def test_an_empty_list_of_paths_selects_nothing_async(
    async_client: AsyncSandboxClient, method: str, nothing: Any
) -> None:
    call = getattr(async_client, method)
    assert await call(NO_SANDBOX, []) == nothing
    with pytest.raises(ValueError, match=r"^empty path: leave it out"):
        await call(NO_SANDBOX, "")
    with pytest.raises(SandboxNotFoundError):
        await call(NO_SANDBOX)


def test_changes_remain_if_no_paths_are_selected(sandbox: Sandbox, project: Path) -> None:
    sandbox.write_file("new.txt", "new\n")
    assert sandbox.apply([]).applied_count == 0 and sandbox.discard([]).path_count == 0
    assert not (project / "new.txt").exists()
    assert [change.path for change in sandbox.diff("/")] == ["new.txt"]
    assert sandbox.apply(["/"]).applied_count == 1
    assert (project / "new.txt").read_text() == "new\n"


EXECS = ["exec", "exec_stream", "exec_detached"]
ONE_STRING = "^command: want one string for /bin/sh: use shlex.join for a list, or attach$"

TYPES: List[Tuple[str, Tuple[Any, ...], str]] = [
    *((method, (["ls", "-l"],), ONE_STRING) for method in EXECS),
    *((f"session_{method}", (["ls", "-l"],), ONE_STRING) for method in EXECS),
    *((method, ("true", None, {"X": 1}), "^env: X: want a string, not int$") for method in EXECS),
    ("exec", ("true", None, {1: "x"}), "^env: 1: want a string, not int$"),
    ("create_session", ("/bin/sh", {"X": None}), "^env: X: want a string, not NoneType$"),
    ("attach", (["sleep", 5],), r"^argv\[1\]: want a string, not int$"),
    ("create_sandbox", (None, {"n": 1}), "^labels: n: want a string, not int$"),
    ("create_sandbox", (None, ["n"]), "^labels: want a mapping of strings, not list$"),
    ("exec", ("true", None, ["A=1"]), "^env: want a mapping of strings, not list$"),
    ("exec", ("true", 5), "^stdin: want a string or bytes, not int$"),
    ("exec", ("true", None, None, 5), r"^workdir: want a string or an os\.PathLike of one, not int$"),
    ("exec", ("true", None, None, None, []), r"^timeout: want seconds or a timedelta, not \[\]$"),
    ("exec", ("true", None, None, None, "soon"), "^timeout: want seconds or a timedelta, not 'soon'$"),
    ("read_view", (5,), r"^path: want a string or an os\.PathLike of one, not int$"),
    ("write_view", (b"x", "x"), r"^path: want a string or an os\.PathLike of one, not bytes$"),
    ("write_view", ("x", 5), "^content: want a string or bytes, not int$"),
    ("download_file", (None,), r"^file_path: want a string or an os\.PathLike of one, not NoneType$"),
    ("create_session", (5,), "^shell: want a string, not int$"),
    ("upload_file", ("x", 5), "^content: want a string or bytes, not int$"),
    ("diff", (5,), "^paths: want a path or a list of them, not int$"),
    ("diff", ([5],), r"^paths: want a string or an os\.PathLike of one, not int$"),
]

RAW = r"is '\\udcff', which UTF-8 cannot encode"

SURROGATES: List[Tuple[str, Tuple[Any, ...], str]] = [
    ("exec", ("echo \udcff",), f"^command: character 5 {RAW}: use printf in the command for such a byte$"),
    ("session_exec", ("echo \udcff",), f"^command: character 5 {RAW}: use printf in the command for such a byte$"),
    ("exec", ("true", "\udcff"), f"^stdin: character 0 {RAW}: pass bytes$"),
    ("exec", ("true", None, {"X": "\udcff"}), f"^env: X: character 0 {RAW}$"),
    ("attach", (["echo", "a\udcff"],), rf"^argv\[1\]: character 1 {RAW}$"),
    ("create_sandbox", (None, {"n": "\udcff"}), f"^labels: n: character 0 {RAW}$"),
    ("write_view", ("x", "\udcff"), f"^content: character 0 {RAW}: pass bytes$"),
    ("upload_file", ("x", "\udcff"), f"^content: character 0 {RAW}: pass bytes$"),
    ("read_view", ("a\ud800",), r"^path: character 1 is '\\ud800', which a file name cannot have$"),
    ("write_view", ("a\ud800", "x"), r"^path: character 1 is '\\ud800', which a file name cannot have$"),
    ("diff", ("a\ud800",), r"^paths: character 1 is '\\ud800', which a file name cannot have$"),
]

REFUSED = pytest.mark.parametrize(
    ("method", "arguments", "raised", "says"),
    [
        *((method, arguments, TypeError, says) for method, arguments, says in TYPES),
        *((method, arguments, ValueError, says) for method, arguments, says in SURROGATES),
    ],
)


@REFUSED
def test_invalid_arguments_are_refused(
    client: SandboxClient, method: str, arguments: Any, raised: Type[Exception], says: str
) -> None:
    with pytest.raises(raised, match=says):
        getattr(client, method)(NO_SANDBOX, *arguments)


@REFUSED
async def test_invalid_arguments_are_refused_async(
    async_client: AsyncSandboxClient, method: str, arguments: Any, raised: Type[Exception], says: str
) -> None:
    with pytest.raises(raised, match=says):
        await getattr(async_client, method)(NO_SANDBOX, *arguments)


OF_A_SANDBOX = pytest.mark.parametrize(
    ("more", "raised", "says"),
    [
        ({"permissions": 5}, ValueError, "^permissions: want a list of rules, not int$"),
        ({"permissions": {"pattern": "x"}}, ValueError, "^permissions: want a list of rules, not dict$"),
        ({"permissions": [5]}, ValueError, "^rule: want a PermissionRule or a mapping, not int$"),
        ({"permissions": [{"pattern": "x", "priority": float("inf")}]}, ValueError, "^rule 'x': cannot convert float"),
        ({"preset": ["a"]}, ValueError, r"^unknown preset \['a'\]: it is one of "),
        ({"policy": 5}, TypeError, r"^policy: want a string or an os\.PathLike of one, not int$"),
        ({"endpoint": 5}, TypeError, "^endpoint: want a string, not int$"),
        ({"token": 5}, TypeError, "^token: want a string, not int$"),
        ({"ignore_patterns": "*.py"}, TypeError, "^ignore_patterns: want a list of strings, not str$"),
        ({"labels": ["a"]}, TypeError, "^labels: want a mapping of strings, not list$"),
        ({"image": 5}, TypeError, "^image: want a string, not int$"),
        ({"name": 5}, TypeError, "^name: want a string, not int$"),
        ({"codebase_name": 5}, TypeError, "^name: want a string, not int$"),
        ({"owner_id": 5}, TypeError, "^owner_id: want a string, not int$"),
        ({"expires_in": "soon"}, TypeError, "^expires_in: want seconds or a timedelta, not 'soon'$"),
    ],
)


@OF_A_SANDBOX
async def test_invalid_sources(
    client: SandboxClient, project: Path, more: Dict[str, Any], raised: Type[Exception], says: str
) -> None:
    with pytest.raises(raised, match=says):
        Sandbox.from_local(project, **more)
    with pytest.raises(raised, match=says):
        await AsyncSandbox.from_local(project, **more)
    assert client.list_codebases() == []


async def test_invalid_sizes_of_a_terminal(client: SandboxClient, async_client: AsyncSandboxClient) -> None:
    sizes: List[Any] = [5, ("a", 1), (24, 80, 1), "24"]
    for size in sizes:
        for attach in (client.attach, async_client.attach):
            with pytest.raises(TypeError, match=r"^terminal .*: want two whole numbers, rows and columns$"):
                attach(NO_SANDBOX, ["cat"], terminal=size)


# What the calls need beside an id.
NEEDED: Dict[str, Any] = {
    "allow": True,
    "argv": ["true"],
    "ask": "1",
    "command": "true",
    "content": "x",
    "directory": ".",
    "file_path": "x",
    "names": ["n"],
    "path": "x",
    "paths": ["x"],
    "permission": "read",
    "permissions": [],
    "snapshot": "s1",
    "statement": "SELECT 1",
    "text": "x",
}


def ids_of(client: Any) -> List[Tuple[str, str]]:
    """The calls of a client that take an id, each with the name of that argument."""
    calls = []
    for method, call in inspect.getmembers(client, inspect.isfunction):
        if not method.startswith("_"):
            calls += [(method, name) for name in inspect.signature(call).parameters if name.endswith("_id")]
    return calls


def arguments_with(call: Any, name: str, value: Any) -> Dict[str, Any]:
    """Arguments with which the call is right but for one."""
    arguments: Dict[str, Any] = {}
    for other, parameter in inspect.signature(call).parameters.items():
        if other == name:
            arguments[other] = value
        elif parameter.default is inspect.Parameter.empty:
            arguments[other] = NO_SANDBOX if other.endswith("_id") else NEEDED.get(other, "x")
    return arguments


NO_IDS = [5, b"sb", ["sb"], SandboxInfo(NO_SANDBOX, "cb_0123456789abcdef", SandboxStatus.RUNNING)]


@pytest.mark.parametrize(("method", "name"), ids_of(SandboxClient))
def test_an_id_is_a_string(client: SandboxClient, method: str, name: str, tmp_path: Path) -> None:
    call = getattr(client, method)
    for value in NO_IDS:
        hint = ": pass its id" if isinstance(value, SandboxInfo) and name != "owner_id" else ""
        arguments = arguments_with(call, name, value)
        with pytest.raises(TypeError, match=f"^{name}: want a string, not {type(value).__name__}{hint}$"):
            call(**arguments)


@pytest.mark.parametrize(("method", "name"), ids_of(AsyncSandboxClient))
async def test_an_id_is_a_string_async(async_client: AsyncSandboxClient, method: str, name: str) -> None:
    call = getattr(async_client, method)
    with pytest.raises(TypeError, match=f"^{name}: want a string, not int$"):
        await call(**arguments_with(call, name, 5))


def test_a_merge_takes_a_sandbox_or_its_id(sandbox: Sandbox) -> None:
    sandbox.stop()
    (fork,) = sandbox.fork("argument")
    with fork:
        fork.start()
        fork.write_file("new.txt", "new\n")
        for other in (fork, fork.id, fork.info):
            merged = sandbox.merge(other, dry_run=True)
            assert [path.path for path in merged.paths] == ["new.txt"]
        for value in (5, None, ["sb"]):
            with pytest.raises(TypeError, match=f"^fork: want a sandbox or its id, not {type(value).__name__}$"):
                sandbox.merge(value)  # type: ignore[arg-type]
