"""What was applied can be taken back, committed to a branch, and attested."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from agentfense import (
    AsyncSandbox,
    BranchMove,
    ChangeStatus,
    ConflictError,
    GitUser,
    InvalidConfigurationError,
    Sandbox,
    SandboxClient,
    SandboxError,
    TransactionKind,
    TransactionState,
)


def git(directory: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Host", "-c", "user.email=host@example.org")
    return subprocess.run(
        ["git", "-C", str(directory), *identity, *arguments], check=True, capture_output=True, text=True
    ).stdout.strip()


def test_an_apply_is_undone_and_done_again(sandbox: Sandbox, client: SandboxClient, project: Path) -> None:
    with pytest.raises(SandboxError, match="nothing was applied"):
        sandbox.undo()
    sandbox.run("echo changed > main.py; rm README.md")
    applied = sandbox.apply()
    assert applied.transaction_id.startswith("tx_")
    plan = sandbox.undo(dry_run=True)
    assert (plan.path_count, plan.conflict_count, plan.transaction_id) == (2, 0, "")
    assert [(path.path, path.status) for path in plan.paths] == [
        ("README.md", ChangeStatus.ADDED),
        ("main.py", ChangeStatus.MODIFIED),
    ]
    assert (project / "main.py").read_text() == "changed\n"

    undone = sandbox.undo()
    assert (undone.kind, undone.of.id) == (TransactionKind.UNDO, applied.transaction_id)
    assert (project / "main.py").read_text() == "print('hello')\n" and (project / "README.md").exists()
    redone = client.redo_transaction(applied.transaction_id)
    assert redone.kind is TransactionKind.REDO and not (project / "README.md").exists()
    kinds = [(one.kind.value, one.state) for one in sandbox.history()]
    assert kinds == [(kind, TransactionState.COMMITTED) for kind in ("redo", "undo", "apply")]
    codebase = sandbox.history()[0].codebase_id
    assert client.list_transactions(codebase_id=codebase) == sandbox.history()

    (project / "main.py").write_text("by hand\n")
    with pytest.raises(ConflictError) as caught:
        sandbox.undo()
    assert caught.value.paths == ["main.py"]
    with pytest.raises(ConflictError):
        client.undo_transaction(applied.transaction_id)
    with pytest.raises(InvalidConfigurationError, match="exactly one"):
        client.list_transactions()


async def test_for_an_event_loop(async_sandbox: AsyncSandbox, project: Path) -> None:
    await async_sandbox.run("echo changed > main.py")
    await async_sandbox.apply()
    assert (await async_sandbox.undo()).kind is TransactionKind.UNDO
    assert (project / "main.py").read_text() == "print('hello')\n"
    assert (await async_sandbox.redo(dry_run=True)).path_count == 1
    assert [one.kind for one in await async_sandbox.history()] == [TransactionKind.UNDO, TransactionKind.APPLY]


def test_changes_become_a_commit(sandbox: Sandbox, project: Path) -> None:
    sandbox.run("echo changed > main.py")
    with pytest.raises(SandboxError, match=r"no directory \.git"):
        sandbox.apply(to_branch="made", git_user=GitUser("A Client", "client@example.org"))
    git(project, "init", "-q", "-b", "main", ".")
    git(project, "add", "main.py")
    git(project, "commit", "-qm", "first")
    with pytest.raises(InvalidConfigurationError, match="to_branch"):
        sandbox.apply(message="Fix it")
    made = sandbox.apply(
        "main.py", to_branch="made", message="Fix it", git_user=GitUser("A Client", "client@example.org")
    )
    assert made.commit == git(project, "rev-parse", "made") and made.transaction_id == ""
    assert git(project, "log", "-1", "--format=%an %ae %cn %s", "made") == "A Client client@example.org A Client Fix it"
    assert (project / "main.py").read_text() == "print('hello')\n"


def test_an_apply_is_attested(sandbox: Sandbox) -> None:
    sandbox.run("echo changed > main.py")
    attested = sandbox.apply(reviewed=sandbox.diff(), attest=True)
    statement = json.loads(attested.statement)
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert [change["path"] for change in statement["predicate"]["changes"]] == ["/main.py"]


def test_commits_come_back(client: SandboxClient, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL"):
        monkeypatch.delenv(name, raising=False)
    git(project, "init", "-q", "-b", "main", ".")
    git(project, "add", ".")
    git(project, "commit", "-qm", "first")
    with Sandbox.from_local(str(project), preset="full-access", git="clean") as sandbox:
        assert client.get_sandbox(sandbox.id).git == "clean:50"
        sandbox.run(
            "git config user.name Agent; git config user.email a@example.org; echo x > main.py; git commit -qam Fix"
        )
        found = sandbox.commits()
        assert found.source == git(project, "rev-parse", "main")
        assert [(c.branch, c.current, c.subject, [f.path for f in c.files]) for c in found.commits] == [
            ("main", True, "Fix", ["main.py"])
        ]
        by = GitUser("A Client", "client@example.org")
        with pytest.raises(InvalidConfigurationError, match="to_branch"):
            sandbox.apply_commits("", git_user=by)
        assert sandbox.apply_commits("made", dry_run=True, git_user=by).commit == ""
        made = sandbox.apply_commits("made", reviewed=found.commits[0].id, git_user=by)
        assert (made.commit, made.commit_count, made.refused) == (git(project, "rev-parse", "made"), 1, [])
        assert [c.applied for c in (*found.commits, *sandbox.commits().commits)] == [False, True]
        assert git(project, "log", "-1", "--format=%an %cn %s", "made") == "Agent A Client Fix"
        assert (made.branch, made.checked_out, made.transaction_id) == ("made", False, "")
        onto = sandbox.apply_commits(git_user=by)
        assert (onto.branch, onto.checked_out, onto.commit) == ("main", True, git(project, "rev-parse", "main"))
        assert git(project, "status", "--porcelain") == "" and (project / "main.py").read_text() == "x\n"
        undone = client.undo_transaction(onto.transaction_id)
        assert undone.conflict_count == 0
        assert undone.of.branch == BranchMove("main", found.source, onto.commit)
        assert [one.branch and one.branch.to_commit for one in sandbox.history()] == [found.source, onto.commit]
        assert git(project, "rev-parse", "main") == found.source
