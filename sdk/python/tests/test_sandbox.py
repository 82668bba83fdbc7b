"""Sandbox, for threads, on a real server."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, List

import pytest
from conftest import on_both, wait_until

from agentfense import (
    AsyncSandbox,
    ChangeStatus,
    CommandExecutionError,
    CommandTimeoutError,
    ConflictError,
    ConflictKind,
    ConflictResolution,
    FileNotFoundError,
    InvalidConfigurationError,
    Outcome,
    Permission,
    PermissionDeniedError,
    PermissionRule,
    Policy,
    RedactFormat,
    ResourceLimitExceededError,
    ResourceLimits,
    RuntimeType,
    Sandbox,
    SandboxClient,
    SandboxNotFoundError,
    SandboxNotRunningError,
    SandboxStatus,
    SessionClosedError,
    SessionNotFoundError,
    SessionStatus,
    _interrupts,
    get_preset,
)
from agentfense.types import RuleLike


def test_the_first_example(home: Path, project: Path) -> None:
    with Sandbox.from_local(project, preset="agent-safe") as sb:
        assert sb.run("cat main.py").stdout == "print('hello')\n"
        assert (sb.status, sb.runtime) == (SandboxStatus.RUNNING, RuntimeType.BWRAP)
        assert repr(sb) == f"<Sandbox {sb.id} running>"
        assert sb.info.started_at is not None and sb.info.stopped_at is None
        assert sb.run("cat .env secrets/key.txt").stdout == ""
        assert sb.run("echo x > main.py").exit_code != 0
        assert sb.run("echo x > output/result && cat output/result").stdout == "x\n"
        assert not (project / "output/result").exists()
    with pytest.raises(SandboxNotFoundError):
        Sandbox.connect(sb.id)


@on_both
def test_how_a_command_ends(sandbox: Sandbox) -> None:
    result = sandbox.run("cat; echo out; echo err >&2; exit 3")
    assert (result.stdout, result.stderr, result.exit_code) == ("out\n", "err\n", 3)
    assert result.duration is not None and timedelta(0) < result.duration < timedelta(minutes=1)
    assert (result.success, result.command) == (False, "cat; echo out; echo err >&2; exit 3")
    with pytest.raises(CommandExecutionError, match="exit code 3: err"):
        sandbox.run("echo err >&2; exit 3", raise_on_error=True)
    assert sandbox.run("kill -9 $$").exit_code == 137


@on_both
def test_the_settings_of_a_command(sandbox: Sandbox) -> None:
    assert sandbox.exec("cat", stdin="text ä").stdout == "text ä"
    assert sandbox.exec("cat", stdin=b"\xff\0").stdout_bytes == b"\xff\0"
    assert sandbox.exec("cat", stdin=b"\xff").stdout == "\ufffd"
    assert (
        sandbox.run('echo "$A"; pwd', env={"A": "a b"}, workdir="src").stdout == f"a b\n{sandbox.info.workspace}/src\n"
    )


@on_both
def test_a_timeout_ends_the_command(sandbox: Sandbox) -> None:
    with pytest.raises(CommandTimeoutError) as caught:
        sandbox.run("echo $$ > output/pid; exec sleep 1000", timeout=0.5)
    assert (caught.value.timeout_seconds, caught.value.grpc_code) == (0.5, (4, "deadline exceeded"))
    assert sandbox.run("kill -0 $(cat output/pid)").exit_code != 0
    with pytest.raises(CommandTimeoutError):
        sandbox.exec("sleep 1000", timeout=timedelta(seconds=0.2))


@on_both
def test_output_comes_live_and_apart(sandbox: Sandbox) -> None:
    command = "echo one; read line < output/go; echo two >&2; exit 4"
    sandbox.run("mkfifo output/go", raise_on_error=True)
    with sandbox.exec_stream(command) as stream:
        chunks = stream.chunks()
        first = next(chunks)
        assert (first.stream, first.data, stream.exit_code) == ("stdout", b"one\n", None)
        sandbox.run("echo > output/go")
        second = next(chunks)
        assert (second.stream, second.data) == ("stderr", b"two\n")
        assert list(chunks) == []
        assert stream.exit_code == 4
    assert b"".join(sandbox.exec_stream("printf a; printf b >&2")) in (b"ab", b"ba")
    with pytest.raises(CommandTimeoutError):
        list(sandbox.exec_stream("sleep 1000", timeout=timedelta(seconds=0.2)))


@pytest.mark.parametrize(
    ("how", "runtime"),
    [
        ("close", "bwrap"),
        ("forget", "bwrap"),
        ("with", "bwrap"),
        pytest.param("close", "docker", marks=pytest.mark.docker),
    ],
    indirect=["runtime"],
)
def test_leaving_a_stream_ends_its_command(sandbox: Sandbox, how: str) -> None:
    stream = sandbox.exec_stream("echo $$ > output/pid; echo started; exec sleep 1000", timeout=timedelta(minutes=5))
    assert next(stream) == b"started\n"
    if how == "close":
        stream.close()
        assert list(stream) == []
    elif how == "with":
        with stream:
            pass
    else:
        del stream
    wait_until("the command ends", lambda: not sandbox.run("kill -0 $(cat output/pid)").success)


def test_much_output_in_little_memory(sandbox: Sandbox) -> None:
    size = sum(len(data) for data in sandbox.exec_stream("head -c 50000000 /dev/zero", timeout=timedelta(minutes=2)))
    assert size == 50_000_000
    result = sandbox.run("head -c 5000000 /dev/zero | tr '\\0' a")
    assert result.stdout_truncated and 4_000_000 < len(result.stdout) < 5_000_000


@on_both
def test_sessions(sandbox: Sandbox) -> None:
    with sandbox.session(env={"GIVEN": "1"}) as session:
        assert (session.sandbox_id, session.status, session.shell) == (sandbox.id, SessionStatus.ACTIVE, "/bin/sh")
        assert session.exec("cd src; a=5; echo $GIVEN").stdout == "1\n"
        assert session.exec("echo $a; pwd").stdout == f"5\n{sandbox.info.workspace}/src\n"
        assert b"".join(session.exec_stream("echo streamed; exit_later() { :; }")) == b"streamed\n"
        with pytest.raises(CommandTimeoutError):
            session.exec("sleep 1000", timeout=timedelta(seconds=0.3))
        assert session.exec("echo $a").stdout == "5\n"
        assert [s.id for s in sandbox.client.list_sessions(sandbox.id)] == [session.id]
        assert sandbox.client.get_session(session.id).created_at is not None
    assert session.status is SessionStatus.CLOSED
    session.close()
    with pytest.raises(SessionNotFoundError):
        session.exec("true")
    with sandbox.session() as session:
        session.exec("exec true")
        wait_until("the shell is gone", lambda: is_closed(session))


def is_closed(session: object) -> bool:
    try:
        session.exec("true")  # type: ignore[attr-defined]
    except SessionClosedError:
        return True
    return False


@on_both
def test_a_file_that_can_only_be_written(sandbox: Sandbox, project: Path) -> None:
    (project / "drop").write_text("a long first content\n")
    (project / "drop").chmod(0o200)
    names = ["made"] if os.geteuid() else ["made", "drop"]  # of drop, an ordinary user could copy nothing up
    for name in names:
        if name == "made":
            assert sandbox.run("echo a long first content >made && chmod 200 made").exit_code == 0
        sandbox.write_file(name, "second")
        result = sandbox.run(f"stat -c %a:%s {name}; cat {name}")
        assert result.stdout == "200:6\n" and "denied" in result.stderr
        assert sandbox.run(f"chmod 600 {name} && cat {name}").stdout == "second"


@pytest.mark.parametrize("user", [0, 7])
def test_commands_run_as_the_user(home: Path, project: Path, user: int) -> None:
    with Sandbox.from_local(project, user=user) as sb:
        assert sb.run("id -u; id -g").stdout == f"{user}\n{user}\n"


def test_the_user_is_a_number(home: Path, project: Path) -> None:
    with pytest.raises(InvalidConfigurationError):
        Sandbox.from_local(project, user=65534)
    with pytest.raises(TypeError):
        Sandbox.from_local(project, user="root")  # type: ignore[arg-type]


def test_a_kept_home_survives_a_restart(home: Path, project: Path) -> None:
    with Sandbox.from_local(project, home="keep") as sb:
        assert sb.info.home == "keep"
        assert sb.run("echo wheel >~/w; echo $HOME").stdout == "/run/agentfense/home\n"
        sb.stop()
        sb.start()
        assert sb.run("cat ~/w").stdout == "wheel\n"
        assert not list(sb.diff())
    with Sandbox.from_local(project) as sb:
        assert sb.info.home == "private"
        assert sb.run("touch ~/f").exit_code == 0
        sb.stop()
        sb.start()
        assert sb.run("ls -A ~").stdout == ""
    with pytest.raises(InvalidConfigurationError):
        Sandbox.from_local(project, home="kept")


def test_a_directory_that_contains_the_state_directory(home: Path, project: Path) -> None:
    over = home.parent
    shutil.copytree(project, over / "project")
    with Sandbox.from_local(over, preset="full-access") as sandbox:
        assert sandbox.codebase.linked
        assert sandbox.list_files() == ["project"]
        result = sandbox.run("ls -A; cat home/token; cat project/README.md")
        assert result.stdout == "project\n# project\n"
        assert "home/token" in result.stderr
    shutil.rmtree(over / "project")


@on_both
def test_files_of_a_linked_directory_are_the_view(sandbox: Sandbox, project: Path) -> None:
    assert sandbox.codebase.linked
    sandbox.write_file("/workspace/new/deep/a.txt", "one")
    assert sandbox.read_file("new/deep/a.txt") == "one"
    assert sandbox.run("cat new/deep/a.txt").stdout == "one"
    sandbox.write_file("main.py", b"\xff")
    assert (sandbox.read_file_bytes("/main.py"), sandbox.read_file("main.py")) == (b"\xff", "\ufffd")
    assert (project / "main.py").read_text() == "print('hello')\n"
    assert "new" in sandbox.list_files() and "new/deep/a.txt" not in sandbox.list_files()
    assert "new/deep/a.txt" in sandbox.list_files(recursive=True)
    assert sandbox.list_files("/workspace/new/deep") == ["new/deep/a.txt"]
    big = os.urandom(300_000)
    sandbox.write_file("big", big)
    assert sandbox.read_file_bytes("big") == big
    entry = sandbox.files.stat("big")
    assert (entry.name, entry.size, entry.is_dir, entry.changed) == ("big", 300_000, False, True)
    assert entry.permission is Permission.WRITE
    assert not sandbox.files.stat("README.md").changed
    assert sandbox.files.stat("link").symlink_target == "main.py"
    assert sandbox.files.exists("src") and not sandbox.files.exists("absent")
    for read in (sandbox.read_file, sandbox.files.stat, sandbox.list_files):
        with pytest.raises(FileNotFoundError):
            read("absent")
    with pytest.raises(FileNotFoundError):
        sandbox.write_file("main.py/x", "")


def test_a_rule_shows_another_content(project: Path) -> None:
    (project / ".env").write_text("KEY=hunter2\n")
    (project / "local.env").write_text("KEY=hunter2\n")
    rules: List[RuleLike] = [
        PermissionRule("**"),
        PermissionRule("/.env", redact=RedactFormat.ENV),
        {"pattern": "/local.env", "substitute": "README.md"},
    ]
    with Sandbox.from_local(project, policy=Policy(None, rules)) as sb:
        assert sb.run("cat .env local.env").stdout == "KEY=***\n" + (project / "README.md").read_text()
        rule = sb.policy.explain(".env").rule
        assert rule is not None and rule.redact is RedactFormat.ENV
        assert sb.info.permissions[2].substitute == "README.md"


@on_both
def test_the_view_keeps_to_the_policy(runtime: RuntimeType, project: Path) -> None:
    with Sandbox.from_local(
        project, runtime=runtime, permissions=[{"pattern": "/README.md", "permission": "view", "priority": 5}]
    ) as sb:
        assert ".env" not in sb.list_files() and not sb.files.exists("secrets/key.txt")
        with pytest.raises(PermissionDeniedError):
            sb.read_file("README.md")
        with pytest.raises(PermissionDeniedError):
            sb.write_file("main.py", "x")
        with pytest.raises(FileNotFoundError):
            sb.read_file(".env")
        sb.stop()
        assert sb.read_file("main.py") == "print('hello')\n"
        with pytest.raises(SandboxNotRunningError):
            sb.write_file("output/x", "x")


@on_both
def test_a_file_of_any_name_can_be_written(sandbox: Sandbox) -> None:
    names = ["-n", "%s \\0134 $(x) 'y' \"", "a: b", "ends\n", "latin\udce4", "new/ä\n/\\"]
    for name in names:
        sandbox.files.write(name, name.encode("utf-8", "surrogateescape"))
    found = {entry.path for entry in sandbox.files.list(recursive=True) if entry.changed and not entry.is_dir}
    assert found == set(names)
    assert all(os.fsdecode(sandbox.files.read_bytes(name)) == name for name in names)


def test_all_pages_of_a_view_are_listed(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sandbox.files.list()
    connection, pages = sandbox.client._connection, []
    call = connection.call

    def by_two(method: str, request: Any, *more: Any) -> Any:
        request.page_size = 2
        pages.append(call(method, request, *more))
        return pages[-1]

    monkeypatch.setattr(connection, "call", by_two)
    assert sandbox.files.list() == whole
    assert len(pages) == (len(whole) + 1) // 2 > 2


def test_a_sparse_file_does_not_fill_the_memory(sandbox: Sandbox) -> None:
    sandbox.run("truncate -s 1T huge; printf 1234 > small", raise_on_error=True)
    for read in (sandbox.files.read, sandbox.files.read_bytes, sandbox.read_file, sandbox.read_file_bytes):
        with pytest.raises(ResourceLimitExceededError, match=r"larger than 3 bytes$") as caught:
            read("small", max_bytes=3)
        assert caught.value.limit == 3
        assert len(read("small", max_bytes=4)) == len(read("small", max_bytes=None)) == 4
    with pytest.raises(ResourceLimitExceededError, match=r"huge: larger than 67108864 bytes: pass a higher max_bytes="):
        sandbox.read_file("huge")


@on_both
def test_files_of_an_upload_are_the_view_until_it_is_applied(runtime: RuntimeType, project: Path) -> None:
    (project / "latin\udce4").write_bytes(b"l")
    with Sandbox.from_local(project, preset="full-access", runtime=runtime, link=False, ignore_patterns=["*.md"]) as sb:
        assert not sb.codebase.linked
        names = sb.run("find . -mindepth 1 -maxdepth 1").stdout_bytes.split(b"\n")[:-1]
        assert sorted(name[2:] for name in names) == sorted(
            [b".gitignore", b"empty", b"latin\xe4", b"link", b"main.py", b"output", b"run.sh", b"secrets", b"src"]
        )
        assert sb.run("./run.sh; readlink link").stdout == "ran\nmain.py\n"
        assert sb.codebase.file_count == 8
        sb.write_file("/workspace/a.txt", "host")
        assert sb.run("cat a.txt; echo inside > b.txt").stdout == "host"
        assert sb.read_file("b.txt") == "inside\n"
        assert "b.txt" in sb.list_files() and "src/lib.py" in sb.list_files(recursive=True)
        assert sb.read_file_bytes("latin\udce4") == b"l"
        with pytest.raises(FileNotFoundError) as caught:
            sb.read_file("absent")
        assert caught.value.file_path == "absent"
        assert sb.refresh().codebase.file_count == 8
        sb.apply()
        assert sb.refresh().codebase.file_count == 10
    assert (project / "b.txt").read_text() == "inside\n" and (project / "README.md").exists()


@on_both
def test_review_and_apply(sandbox: Sandbox, project: Path) -> None:
    sandbox.run("echo new > new.txt; echo '# better' > README.md; rm src/lib.py; chmod +x new.txt")
    changes = {change.path: change for change in sandbox.diff()}
    assert {path: c.status for path, c in changes.items()} == {
        "new.txt": ChangeStatus.ADDED,
        "README.md": ChangeStatus.MODIFIED,
        "src/lib.py": ChangeStatus.DELETED,
    }
    readme = changes["README.md"]
    assert (readme.inserted, readme.deleted) == (1, 1) and "+# better" in readme.patch
    assert readme.old and readme.new and readme.new.size == 9 and stat.S_ISREG(readme.new.mode)
    assert changes["new.txt"].old is None and changes["src/lib.py"].new is None
    assert [c.patch for c in sandbox.diff("README.md", names_only=True)] == [""]
    dry = sandbox.apply(["new.txt"], dry_run=True)
    assert (dry.applied_count, [r.outcome for r in dry.results]) == (1, [Outcome.APPLIED])
    assert not (project / "new.txt").exists()
    assert sandbox.discard("src").paths == ["src/lib.py"]
    assert sandbox.run("cat src/lib.py").stdout == "x = 1\n"
    assert sandbox.apply().applied_count == 2
    assert (project / "README.md").read_text() == "# better\n" and (project / "src/lib.py").exists()
    assert sandbox.diff() == []


def test_apply_of_hunks(sandbox: Sandbox, project: Path) -> None:
    sandbox.run("seq 1 12 > long")
    sandbox.apply("long")
    sandbox.run("sed -i '1s/.*/first/; 12s/.*/last/' long; chmod +x long")
    shown = sandbox.diff()
    change = shown[0]
    assert [h.new_start for h in change.hunks] == [1, 9] and change.id and change.mode_id and not change.hunks[0].pieces
    assert sandbox.apply(hunks=[]).applied_count == 0
    done = sandbox.apply(hunks=[change.hunks[1].id], reviewed=shown)
    assert (done.applied_count, done.results[0].hunks, done.results[0].of_hunks) == (1, 1, 3)
    assert (project / "long").read_text().splitlines() == [*map(str, range(1, 12)), "last"]
    assert sandbox.apply(hunks=[change.id]).applied_count == 1
    assert sandbox.diff() == [] and (project / "long").read_text().startswith("first\n")


def test_apply_merges_texts(sandbox: Sandbox, project: Path) -> None:
    text = project / "long"
    text.write_text("".join(f"{i}\n" for i in range(1, 9)))
    sandbox.run("sed -i 's/^8$/eight/' long")
    text.write_text(text.read_text().replace("1\n", "one\n"))
    (merged,) = sandbox.apply().results
    assert (merged.outcome, merged.merged, merged.conflicts) == (Outcome.APPLIED, True, 0)
    sandbox.run("sed -i 's/^4$/by the sandbox/' long")
    text.write_text(text.read_text().replace("4\n", "by a person\n"))
    (conflict,) = sandbox.apply(dry_run=True).results
    assert (conflict.outcome, conflict.conflict_kind) == (Outcome.CONFLICT, ConflictKind.TEXT)
    with pytest.raises(ConflictError):
        sandbox.apply()
    with pytest.raises(ValueError, match="both"):
        sandbox.apply(on_conflict="both")
    (marked,) = sandbox.apply(on_conflict=ConflictResolution.MARKERS).results
    assert marked.merged and marked.conflicts == 1
    assert "<<<<<<< source\nby a person\n=======\nby the sandbox\n>>>>>>> sandbox " in text.read_text()
    assert text.read_text().startswith("one\n") and text.read_text().endswith("eight\n")


def test_apply_takes_what_was_reviewed(sandbox: Sandbox, project: Path) -> None:
    sandbox.run("echo good > new.txt; echo '# better' > README.md")
    shown = sandbox.diff()
    assert len(shown.digest) == 64 and sandbox.diff("README.md", shown=shown).digest == shown.digest
    assert shown[0].new and len(shown[0].new.sha256) == 64
    assert not sandbox.run("echo evil > new.txt; echo later > later").sync_held
    for reviewed in (shown, shown.digest):
        dry = sandbox.apply(reviewed=reviewed, dry_run=True)
        left = {r.path for r in dry.results if r.outcome is Outcome.CHANGED_SINCE_REVIEW}
        assert (dry.applied_count, left) == (1, {"new.txt", "later"})
    assert sandbox.apply(reviewed=shown).applied_count == 1
    assert (project / "README.md").read_text() == "# better\n" and not (project / "new.txt").exists()
    for unfit in (sandbox.diff(names_only=True), ""):
        with pytest.raises(ValueError, match="pass a diff without names_only"):
            sandbox.apply(reviewed=unfit)
    with pytest.raises(TypeError):
        sandbox.apply(reviewed=1)  # type: ignore[arg-type]
    assert sandbox.apply().applied_count == 2


@on_both
def test_closing_leaves_the_sandbox(sandbox: Sandbox) -> None:
    with closing(Sandbox.connect(sandbox.id)) as found:
        assert found.run("echo x > output/x").success
    with Sandbox.connect(sandbox.id) as left:
        left.close()
        left.close()
        with pytest.raises(InvalidConfigurationError, match="closed"):
            left.destroy()
    assert sandbox.refresh().run("cat output/x").stdout == "x\n"


def test_conflict(sandbox: Sandbox, project: Path) -> None:
    sandbox.run("echo agent > README.md; echo agent > main.py", raise_on_error=True)
    (project / "README.md").write_text("somebody else\n")
    with pytest.raises(ConflictError) as caught:
        sandbox.apply()
    assert (caught.value.sandbox_id, caught.value.paths) == (sandbox.id, ["README.md"])
    assert caught.value.grpc_code == (9, "failed precondition")
    assert (project / "main.py").read_text() == "print('hello')\n"
    long = [f"output/{i:0200}" for i in range(100)]
    sandbox.run(f"touch {' '.join(long)}", raise_on_error=True)
    for name in long:
        (project / name).write_text("somebody else\n")
    with pytest.raises(ConflictError) as many:
        sandbox.apply("output")
    assert 0 < len(many.value.paths) < len(long)
    assert set(many.value.paths) < set(long)
    sandbox.set_policy([{"pattern": "**/*", "permission": "read"}])
    with pytest.raises(PermissionDeniedError) as refused:
        sandbox.apply("main.py")
    assert (refused.value.operation, refused.value.path) == ("apply", "main.py")


def test_policy_of_a_live_sandbox(sandbox: Sandbox) -> None:
    assert sandbox.policy.explain("main.py").permission is Permission.WRITE
    sandbox.set_policy(
        [{"pattern": "/main.py", "permission": "none", "type": "file", "priority": 5}], preset="read-only"
    )
    assert sandbox.run("cat main.py").exit_code != 0
    why = sandbox.policy.explain("/workspace/main.py")
    assert (why.permission, why.rule_index) == (Permission.NONE, len(get_preset("read-only")))
    assert why.rule is not None and why.rule.pattern == "/main.py" and why.reason
    assert [rule.pattern for rule in sandbox.info.permissions][:: len(get_preset("read-only"))] == ["**/*", "/main.py"]


@on_both
def test_audit_and_stats(sandbox: Sandbox) -> None:
    sandbox.set_policy(preset="read-only")
    with sandbox.audit(follow=True, events="permission_denied") as events:
        sandbox.run("echo x > main.py")
        denied = next(event for event in events if event.record["path"] == "/main.py")
    assert denied.event == "permission_denied"
    assert denied.time is not None and denied.line.startswith("{")
    everything = list(sandbox.audit())
    assert [event.seq for event in everything] == list(range(1, len(everything) + 1))
    assert [event.seq for event in sandbox.audit(after_seq=denied.seq)] == list(
        range(denied.seq + 1, len(everything) + 1)
    )
    stats = sandbox.stats()
    assert (stats.execs, stats.sessions) == (0, 0)
    assert stats.view_requests["lookup"] > 0
    sandbox.stop()
    with pytest.raises(SandboxNotRunningError) as caught:
        sandbox.stats()
    assert caught.value.current_status == "stopped"


@on_both
def test_life(runtime: RuntimeType, project: Path) -> None:
    with Sandbox.from_local(
        project, runtime=runtime, auto_start=False, labels={"task": "42"}, owner_id="me", codebase_name="c"
    ) as sb:
        assert sb.status is SandboxStatus.PENDING
        assert (sb.info.labels, sb.codebase.owner_id, sb.codebase.name) == ({"task": "42"}, "me", "c")
        with pytest.raises(SandboxNotRunningError) as caught:
            sb.run("true")
        assert (caught.value.sandbox_id, caught.value.current_status) == (sb.id, "pending")
        assert sb.start().status is SandboxStatus.RUNNING
        with (
            Sandbox.connect(sb.id) as same,
            Sandbox.from_codebase(sb.codebase_id, preset="view-only", runtime=runtime) as other,
        ):
            assert same.codebase_id == other.codebase_id == sb.codebase_id
            assert same.run("echo 1").stdout == "1\n"
            assert other.run("cat main.py").exit_code != 0
            assert {s.id for s in sb.client.list_sandboxes(sb.codebase_id)} == {sb.id, other.id}
        sb.destroy()
        sb.destroy()


def test_name_and_expiry(client: SandboxClient, project: Path) -> None:
    with Sandbox.from_local(project, name="named", expires_in=3600, auto_start=False) as sb:
        other = Sandbox.from_codebase(sb.codebase_id, name="other", expires_in=timedelta(hours=2), auto_start=False)
        with other:
            assert [s.id for s in client.list_sandboxes(name="named")] == [sb.id]
            for info, hours in ((sb.info, 1), (other.info, 2)):
                assert info.expires_at is not None and info.created_at is not None
                assert abs(info.expires_at - info.created_at - timedelta(hours=hours)) < timedelta(minutes=1)
            assert (sb.info.name, other.info.name) == ("named", "other")


def test_resources(home: Path, project: Path) -> None:
    limits = ResourceLimits(disk_bytes=1 << 20)
    with Sandbox.from_local(project, preset="full-access", resources=limits) as sb:
        assert sb.info.resources == limits
        assert "Disk quota exceeded" in sb.run("head -c 2000000 /dev/zero > big").stderr


@on_both
def test_threads_share_a_client(sandbox: Sandbox) -> None:
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: sandbox.run(f"echo {n}").stdout, range(32)))
    assert results == [f"{n}\n" for n in range(32)]


FORKING = """
import os, sys
from agentfense import InvalidConfigurationError, Sandbox, SandboxClient
with Sandbox.from_local(sys.argv[1]) as sb:
    child = os.fork()
    if child == 0:
        try:
            sb.run("true")
        except InvalidConfigurationError as error:
            print(error, flush=True)
        try:
            with SandboxClient() as client:
                print(client.exec(sb.id, "echo child").stdout, end="", flush=True)
        except InvalidConfigurationError as error:
            print(error, flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    print(sb.run("echo parent").stdout, end="")
"""


async def test_ignore_files_of_a_link_hide_only_what_they_name(project: Path) -> None:
    with pytest.raises(ValueError, match="ignore_patterns"):
        Sandbox.from_local(project, link=True, ignore_patterns=["*.md"])
    with pytest.raises(ValueError, match="ignore_patterns"):
        await AsyncSandbox.from_local(project, link=True, ignore_patterns=["*.md"])


def test_a_forked_process_is_refused(home: Path, project: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FORKING, str(project)], stdout=subprocess.PIPE, text=True, timeout=60)
    refused, child, parent = done.stdout.splitlines()
    assert "start the process by spawn (multiprocessing)" in refused and refused == child
    assert (parent, done.returncode) == ("parent", 0)


SPAWNING = """
import multiprocessing, sys
from agentfense import Sandbox

def work(sandbox_id):
    with Sandbox.connect(sandbox_id).client as client:
        return client.exec(sandbox_id, "echo child").stdout

if __name__ == "__main__":
    with Sandbox.from_local(sys.argv[1]) as sb:
        with multiprocessing.get_context("spawn").Pool(2) as pool:
            print(pool.map(work, [sb.id] * 4))
"""


def test_a_spawned_process(home: Path, project: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SPAWNING)
    done = subprocess.run([sys.executable, str(script), str(project)], stdout=subprocess.PIPE, text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("['child\\n', 'child\\n', 'child\\n', 'child\\n']\n", 0)


SCRIPT = """
import sys
from agentfense import Sandbox
with Sandbox.from_local(sys.argv[1], preset="full-access") as sb:
    print(sb.id, flush=True)
    sb.run("echo > output/started; exec sleep 1000", timeout=600)
"""


def test_an_interrupt_ends_the_command_and_cleans_up(client: SandboxClient, project: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", SCRIPT, str(project)], stdout=subprocess.PIPE, text=True) as script:
        assert script.stdout is not None
        sandbox_id = script.stdout.readline().strip()
        wait_until("the command runs", lambda: any(e.name == "started" for e in client.list_view(sandbox_id, "output")))
        script.send_signal(signal.SIGINT)
        assert script.wait(60) == -signal.SIGINT
    with pytest.raises(SandboxNotFoundError):
        client.get_sandbox(sandbox_id)


CREATING = """
import os, signal, sys
from agentfense import Sandbox
from agentfense._connection import Connection

real = Connection._fit

def strike(connection, request, about):
    if about.operation == sys.argv[2]:
        os.kill(os.getpid(), signal.SIGINT)
    return real(connection, request, about)

Connection._fit = strike
with Sandbox.from_local(sys.argv[1], owner_id="interrupted"):
    sys.stdin.read()
"""


@pytest.mark.parametrize("during", ["link", "create sandbox", "start"])
def test_an_interrupt_of_from_local_leaves_nothing(client: SandboxClient, project: Path, during: str) -> None:
    line = [sys.executable, "-c", CREATING, str(project), during]
    with subprocess.Popen(line, stdin=subprocess.PIPE) as script:
        assert script.wait(60) == -signal.SIGINT
    assert client.list_codebases("interrupted") == []


def test_an_interrupt_during_the_release_of_a_lock_remains_an_interrupt() -> None:
    def waiting() -> None:
        condition = threading.Condition()
        with condition:
            condition.release()
            raise KeyboardInterrupt

    with pytest.raises(RuntimeError, match="release"):
        waiting()
    with pytest.raises(KeyboardInterrupt):
        _interrupts.awaited(waiting)


def test_a_lost_client_ends_the_command(sandbox: Sandbox) -> None:
    other = Sandbox.connect(sandbox.id)
    failed = []

    def run() -> None:
        try:
            other.run("echo $$ > output/pid; exec sleep 1000", timeout=600)
        except Exception as error:
            failed.append(type(error).__name__)

    thread = threading.Thread(target=run)
    thread.start()
    wait_until("the command runs", lambda: sandbox.run("test -s output/pid").success)
    other.client.close()
    thread.join(60)
    assert failed == ["SandboxError"]
    wait_until("the command ends", lambda: not sandbox.run("kill -0 $(cat output/pid)").success)
