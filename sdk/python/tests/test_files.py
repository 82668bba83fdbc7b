"""Writing files, and paths of any kind, with both clients."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from conftest import on_both

from agentfense import AsyncSandbox, FileNotFoundError, InvalidConfigurationError, Sandbox, SandboxError


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing that is written be waited for long."""
    for module in ("_changes", "_async_changes"):
        monkeypatch.setattr(f"agentfense.{module}.WORK", 5.0)


@on_both
def test_only_regular_files_are_written(sandbox: Sandbox, soon: None) -> None:
    made = sandbox.run(
        "set -e; mkfifo fifo; ln -s fifo also; ln -s /dev/null null; ln -s new dangling; echo longer > old"
    )
    assert made.success
    for name in ("fifo", "also", "null"):
        with pytest.raises(SandboxError, match=f"^write {name}: is not a regular file$"):
            sandbox.files.write(name, "x")
    with pytest.raises(SandboxError, match=r"^write src: Is a directory$"):
        sandbox.files.write("src", "x")
    for name in ("dangling", "old"):
        sandbox.files.write(name, "x")
    assert sandbox.run("cat new old").stdout == "xx"


async def test_only_regular_files_are_written_async(async_sandbox: AsyncSandbox, soon: None) -> None:
    assert (await async_sandbox.run("mkfifo fifo")).success
    with pytest.raises(SandboxError, match=r"^write fifo: is not a regular file$"):
        await async_sandbox.files.write("fifo", "x")


def test_no_path_leads_out(sandbox: Sandbox) -> None:
    for path in ("../x", "/../x", "/workspace/../x", "src/../../x"):
        for call in (lambda: sandbox.files.write(path, "x"), lambda: sandbox.files.read(path)):  # noqa: B023
            with pytest.raises(InvalidConfigurationError, match=r'^path: path ".*": name "\.\." is not allowed$'):
                call()


@pytest.mark.parametrize("link", [True, False])
def test_paths_may_be_objects(home: Path, project: Path, link: bool) -> None:
    src, new = Path("src"), PurePosixPath("/workspace/output/new")
    with Sandbox.from_local(project, preset="full-access", link=link) as sb:
        sb.write_file(new, "x")
        assert sb.read_file(new) == "x" and sb.read_file_bytes(new) == b"x"
        assert sb.list_files(src) == ["src/lib.py"]
        assert sb.run("ls", workdir=src).stdout == "lib.py\n"
        with sb.attach(["ls"], workdir=src) as attached:
            assert b"".join(attached) == b"lib.py\n"
        sb.files.write(src / "b", "y")
        assert sb.files.read(src / "b") == "y" and sb.files.stat(src).is_dir and not sb.files.exists(src / "c")
        assert [entry.name for entry in sb.files.list(src)] == ["b", "lib.py"]
        assert sb.policy.explain(src).path == "src"
        with pytest.raises(FileNotFoundError) as caught:
            sb.files.read(src / "c")
        assert caught.value.file_path == "src/c"
        if link:
            assert [change.path for change in sb.diff(src)] == [change.path for change in sb.diff([src])] == ["src/b"]
        with sb.files.watch(src) as watch:
            sb.files.write(src / "d", "z")
            assert next(watch).path == "src/d"


async def test_paths_may_be_objects_async(async_sandbox: AsyncSandbox) -> None:
    new = Path("output/new")
    await async_sandbox.write_file(new, "x")
    assert await async_sandbox.read_file(new) == "x" and await async_sandbox.list_files(Path("src")) == ["src/lib.py"]
    assert (await async_sandbox.files.stat(new)).size == 1 and await async_sandbox.files.exists(new)
    assert (await async_sandbox.policy.explain(new)).path == "output/new"
    assert [change.path for change in await async_sandbox.diff(new)] == ["output/new"]
    assert (await async_sandbox.run("ls", workdir=new.parent)).stdout == "new\n"
