"""Mounts, scratch directories and secrets of a server."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Iterator, List

import pytest
from conftest import check_clean

from agentfense import (
    AsyncSandbox,
    ChangeKind,
    ConflictError,
    FileChange,
    FileNotFoundError,
    InvalidConfigurationError,
    KeptPath,
    Mount,
    Outcome,
    PatternType,
    Permission,
    PermissionDeniedError,
    PermissionRule,
    Policy,
    PolicyError,
    ResourceLimits,
    Sandbox,
    SandboxError,
)


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A directory that sandboxes may mount, and write."""
    root = tmp_path.resolve() / "library"
    root.mkdir()
    for name, content in {"a": "one\n", "hidden": "x\n", "workspace": "w\n"}.items():
        (root / name).write_text(content)
    return root


@pytest.fixture
def server(home: Path, library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a server whose configuration lists the library, and a secret."""
    with tempfile.TemporaryDirectory(prefix="af-") as directory:
        own = Path(directory).resolve() / "home"
        own.mkdir(mode=0o700)
        monkeypatch.setenv("AGENTFENSE_HOME", str(own))
        config = own / "server.yaml"
        config.write_text(
            "server: {grpc_addr: 'localhost:0', http_addr: ''}\n"
            f"mounts: {{roots: [{{path: {library}, writable: true, keep: true}}]}}\n"
            "secrets: [{name: API_KEY, source: 'cmd:echo the-value-is-not-known', hosts: [api.example.com]}]\n"
        )
        program = [os.environ["AGENTFENSE_BINARY"], "serve", "--config", str(config)]
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            try:
                yield process.stdout.readline().split()[1]
                check_clean(own)
            finally:
                process.terminate()


def test_the_end_of_a_command_keeps_state(server: str, project: Path, library: Path) -> None:
    (library / "settings.json").write_text('{"history": 1, "hooks": 1}\n')
    rules: List[Any] = [
        PermissionRule("**", Permission.WRITE),
        PermissionRule("/a", Permission.WRITE, PatternType.FILE, keep=True),
        {"pattern": "/run*", "permission": "write", "keep": True},
        {"pattern": "/settings.json", "permission": "write", "type": "file", "keep": True, "keep_keys": ["history"]},
    ]
    with pytest.raises(InvalidConfigurationError, match="in the mounts of a server's sandbox"):
        Sandbox.from_local(project, endpoint=server, permissions=rules)
    for rule, said in (
        (PermissionRule("a", keep=True), "keep goes with permission write"),
        (PermissionRule("a", Permission.WRITE, keep_keys=["a"]), "keep_keys goes with keep"),
    ):
        with pytest.raises(PolicyError, match=said):
            Sandbox.from_local(project, endpoint=server, mounts=[Mount(str(library), "/opt/lib", rules=[rule])])
        with pytest.raises(PolicyError):
            Policy(None, [rule])
    with Sandbox.from_local(project, endpoint=server, mounts=[Mount(str(library), "/opt/lib", rules=rules)]) as sandbox:
        assert [(rule.keep, rule.keep_keys) for rule in sandbox.info.mounts[0].rules][1:] == [
            (True, []),
            (True, []),
            (True, ["history"]),
        ]
        result = sandbox.run(
            "cd /opt/lib && echo two >a && echo x >run.sh && chmod +x run.sh && echo x >hidden"
            """ && echo '{"history": 2, "hooks": 2}' >settings.json"""
        )
        assert result.keep is not None and result.keep.note == "" and result.keep.kept_count == 2
        assert result.keep.kept == [KeptPath("lib", "a"), KeptPath("lib", "settings.json", ["history"])]
        assert ("lib", "run.sh", "it is marked: runs on the host: executable") in [
            (p.mount, p.path, p.reason) for p in result.keep.not_kept
        ]
        assert (library / "a").read_text() == "two\n" and (library / "hidden").read_text() == "x\n"
        assert (library / "settings.json").read_text() == '{"history": 2, "hooks": 1}\n'
        assert not (library / "run.sh").exists()
        with sandbox.exec_stream("echo three >/opt/lib/a") as stream:
            assert list(stream) == []
        assert stream.keep is not None and [p.path for p in stream.keep.kept] == ["a"]
    with Sandbox.from_local(project, endpoint=server) as plain:
        assert plain.run("true").keep is None


def test_a_mount_is_reviewed_and_applied(server: str, project: Path, library: Path) -> None:
    rules = [PermissionRule("**"), {"pattern": "/hidden", "permission": "none"}]
    with Sandbox.from_local(
        project,
        endpoint=server,
        mounts=[
            Mount(str(library), "/opt/lib", mode="cow"),
            {"source": str(library), "place": "/opt/rules", "name": "rules", "rules": rules},
        ],
    ) as sandbox:
        lib, other = sandbox.info.mounts
        assert (lib.source, lib.place, lib.name, lib.mode) == (str(library), "/opt/lib", "lib", "cow")
        assert (other.name, other.mode, other.rules[1].permission) == ("rules", "policy", Permission.NONE)
        result = sandbox.run("cat /opt/rules/hidden; echo two >/opt/lib/a; echo new >/opt/lib/new; cat /opt/rules/a")
        assert result.stdout == "one\n"
        assert [(denial.mount, denial.path) for denial in result.denied][:1] == [("rules", "hidden")]
        assert [(change.mount, change.path, change.kind) for change in result.changed] == [
            ("lib", "a", ChangeKind.MODIFIED),
            ("lib", "new", ChangeKind.CREATED),
        ]
        decided = sandbox.policy.explain("/hidden", mount="rules")
        assert (decided.permission, decided.rule_index) == (Permission.NONE, 1)
        assert sandbox.policy.explain("hidden", mount="lib").permission is Permission.WRITE
        with sandbox.files.watch("/workspace", mount="lib", timeout=60) as changes:
            sandbox.run("echo two >workspace; echo 1 >/opt/lib/b; echo 1 >/opt/lib/workspace")
            assert next(changes) == FileChange("workspace", ChangeKind.MODIFIED, mount="lib")
        sandbox.discard("workspace", mount="lib")
        sandbox.discard("b", mount="lib")
        assert sandbox.files.read("/a", mount="lib") == "two\n"
        assert sandbox.files.read("workspace", mount="lib") == "w\n"
        assert not sandbox.files.exists("hidden", mount="rules")
        assert [entry.path for entry in sandbox.files.list(mount="rules")] == ["a", "workspace"]
        with pytest.raises(FileNotFoundError):
            sandbox.files.read("hidden", mount="rules")

        assert sandbox.diff() == []
        shown = sandbox.diff(mount="lib")
        assert [change.path for change in shown] == ["a", "new"]
        sandbox.snapshot("first")
        assert sandbox.compare("first", mount="lib") == []
        assert [change.path for change in sandbox.compare("source", "first", paths="/new", mount="lib")] == ["new"]
        sandbox.run("echo three >/opt/lib/new")
        assert sandbox.apply(mount="lib", reviewed=shown, dry_run=True).applied_count == 1
        done = sandbox.apply(mount="lib", reviewed=shown)
        assert done.results[0].outcome is Outcome.CHANGED_SINCE_REVIEW and done.applied_count == 1
        assert (library / "a").read_text() == "two\n" and not (library / "new").exists()
        (library / "new").write_text("mine\n")
        with pytest.raises(ConflictError):
            sandbox.apply("new", mount="lib")
        assert sandbox.discard("/new", mount="lib").paths == ["new"]
        assert sandbox.diff(mount="lib", names_only=True) == []
        with pytest.raises(SandboxError, match="nothing can be written in the mount rules"):
            sandbox.diff(mount="rules")
        with pytest.raises(SandboxError, match='no mount has the name "nothing"'):
            sandbox.apply(mount="nothing")
        with pytest.raises(ValueError, match="an empty name"):
            sandbox.discard(mount="")


def test_scratch_directories_and_secrets(server: str, project: Path) -> None:
    with Sandbox.from_local(
        project, "full-access", endpoint=server, scratch="nm", secrets=["API_KEY"], auto_start=False
    ) as sandbox:
        assert sandbox.info.scratch == ["nm"]
        assert [(secret.name, secret.hosts) for secret in sandbox.info.secrets] == [
            ("API_KEY", ["api.example.com:443"])
        ]
        changed = sandbox.update(secrets=[], scratch="other", net_limits=["out=1M"], resources={"pids_limit": 50}).info
        assert (changed.secrets, changed.scratch, changed.net_limits) == ([], ["other"], ["out=1M"])
        assert changed.resources is not None and changed.resources.pids_limit == 50
        assert sandbox.update(resources=ResourceLimits(), scratch=()).info.resources is None
        assert sandbox.info.scratch == [] and sandbox.info.net_limits == ["out=1M"]
        with pytest.raises(InvalidConfigurationError, match="is required"):
            sandbox.update()
        with pytest.raises(SandboxError, match="no secret"):
            sandbox.update(secrets="OTHER")
    with Sandbox.from_local(project, endpoint=server, secrets="API_KEY") as sandbox:
        with pytest.raises(SandboxError, match="stop it first"):
            sandbox.update(publish=["3000"])
        key = sandbox.run("printenv API_KEY").stdout
        assert key and "the-value" not in key


async def test_mounts_on_an_event_loop(server: str, project: Path, library: Path) -> None:
    async with await AsyncSandbox.from_local(
        project, endpoint=server, mounts=[{"source": str(library), "mode": "cow"}], secrets="API_KEY"
    ) as sandbox:
        await sandbox.run(f"echo two >{library}/a")
        assert await sandbox.files.read("a", mount="library") == "two\n"
        shown = await sandbox.diff(mount="library")
        assert (await sandbox.apply(mount="library", reviewed=shown)).applied_count == 1
        assert (await sandbox.discard(mount="library")).path_count == 0
    assert (library / "a").read_text() == "two\n"


def test_what_cannot_be_mounted(server: str, project: Path, library: Path) -> None:
    for mounts, error, says in [
        ([Mount("/etc")], PermissionDeniedError, "mounts.roots"),
        ([Mount(str(library / "nothing"))], SandboxError, "no such file"),
        ([Mount("library")], InvalidConfigurationError, "absolute path"),
        ([Mount(str(library), mode="rw")], InvalidConfigurationError, "mode"),
        ([{"source": str(library), "target": "/x"}], InvalidConfigurationError, r"mounts\[0\]: unknown key 'target'"),
        ([{"place": "/x"}], InvalidConfigurationError, "source is missing"),
        (["/etc"], InvalidConfigurationError, r"mounts\[0\]: want a Mount or a mapping, not str"),
        (str(library), InvalidConfigurationError, "want a list"),
        ([Mount(str(library), rules=[{"pattern": 1}])], PolicyError, "want a pattern"),  # type: ignore[list-item]
    ]:
        with pytest.raises(error, match=says):
            Sandbox.from_local(project, endpoint=server, mounts=mounts)  # type: ignore[arg-type]
    with pytest.raises(SandboxError, match='this server has no secret "OTHER"'):
        Sandbox.from_local(project, endpoint=server, secrets="OTHER")
    with pytest.raises(InvalidConfigurationError, match="scratch"):
        Sandbox.from_local(project, "full-access", endpoint=server, scratch=["../nm"])
