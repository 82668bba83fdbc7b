"""The API call by call: codebases, listings, and bad input, on a real server."""

from __future__ import annotations

import hashlib
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional

import pytest

from agentfense import (
    AsyncSandbox,
    AsyncSandboxClient,
    Codebase,
    CodebaseError,
    CodebaseNotFoundError,
    FileNotFoundError,
    InvalidConfigurationError,
    PermissionDeniedError,
    PermissionRule,
    PolicyError,
    ResourceLimitExceededError,
    Sandbox,
    SandboxClient,
    SandboxError,
    SandboxNotFoundError,
    SandboxStatus,
    SessionNotFoundError,
    UploadError,
)

UNKNOWN = {"sandbox": "sb_0123456789abcdef", "codebase": "cb_0123456789abcdef", "session": "sess_0123456789abcdef"}


@pytest.fixture
def linked(client: SandboxClient, project: Path) -> Iterator[Codebase]:
    """A linked codebase, which goes with the sandboxes that were made of it."""
    codebase = client.link_codebase("demo", "somebody", str(project))
    yield codebase
    for sandbox in client.list_sandboxes(codebase.id):
        client.destroy_sandbox(sandbox.id)
    client.delete_codebase(codebase.id)


def test_codebases_and_their_files(client: SandboxClient) -> None:
    made = client.create_codebase("demo", "somebody")
    assert (made.name, made.owner_id, made.size, made.file_count, made.linked) == ("demo", "somebody", 0, 0, False)
    assert made.created_at is not None and abs(datetime.now() - made.created_at) < timedelta(hours=1)
    content = bytes(range(256)) * 1000
    stored = client.upload_file(made.id, "/a/b.bin", content, chunk_size=1000)
    assert (stored.codebase_id, stored.file_path, stored.size) == (made.id, "a/b.bin", len(content))
    assert stored.checksum == hashlib.md5(content).hexdigest()
    assert client.download_file(made.id, "a/b.bin") == content
    assert client.upload_file(made.id, "empty", "").size == 0
    assert client.download_file(made.id, "empty") == b""
    with pytest.raises(ResourceLimitExceededError, match=r"download a/b\.bin: larger than 1 bytes$"):
        client.download_file(made.id, "a/b.bin", max_bytes=1)
    assert [(f.path, f.name, f.is_dir) for f in client.list_files(made.id)] == [
        ("a", "a", True),
        ("empty", "empty", False),
    ]
    assert [f.path for f in client.list_files(made.id, "a")] == ["a/b.bin"]
    assert [f.path for f in client.list_files(made.id, recursive=True)] == ["a", "a/b.bin", "empty"]
    assert (client.get_codebase(made.id).size, client.get_codebase(made.id).file_count) == (len(content), 2)
    assert [c.id for c in client.list_codebases("somebody")] == [made.id]
    client.delete_file(made.id, "a")
    with pytest.raises(FileNotFoundError):
        client.list_files(made.id, "a")
    client.delete_codebase(made.id)
    with pytest.raises(CodebaseNotFoundError):
        client.get_codebase(made.id)


def test_sandboxes_call_by_call(client: SandboxClient, linked: Codebase) -> None:
    rules: List[Any] = [
        PermissionRule("**/*"),
        {"pattern": "/output", "permission": "write", "type": "directory", "priority": "3"},
    ]
    made = client.create_sandbox(linked.id, rules, {"a": "b"}, timedelta(hours=1), name="by-name")
    assert (made.status, made.labels, made.name, made.owner_id) == (
        SandboxStatus.PENDING,
        {"a": "b"},
        "by-name",
        "somebody",
    )
    assert made.expires_at is not None and made.created_at is not None
    assert abs(made.expires_at - made.created_at - timedelta(hours=1)) < timedelta(minutes=1)
    assert [r.to_dict() for r in made.permissions] == [
        {"pattern": "**/*", "permission": "read", "type": "glob", "priority": 0},
        {"pattern": "/output", "permission": "write", "type": "directory", "priority": 3},
    ]
    assert client.start_sandbox(made.id).status is SandboxStatus.RUNNING
    with pytest.raises(SandboxError, match="already running"):
        client.start_sandbox(made.id)
    assert client.exec(made.id, "echo x").stdout == "x\n"
    assert b"".join(client.exec_stream(made.id, "echo x")) == b"x\n"
    with client.session(made.id) as session:
        assert client.session_exec(session.id, "echo x").stdout == "x\n"
        client.close_session(session.id)
    assert [s.id for s in client.list_sandboxes(labels={"a": "b"})] == [made.id]
    assert [s.id for s in client.list_sandboxes(owner_id="somebody", name="by-name")] == [made.id]
    assert client.list_sandboxes(owner_id="nobody") == client.list_sandboxes(name="another") == []
    with pytest.raises(CodebaseError):
        client.delete_codebase(linked.id)
    with pytest.raises(UploadError, match="linked"):
        client.upload_file(linked.id, "x", "x")
    assert client.stop_sandbox(made.id).stopped_at is not None
    with pytest.raises(SandboxError, match="by-name"):
        client.create_sandbox(linked.id, [], name="by-name")
    empty = client.create_sandbox(linked.id)
    assert client.list_view(empty.id) == []
    for sandbox in (made, empty):
        client.destroy_sandbox(sandbox.id)
        with pytest.raises(SandboxNotFoundError):
            client.get_sandbox(sandbox.id)


def test_listings_have_all_pages(client: SandboxClient) -> None:
    made = [client.create_codebase(f"c{n}", "many").id for n in range(101)]
    assert [c.id for c in client.list_codebases("many")] == made
    for codebase_id in made:
        client.delete_codebase(codebase_id)


SANDBOX_CALLS: Dict[str, Callable[[SandboxClient, str], Any]] = {
    "get": lambda c, i: c.get_sandbox(i),
    "start": lambda c, i: c.start_sandbox(i),
    "stop": lambda c, i: c.stop_sandbox(i),
    "destroy": lambda c, i: c.destroy_sandbox(i),
    "exec": lambda c, i: c.exec(i, "true"),
    "stream": lambda c, i: list(c.exec_stream(i, "true")),
    "session": lambda c, i: c.create_session(i),
    "sessions": lambda c, i: c.list_sessions(i),
    "diff": lambda c, i: c.diff(i),
    "apply": lambda c, i: c.apply(i),
    "discard": lambda c, i: c.discard(i),
    "policy": lambda c, i: c.set_policy(i, []),
    "explain": lambda c, i: c.explain_policy(i, "x"),
    "audit": lambda c, i: list(c.audit(i)),
    "stats": lambda c, i: c.get_stats(i),
    "list": lambda c, i: c.list_view(i),
    "read": lambda c, i: c.read_view(i, "x"),
    "write": lambda c, i: c.write_view(i, "x", "x"),
}
SESSION_CALLS: Dict[str, Callable[[SandboxClient, str], Any]] = {
    "get": lambda c, i: c.get_session(i),
    "destroy": lambda c, i: c.destroy_session(i),
    "exec": lambda c, i: c.session_exec(i, "true"),
    "stream": lambda c, i: list(c.session_exec_stream(i, "true")),
}
CODEBASE_CALLS: Dict[str, Callable[[SandboxClient, str], Any]] = {
    "get": lambda c, i: c.get_codebase(i),
    "delete": lambda c, i: c.delete_codebase(i),
    "upload": lambda c, i: c.upload_file(i, "x", "x"),
    "download": lambda c, i: c.download_file(i, "x"),
    "list": lambda c, i: c.list_files(i),
    "sandbox": lambda c, i: c.create_sandbox(i),
}


@pytest.mark.parametrize("name", SANDBOX_CALLS)
def test_an_unknown_sandbox(client: SandboxClient, name: str) -> None:
    with pytest.raises(SandboxNotFoundError) as caught:
        SANDBOX_CALLS[name](client, UNKNOWN["sandbox"])
    assert (caught.value.sandbox_id, caught.value.grpc_code) == (UNKNOWN["sandbox"], (5, "not found"))
    with pytest.raises(SandboxNotFoundError):
        SANDBOX_CALLS[name](client, "no id")
    with pytest.raises(InvalidConfigurationError, match="sandbox_id"):
        SANDBOX_CALLS[name](client, "")


@pytest.mark.parametrize("name", SESSION_CALLS)
def test_an_unknown_session(client: SandboxClient, name: str) -> None:
    with pytest.raises(SessionNotFoundError) as caught:
        SESSION_CALLS[name](client, UNKNOWN["session"])
    assert caught.value.session_id == UNKNOWN["session"]
    with pytest.raises(InvalidConfigurationError, match="session_id"):
        SESSION_CALLS[name](client, "")


@pytest.mark.parametrize("name", CODEBASE_CALLS)
def test_an_unknown_codebase(client: SandboxClient, name: str) -> None:
    with pytest.raises(CodebaseNotFoundError) as caught:
        CODEBASE_CALLS[name](client, UNKNOWN["codebase"])
    assert caught.value.codebase_id == UNKNOWN["codebase"]


@pytest.mark.parametrize("path", ["../x", "a/../x", "a\0b", ""])
def test_paths_that_are_refused(client: SandboxClient, path: str) -> None:
    codebase = client.create_codebase("demo", "somebody")
    try:
        with pytest.raises(UploadError):
            client.upload_file(codebase.id, path, "x")
        with pytest.raises((InvalidConfigurationError, FileNotFoundError)):
            client.download_file(codebase.id, path)
        with pytest.raises(ValueError, match="chunk_size"):
            client.upload_file(codebase.id, "x", "x", chunk_size=0)
    finally:
        client.delete_codebase(codebase.id)


BAD_SANDBOXES = {
    "preset": ({"preset": "agent-saef"}, ValueError, "did you mean 'agent-safe'"),
    "rule": ({"permissions": [{"pattern": "x", "permission": "rwx"}]}, ValueError, "one of none, view, read, write"),
    "pattern": ({"permissions": [{"pattern": "a["}]}, PolicyError, r"^rule 'a\[': "),
    "runtime": ({"runtime": "runc"}, InvalidConfigurationError, "want bwrap or docker"),
    "image": ({"runtime": "docker", "image": "no such image"}, InvalidConfigurationError, "(?i)image|docker"),
    "resources": ({"resources": {"memory": 1}}, InvalidConfigurationError, "unknown resource limit 'memory'"),
    "limit": ({"resources": {"cpu_shares": 1}}, InvalidConfigurationError, "cpu_shares"),
    "endpoint": ({"endpoint": "ftp://x"}, InvalidConfigurationError, "want HOST:PORT"),
    "token": ({"token": "afs_wrong"}, PermissionDeniedError, "does not accept the token"),
}


@pytest.mark.parametrize("name", BAD_SANDBOXES)
@pytest.mark.parametrize("link", [True, False])
def test_a_sandbox_that_cannot_be_created(client: SandboxClient, project: Path, name: str, link: bool) -> None:
    more: Any
    more, cls, says = BAD_SANDBOXES[name]
    with pytest.raises(cls, match=says):
        Sandbox.from_local(project, owner_id="bad", link=link, **more)
    assert client.list_codebases("bad") == []
    assert client.list_sandboxes() == []


def test_an_impossible_directory(client: SandboxClient, project: Path) -> None:
    for path in (project / "absent", project / "main.py"):
        with pytest.raises(ValueError, match="path "):
            Sandbox.from_local(path)
    with pytest.raises(InvalidConfigurationError):
        client.link_codebase("demo", "bad", "relative")
    (project / "unreadable").mkdir()
    (project / "unreadable/file").write_text("x")
    (project / "unreadable/socket").symlink_to("nowhere")
    assert client.list_codebases("bad") == []


@pytest.mark.parametrize("ignored", [None, ["*"]])
async def test_a_directory_of_which_nothing_is_uploaded(
    client: SandboxClient, async_client: AsyncSandboxClient, tmp_path: Path, ignored: Optional[List[str]]
) -> None:
    if ignored:
        (tmp_path / "file").write_text("x")
    with Sandbox.from_local(tmp_path, link=False, ignore_patterns=ignored) as sb:
        assert sb.run("ls -A").stdout == ""
    async with await AsyncSandbox.from_local(tmp_path, link=False, ignore_patterns=ignored) as asb:
        assert (await asb.run("ls -A")).stdout == ""
    with pytest.raises(CodebaseNotFoundError):
        client.upload_tree(UNKNOWN["codebase"], tmp_path, ignored)
    with pytest.raises(CodebaseNotFoundError):
        await async_client.upload_tree(UNKNOWN["codebase"], tmp_path, ignored)


def test_a_file_that_vanishes_while_it_is_uploaded(
    client: SandboxClient, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentfense import utils

    def walk(*args: Any) -> Any:
        for entry in real(*args):
            if entry.path == "src/lib.py":
                (project / "src/lib.py").unlink()
            yield entry

    real: Callable[..., Any] = utils.walk_entries
    monkeypatch.setattr(utils, "walk_entries", walk)
    with pytest.raises(OSError, match=r"lib\.py"):
        Sandbox.from_local(project, owner_id="bad", link=False)
    assert client.list_codebases("bad") == []


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_invalid_timeouts(client: SandboxClient, timeout: float) -> None:
    with pytest.raises(ValueError, match="more than 0 seconds"):
        client.exec(UNKNOWN["sandbox"], "true", timeout=timeout)


def test_an_invalid_expiry(client: SandboxClient) -> None:
    with pytest.raises(ValueError, match="expires_in 0: want more than 0"):
        client.create_sandbox("cb_0123456789abcdef", expires_in=0)


def test_a_closed_client(home: Path) -> None:
    client = SandboxClient()
    assert client.same_host and client.endpoint.startswith("unix://")
    client.close()
    client.close()
    with pytest.raises(InvalidConfigurationError, match="the client is closed"):
        client.list_codebases()


@pytest.mark.parametrize("begins", [False, True])
def test_an_interrupt_while_the_thread_is_started(
    client: SandboxClient, monkeypatch: pytest.MonkeyPatch, begins: bool
) -> None:
    """There may be nothing to wait for then."""

    def start(self: threading.Thread) -> None:
        ours = self.name == "agentfense-make"
        if begins or not ours:
            real(self)
        if ours:
            raise KeyboardInterrupt

    real = threading.Thread.start
    begun = time.monotonic()
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        with pytest.raises(KeyboardInterrupt):
            client.create_codebase("demo", "interrupted")
    assert time.monotonic() - begun < 30
    assert client.list_codebases("interrupted") == []


def test_a_sandbox_has_variables_and_usage(home: Path, client: SandboxClient, project: Path) -> None:
    with Sandbox.from_local(project, preset="development", env={"A": "its own", "B": "hidden"}) as sb:
        assert sb.run("echo $A $B; echo > a-new-file").stdout == "its own hidden\n"
        assert sb.run("echo $A $B", env={"A": "given"}).stdout == "given hidden\n"
        assert client.get_sandbox(sb.id).variables == ["A", "B"]
        (listed,) = client.list_sandboxes(sb.codebase_id, usage=True)
        assert listed.usage is not None and listed.usage.disk_bytes > 0
        assert (listed.usage.pending_changes, listed.usage.pending_changes_more) == (1, False)
        assert client.list_sandboxes(sb.codebase_id)[0].usage is None
        sb.discard()
    with pytest.raises(InvalidConfigurationError, match="invalid variable name"):
        Sandbox.from_local(project, env={"a=b": "c"})
