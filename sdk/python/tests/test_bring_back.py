"""Apply of an uploaded directory changes the directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest

from agentfense import (
    AsyncSandbox,
    ConflictError,
    GitUser,
    InvalidConfigurationError,
    Outcome,
    PermissionDeniedError,
    Sandbox,
    SandboxError,
)

WORK = "echo new >> main.py; rm src/lib.py; mkdir d; echo x > d/x; chmod 755 README.md"


@pytest.fixture
def uploaded(home: Path, project: Path) -> Iterator[Sandbox]:
    """A directory that was uploaded."""
    with Sandbox.from_local(project, preset="development", link=False) as sandbox:
        yield sandbox
    assert list((home / "uploads" / "sandboxes").iterdir()) == []


def files_of(directory: Path) -> Dict[str, Any]:
    """Return what a directory holds."""
    found: Dict[str, Any] = {}
    for path in sorted(directory.rglob("*")):
        mode = path.lstat().st_mode
        text = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else ""
        found[str(path.relative_to(directory))] = (mode, text)
    return found


def copy_of(project: Path, name: str) -> Path:
    import shutil

    copy = project.parent / name / "project"
    shutil.copytree(project, copy, symlinks=True)
    return copy


def test_apply_returns_the_same_for_links_and_uploads(home: Path, project: Path) -> None:
    told: List[Any] = []
    for name, link in {"linked": True, "uploaded": False}.items():
        directory = copy_of(project, name)
        with Sandbox.from_local(directory, preset="development", link=link) as sandbox:
            sandbox.run(WORK, raise_on_error=True)
            before = files_of(directory)
            would = sandbox.apply(dry_run=True)
            assert files_of(directory) == before
            done = sandbox.apply()
            assert sandbox.diff() == []
            done.transaction_id = ""  # only a linked directory has a history
            told.append((would, done, files_of(directory)))
            sandbox.run("echo more >> main.py", raise_on_error=True)
            assert sandbox.apply("main.py").applied_count == 1
            assert (directory / "main.py").read_text().endswith("new\nmore\n")
    assert told[0] == told[1]
    assert told[1][1].applied_count > 0 and told[1][2]["d/x"][1] == b"x\n"


async def test_apply_from_an_event_loop(home: Path, project: Path) -> None:
    async with await AsyncSandbox.from_local(project, preset="development", link=False) as sandbox:
        await sandbox.run(WORK, raise_on_error=True)
        assert (await sandbox.apply(dry_run=True)).applied_count > 0
        assert (await sandbox.apply(reviewed=await sandbox.diff())).applied_count > 0
        assert (project / "d" / "x").read_text() == "x\n" and not (project / "src" / "lib.py").exists()
        await sandbox.run("echo in >> main.py", raise_on_error=True)
        (project / "main.py").write_text("here\n")
        with pytest.raises(ConflictError) as caught:
            await sandbox.apply()
        assert caught.value.paths == ["main.py"] and (project / "main.py").read_text() == "here\n"
        await sandbox.discard()
    assert list((home / "uploads" / "sandboxes").iterdir()) == []


def test_a_directory_that_changed_since_the_upload_is_refused(uploaded: Sandbox, project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    uploaded.run(
        "for f in main.py README.md; do echo in >> $f; done; mkdir out build; echo in > out/x; echo in > build/out.o"
    )
    (project / "main.py").write_text("here\n")
    (project / "out").symlink_to(outside)
    before = files_of(project)
    with pytest.raises(ConflictError) as caught:
        uploaded.apply()
    assert "main.py" in caught.value.paths and "out" in caught.value.paths and "build/out.o" in caught.value.paths
    assert files_of(project) == before and list(outside.iterdir()) == []
    would = uploaded.apply(dry_run=True)
    assert would.applied_count == 0
    assert {r.path for r in would.results if r.outcome is Outcome.CONFLICT} == set(caught.value.paths)
    assert uploaded.apply("README.md").applied_count == 1
    assert (project / "README.md").read_text() == "# project\nin\n"
    assert uploaded.apply([]).result_count == 0
    with pytest.raises(SandboxError):
        uploaded.apply("nothing-changed")
    with pytest.raises(ValueError):
        uploaded.apply("")
    uploaded.discard()


def test_changes_come_back_as_reviewed(uploaded: Sandbox, project: Path) -> None:
    uploaded.run("echo in >> main.py; echo in >> README.md", raise_on_error=True)
    for reviewed in (uploaded.diff(), uploaded.diff().digest):
        uploaded.run("echo evil >> main.py", raise_on_error=True)
        result = uploaded.apply(reviewed=reviewed)
        assert [r.path for r in result.results if r.outcome is Outcome.CHANGED_SINCE_REVIEW] == ["main.py"]
    assert (project / "main.py").read_text() == "print('hello')\n"
    assert (project / "README.md").read_text() == "# project\nin\n"
    uploaded.discard()


def test_only_reviewed_changes_come_back(uploaded: Sandbox, project: Path) -> None:
    """A server that shows less than it sends, as far as a client can play one: it shows what was not there."""
    uploaded.run("echo in >> main.py; echo in > new", raise_on_error=True)
    shown = uploaded.diff()
    assert shown._shown is not None
    shown._shown = tuple(change for change in shown._shown if change.path != "new")
    with pytest.raises(SandboxError, match="did not show"):
        uploaded.apply(reviewed=shown)
    assert not (project / "new").exists() and (project / "main.py").read_text() == "print('hello')\n"
    uploaded.discard()


def test_another_object_brings_changes_back_by_the_current_policy(uploaded: Sandbox, project: Path) -> None:
    uploaded.run("echo in >> main.py", raise_on_error=True)
    other = Sandbox.connect(uploaded.id)
    try:
        other.set_policy(preset="view-only")
        with pytest.raises(PermissionDeniedError):
            other.apply()
        other.set_policy(preset="development")
        assert other.apply().applied_count == 1
    finally:
        other.close()
    assert (project / "main.py").read_text() == "print('hello')\nin\n"


def test_the_token_is_not_among_the_arguments(
    uploaded: Sandbox, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = tmp_path / "seen"
    program = tmp_path / "agentfense"
    program.write_text(
        f'#!/bin/sh\ntr "\\0" " " </proc/$$/cmdline >>{seen}\nexec {os.environ["AGENTFENSE_BINARY"]} "$@"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("AGENTFENSE_BINARY", str(program))
    uploaded.run("echo in >> main.py", raise_on_error=True)
    assert uploaded.apply().applied_count == 1
    token = uploaded.client._connection.token
    assert token and "apply" in seen.read_text() and token not in seen.read_text()


def test_a_missing_program_is_named(home: Path, project: Path, monkeypatch: pytest.MonkeyPatch, client: Any) -> None:
    """The server runs already, and stays as long as ``client`` is connected."""
    with monkeypatch.context() as patch:
        patch.setenv("AGENTFENSE_BINARY", "/nonexistent/agentfense")
        with pytest.warns(UserWarning, match="agentfense is missing"):
            sandbox = Sandbox.from_local(project, preset="development", link=False)
        with sandbox:
            sandbox.run("echo in >> main.py", raise_on_error=True)
            with pytest.raises(InvalidConfigurationError, match="AGENTFENSE_BINARY"):
                sandbox.apply()
            assert (project / "main.py").read_text() == "print('hello')\n"
            assert sandbox.client.apply(sandbox.id).applied_count == 1  # the server's copy, where that is wanted


GIT = "grep -E '^[[:space:]]*(name|email) ' /etc/gitconfig"


@pytest.mark.parametrize("link", [True, False])
def test_git_inside_knows_the_caller(
    home: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, link: bool
) -> None:
    config = tmp_path / "gitconfig"
    config.write_text("[user]\nname = Ann Other\nemail = ann@example.org\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for given, want in (
        (None, '\tname = "Ann Other"\n\temail = "ann@example.org"\n'),
        (GitUser("bot", "b@example.org"), '\tname = "bot"\n\temail = "b@example.org"\n'),
        (GitUser(), ""),
    ):
        with Sandbox.from_local(project, preset="development", link=link, git_user=given) as sandbox:
            assert sandbox.run(GIT).stdout == want
            with Sandbox.from_codebase(sandbox.codebase_id, git_user=given) as other:
                assert other.run(GIT).stdout == want
