"""States of sandboxes: snapshots, restores, forks and comparisons."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentfense import (
    AsyncSandbox,
    ChangeStatus,
    ConflictError,
    ConflictKind,
    ConflictResolution,
    MergedPath,
    Permission,
    PermissionDeniedError,
    PermissionRule,
    Sandbox,
    SandboxError,
    SnapshotReason,
)

pytestmark = pytest.mark.usefixtures("home")

WRITE_ALL = [PermissionRule("**", Permission.WRITE)]
READ_ALL = [PermissionRule("**", Permission.READ)]


def test_snapshots_are_kept_and_restored(project: Path) -> None:
    with Sandbox.from_local(project, "full-access") as sandbox:
        sandbox.run("echo one > f")
        good = sandbox.snapshot("good")
        assert (good.name, good.label, good.reason, good.created_at is not None) == ("s1", "good", None, True)
        with pytest.raises(SandboxError, match="has the label good already"):
            sandbox.snapshot("good")
        sandbox.run("echo two > f", checkpoint=True)
        listed = sandbox.snapshots()
        assert [(s.name, s.parent, s.reason) for s in listed.snapshots] == [
            ("s1", "", None),
            ("s2", "s1", SnapshotReason.CHECKPOINT),
        ]
        assert (listed.snapshots[1].command, listed.present, listed.fork_of) == ("echo two > f", "s1", None)
        (change,) = sandbox.compare("good")
        assert (change.path, change.id) == ("f", "") and "+two" in change.patch
        assert [c.path for c in sandbox.compare("source", "good")] == ["f"]
        assert sandbox.compare("good", paths=[]) == []
        with pytest.raises(SandboxError, match="stop it first"):
            sandbox.restore("good")
        sandbox.stop()
        restored = sandbox.restore("@{1}")
        assert restored.snapshot.name == "s2" and restored.left_mounts == []
        assert restored.kept is not None and restored.kept.reason is SnapshotReason.RESTORE
        assert sandbox.start().run("cat f").stdout == "one\n"
        sandbox.delete_snapshot("good")
        with pytest.raises(SandboxError, match='no snapshot "good"'):
            sandbox.delete_snapshot("good")
        sandbox.discard()


async def test_forks_begin_with_a_state(project: Path) -> None:
    async with await AsyncSandbox.from_local(project, "full-access") as sandbox:
        await sandbox.run("echo one > f")
        await sandbox.snapshot("good")
        async with await sandbox.attach(["sh", "-c", "echo two > f"], checkpoint=True) as program:
            assert await program.wait() == 0
        a, b = await sandbox.fork("py-fork-a", "py-fork-b", permissions=READ_ALL)
        (early,) = await sandbox.fork("py-fork-early", snapshot="good")
        async with a, b, early:
            assert [fork.info.name for fork in (a, b, early)] == ["py-fork-a", "py-fork-b", "py-fork-early"]
            assert (await (await a.start()).run("cat f; echo x > f")).stdout == "two\n"
            assert (await (await early.start()).run("cat f")).stdout == "one\n"
            (change,) = await a.compare("", from_sandbox_id=early.id)
            assert "-one\n+two" in change.patch
            origin = (await early.snapshots()).fork_of
            assert origin is not None and (origin.sandbox_id, origin.snapshot) == (sandbox.id, "s1")
            with pytest.raises(PermissionDeniedError, match="allow_wider"):
                await a.fork("py-fork-wide", permissions=WRITE_ALL)
            with pytest.raises(PermissionDeniedError, match="wider_forks"):
                await a.fork("py-fork-wide", permissions=WRITE_ALL, allow_wider=True)
            with pytest.raises(TypeError):
                await sandbox.client.fork_sandbox(sandbox.id, "one-name")
            for fork in (a, b, early):
                await fork.discard()
        await sandbox.discard()


def test_a_fork_is_applied_to_the_directory_that_was_uploaded(project: Path) -> None:
    with Sandbox.from_local(project, "full-access", ignore_patterns=["*.log"]) as sandbox:
        sandbox.run("echo one > f")
        (fork,) = sandbox.fork("py-fork-apply")
        with fork:
            assert fork.apply().applied_count == 1
            assert (project / "f").read_text() == "one\n"
        sandbox.discard()


def test_a_fork_is_merged(project: Path) -> None:
    with Sandbox.from_local(project, "full-access") as sandbox:
        sandbox.run("seq 5 > f")
        (fork,) = sandbox.fork("py-merged")
        with fork:
            fork.start().run("sed -i s/5/five/ f; echo theirs > new")
            sandbox.run("sed -i s/1/one/ f; echo ours > new")
            with pytest.raises(SandboxError, match="stop it first"):
                sandbox.merge(fork)
            sandbox.stop()
            would = sandbox.merge(fork, dry_run=True)
            assert [(c.path, c.kind) for c in would.conflicts] == [("new", ConflictKind.BOTH_ADDED)]
            assert (would.paths, would.kept, would.conflict_count) == ([], None, 1)
            with pytest.raises(ConflictError) as refused:
                sandbox.merge(fork)
            assert refused.value.paths == ["new"]
            with pytest.raises(ValueError, match="both"):
                sandbox.merge(fork, on_conflict="both")
            assert sandbox.merge(fork, paths=[]).path_count == 0
            done = sandbox.merge(fork, paths="f")
            assert done.paths == [MergedPath("f", ChangeStatus.MODIFIED, merged=True)]
            assert done.kept is not None and done.kept.reason is SnapshotReason.MERGE
            assert done.kept.command == "py-merged"
            (kept,) = sandbox.merge(fork, on_conflict=ConflictResolution.OURS).paths
            assert (kept.path, kept.status, kept.resolved) == ("new", None, ConflictKind.BOTH_ADDED)
            assert sandbox.start().run("cat f new").stdout == "one\n2\n3\n4\nfive\nours\n"
            fork.discard()
        sandbox.discard()
