"""Files that are written, and paths of any kind, of both clients the same."""

from __future__ import annotations

import pytest
from conftest import on_both

from agentfense import AsyncSandbox, InvalidConfigurationError, Sandbox, SandboxError


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing that is written be waited for long."""
    for module in ("_changes", "_async_changes"):
        monkeypatch.setattr(f"agentfense.{module}.WORK", 5.0)


@on_both
def test_what_is_no_regular_file_is_not_written(sandbox: Sandbox, soon: None) -> None:
    made = sandbox.run(
        "set -e; mkfifo fifo; ln -s fifo also; ln -s /dev/null null; ln -s new dangling; echo longer > old"
    )
    assert made.success
    for name in ("fifo", "also", "null"):
        with pytest.raises(SandboxError, match=f"^write {name}: is no regular file$"):
            sandbox.files.write(name, "x")
    with pytest.raises(SandboxError, match=r"^write src: Is a directory$"):
        sandbox.files.write("src", "x")
    for name in ("dangling", "old"):
        sandbox.files.write(name, "x")
    assert sandbox.run("cat new old").stdout == "xx"


async def test_what_is_no_regular_file_is_not_written_async(async_sandbox: AsyncSandbox, soon: None) -> None:
    assert (await async_sandbox.run("mkfifo fifo")).success
    with pytest.raises(SandboxError, match=r"^write fifo: is no regular file$"):
        await async_sandbox.files.write("fifo", "x")


def test_no_path_leads_out(sandbox: Sandbox) -> None:
    for path in ("../x", "/../x", "/workspace/../x", "src/../../x"):
        for call in (lambda: sandbox.files.write(path, "x"), lambda: sandbox.files.read(path)):  # noqa: B023
            with pytest.raises(InvalidConfigurationError, match=r'^path: path ".*": name "\.\." is not allowed$'):
                call()
