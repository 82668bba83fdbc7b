"""The denials and changes in the result of a command."""

from __future__ import annotations

from pathlib import Path
from typing import Any, AsyncIterator, Iterator, List

import pytest

from agentfense import AsyncSandbox, ChangeKind, Denial, FileChange, Permission, Sandbox

COMMAND = "cat secret.key; echo x >> README.md; mv main.py other.py; echo n > new.txt; rm src/lib.py"
CHANGED = [
    FileChange("README.md", ChangeKind.MODIFIED),
    FileChange("new.txt", ChangeKind.CREATED),
    FileChange("other.py", ChangeKind.RENAMED, "main.py"),
    FileChange("src/lib.py", ChangeKind.DELETED),
]


def check(ended: Any, events: List[Any]) -> None:
    """Check what a result, or a stream at its end, tells."""
    assert [(c.path, c.kind, c.old_path) for c in ended.changed] == [(c.path, c.kind, c.old_path) for c in CHANGED]
    assert ended.changed_count == 4 and ended.denied_count == 1
    (denial,) = ended.denied
    assert (
        denial == Denial("secret.key", "open", Permission.NONE, "**/*.key", 7, "cat", denial.pid, 1) and denial.pid > 0
    )
    assert [event.record["path"] for event in events if event.record["exec"] == ended.exec_id] == ["/secret.key"]


@pytest.fixture
def guarded(home: Path, project: Path) -> Iterator[Sandbox]:
    (project / "secret.key").write_text("secret")
    with Sandbox.from_local(project, preset="development") as sandbox:
        yield sandbox


@pytest.fixture
async def async_guarded(home: Path, project: Path) -> AsyncIterator[AsyncSandbox]:
    (project / "secret.key").write_text("secret")
    async with await AsyncSandbox.from_local(project, preset="development") as sandbox:
        yield sandbox


def test_results(guarded: Sandbox) -> None:
    check(guarded.run(COMMAND), list(guarded.audit(events="permission_denied")))
    guarded.discard()
    stream = guarded.exec_stream(COMMAND)
    assert stream.denied == [] and stream.changed == [] and stream.exec_id == ""
    for _ in stream:
        pass
    check(stream, list(guarded.audit(events="permission_denied")))
    guarded.discard()
    with guarded.session() as shell:
        check(shell.exec(COMMAND), list(guarded.audit(events="permission_denied")))
    quiet = guarded.run("ls")
    assert (quiet.denied, quiet.denied_count, quiet.changed, quiet.changed_count) == ([], 0, [], 0)
    assert quiet.exec_id not in ("", stream.exec_id)


def test_a_name_that_is_not_utf8(sandbox: Sandbox) -> None:
    assert sandbox.run(r"touch $(printf 'a\377')").changed == [FileChange("a\udcff", ChangeKind.CREATED)]


async def test_async_results(async_guarded: AsyncSandbox) -> None:
    async def denials() -> List[Any]:
        return [event async for event in async_guarded.audit(events="permission_denied")]

    check(await async_guarded.run(COMMAND), await denials())
    await async_guarded.discard()
    stream = async_guarded.exec_stream(COMMAND)
    async for _ in stream.chunks():
        pass
    check(stream, await denials())
