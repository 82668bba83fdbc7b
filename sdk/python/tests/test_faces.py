"""Python and the command line show and do the same."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path
from typing import Iterator, List

import pytest
from conftest import on_both

from agentfense import (
    AsyncSandbox,
    InvalidConfigurationError,
    PermissionDeniedError,
    RuntimeType,
    Sandbox,
    SandboxClient,
)
from agentfense.types import Codebase

USER = pwd.getpwuid(os.geteuid()).pw_name

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def used(project: Path) -> Path:
    """A project with what tools leave in it, and git too."""
    for name in (".git/HEAD", ".venv/bin/python", "node_modules/left-pad/index.js", "debug.log"):
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x\n")
    (project / ".gitignore").write_text("build/\n*.log\n.venv\nnode_modules\n")
    return project


def on_the_command_line(project: Path, *command: str) -> str:
    """Run a command by the command line's own sandbox of a directory."""
    line = [os.environ["AGENTFENSE_BINARY"], "run", "--rm", "--preset", "development", "--", *command]
    return subprocess.run(line, cwd=project, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout


async def test_from_local_shows_what_the_command_line_shows(used: Path) -> None:
    seen = on_the_command_line(used, "ls", "-A")
    names = set(seen.split())
    assert {".git", ".venv", "node_modules", "debug.log", "build"} <= names and ".env" not in names
    with Sandbox.from_local(used, preset="development") as sandbox:
        assert sandbox.run("ls -A").stdout == seen
    async with await AsyncSandbox.from_local(used, preset="development") as sandbox:
        assert (await sandbox.run("ls -A")).stdout == seen


async def test_a_link_hides_ignored_files_with_ignore_files(used: Path) -> None:
    shown: List[str] = []
    with Sandbox.from_local(used, preset="development", ignore_files=True) as sandbox:
        shown.append(sandbox.run("ls -A").stdout)
    async with await AsyncSandbox.from_local(used, preset="development", ignore_files=True) as sandbox:
        shown.append((await sandbox.run("ls -A")).stdout)
    assert (
        shown == ["\n".join([".gitignore", "README.md", "empty", "link", "main.py", "output", "run.sh", "src", ""])] * 2
    )


@pytest.mark.parametrize("link", [True, False])
async def test_the_owner_is_this_user_where_the_token_has_none(project: Path, link: bool) -> None:
    found: List[Codebase] = []
    with Sandbox.from_local(project, link=link, auto_start=False) as sandbox:
        found.append(sandbox.codebase)
        assert sandbox.info.owner_id == USER
    async with await AsyncSandbox.from_local(project, link=link, auto_start=False) as other:
        found.append(other.codebase)
    assert [base.owner_id for base in found] == [USER, USER]


@pytest.fixture
def token(client: SandboxClient) -> Iterator[str]:
    """A token of the server whose owner is team-a."""
    program = os.environ["AGENTFENSE_BINARY"]
    line = [program, "token", "create", "--name", "a", "--owner", "team-a", "--scope", "read,exec,manage"]
    yield subprocess.run(line, stdout=subprocess.PIPE, text=True, check=True, timeout=60).stdout.strip()
    subprocess.run([program, "token", "revoke", "a"], check=True, timeout=60)


async def test_the_owner_is_that_of_the_token(token: str, project: Path) -> None:
    with Sandbox.from_local(project, link=False, token=token, auto_start=False) as sandbox:
        assert (sandbox.codebase.owner_id, sandbox.info.owner_id) == ("team-a", "team-a")
    async with await AsyncSandbox.from_local(project, link=False, token=token, auto_start=False) as other:
        assert (other.codebase.owner_id, other.info.owner_id) == ("team-a", "team-a")


async def test_a_token_that_may_not_link_uploads(token: str, project: Path) -> None:
    with pytest.warns(UserWarning, match="may not link .*, so the directory is uploaded"):
        sandbox = Sandbox.from_local(project, token=token, auto_start=False)
    with sandbox:
        assert not sandbox.codebase.linked and sandbox.codebase.owner_id == "team-a"
    with pytest.warns(UserWarning, match="may not link .*, so the directory is uploaded"):
        other = await AsyncSandbox.from_local(project, token=token, auto_start=False)
    async with other:
        assert not other.codebase.linked and other.codebase.owner_id == "team-a"
    with pytest.raises(PermissionDeniedError):
        Sandbox.from_local(project, link=True, token=token)


async def test_streams_may_be_awaited(project: Path) -> None:
    async with await AsyncSandbox.from_local(project) as sandbox:
        plain = [piece async for piece in sandbox.exec_stream("echo a")]
        awaited = await sandbox.exec_stream("echo a; exit 3")
        assert [piece async for piece in awaited] == plain == [b"a\n"]
        assert awaited.exit_code == 3
        async with await sandbox.exec_stream("echo b") as stream:
            assert [chunk.data async for chunk in stream.chunks()] == [b"b\n"]
        async with sandbox.session() as session:
            assert [piece async for piece in await session.exec_stream("echo c")] == [b"c\n"]
        assert [event.event async for event in await sandbox.audit()]


@on_both
async def test_a_link_is_at_the_path_of_the_command_line(runtime: RuntimeType, project: Path) -> None:
    with Sandbox.from_local(project, runtime=runtime) as sandbox:
        assert sandbox.info.workspace == str(project)
        assert sandbox.run("pwd; cat /workspace/main.py").stdout == f"{project}\nprint('hello')\n"
        assert sandbox.run("pwd", workdir="src").stdout == f"{project}/src\n"
        assert sandbox.read_file("/workspace/main.py") == sandbox.read_file("main.py") == "print('hello')\n"
    async with await AsyncSandbox.from_local(project, runtime=runtime) as other:
        assert (await other.run("pwd")).stdout == f"{project}\n"


async def test_an_upload_is_at_workspace_and_the_default_stays(client: SandboxClient, project: Path) -> None:
    assert on_the_command_line(project, "pwd") == f"{project}\n"
    with Sandbox.from_local(project, link=False) as sandbox:
        assert (sandbox.info.workspace, sandbox.run("pwd").stdout) == ("/workspace", "/workspace\n")
        with pytest.raises(InvalidConfigurationError, match="at_host_path"):
            client.create_sandbox(sandbox.codebase_id, at_host_path=True)
    with Sandbox.from_local(project, auto_start=False) as linked, Sandbox.from_codebase(linked.codebase_id) as sandbox:
        assert (sandbox.info.workspace, sandbox.run("pwd").stdout) == ("/workspace", "/workspace\n")
