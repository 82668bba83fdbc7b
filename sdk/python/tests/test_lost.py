"""Changes wait for apply after from_local, and lost changes are counted."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from agentfense import AsyncSandbox, ChangesLostWarning, Sandbox, SandboxClient, SyncMode


def directory(tmp_path: Path) -> Path:
    (tmp_path / "a").write_text("one\n")
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("[core]\n")
    return tmp_path


pytestmark = pytest.mark.usefixtures("home")


@pytest.mark.parametrize("link", [True, False])
def test_changes_wait_for_apply_after_from_local(tmp_path: Path, link: bool) -> None:
    source = directory(tmp_path)
    with Sandbox.from_local(source, preset="full-access", link=link) as box:
        assert box.info.sync is SyncMode.MANUAL
        assert box.run("cat .git/config; echo two > a").stdout == "[core]\n"
        assert box.read_file("a") == "two\n"
        box.write_file("made", "by a file call\n")
        assert box.run("cat made").stdout == "by a file call\n"
        assert sorted(box.list_files()) == [".git", "a", "made"]
        assert [f.path for f in box.diff(names_only=True)] == ["a", "made"]
        assert (source / "a").read_text() == "one\n"
        if not link:
            assert box.client.download_file(box.codebase_id, "a") == b"one\n"
        box.apply()
    assert (source / "a").read_text() == "two\n"


def test_lost_changes_are_counted(tmp_path: Path) -> None:
    source = directory(tmp_path)
    said = pytest.warns(ChangesLostWarning, match="with 2 changes not applied")
    with said as seen, Sandbox.from_local(source, preset="full-access") as box:
        box.run("echo two > a; echo new > b")
    assert [w.filename for w in seen] == [__file__]
    box = Sandbox.from_local(source, preset="full-access")
    box.run("echo two > a")
    with pytest.warns(ChangesLostWarning, match="with 1 change not applied") as seen:
        box.destroy()
    assert [w.filename for w in seen] == [__file__]


def test_no_warning_without_lost_changes(tmp_path: Path) -> None:
    source = directory(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Sandbox.from_local(source, preset="full-access") as box:
            box.run("echo two > a; echo new > b")
            box.apply(["a"])
            box.discard(["b"])
        with Sandbox.from_local(source, preset="full-access") as box:
            box.run("cat a")


def test_the_warning_does_not_hide_an_exception(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(KeyError), Sandbox.from_local(directory(tmp_path), preset="full-access") as box:
            box.run("echo two > a")
            raise KeyError


async def test_async_counts_the_same(tmp_path: Path) -> None:
    with pytest.warns(ChangesLostWarning, match="with 1 change not applied"):
        async with await AsyncSandbox.from_local(directory(tmp_path), preset="full-access", link=False) as box:
            await box.run("echo two > a")
            assert await box.read_file("a") == "two\n"


def test_sync_of_a_codebase_is_the_callers(client: SandboxClient) -> None:
    codebase = client.create_codebase("demo", "me")
    box = client.create_sandbox(codebase.id, [{"pattern": "**", "permission": "write"}], sync=SyncMode.MANUAL)
    other = client.create_sandbox(codebase.id, [{"pattern": "**", "permission": "write"}])
    assert (box.sync, other.sync) == (SyncMode.MANUAL, SyncMode.ON_EXEC)
    with pytest.raises(ValueError):
        client.create_sandbox(codebase.id, sync="never")  # type: ignore[arg-type]
    client.start_sandbox(box.id)
    client.exec(box.id, "echo x > x")
    assert client.list_files(codebase.id) == []
    assert client.destroy_sandbox(box.id) == 1
    assert client.destroy_sandbox(other.id) == 0
    client.delete_codebase(codebase.id)
