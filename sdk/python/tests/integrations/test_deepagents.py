"""The backend of deepagents: each method of its protocol, and its real agent loop with a scripted model."""

from __future__ import annotations

import asyncio
import base64
import re
from pathlib import Path
from typing import Any, Iterator, List, Sequence

import pytest
from deepagents_agent import work
from langchain_core.language_models.fake_chat_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable
from pydantic import Field
from waiting import until

from agentfense import FileDiff, Sandbox, SandboxNotFoundError, SandboxNotRunningError
from agentfense.integrations.deepagents import SandboxBackend
from agentfense.integrations.langchain import command_tool

RULES = [
    {"pattern": "locked.txt", "permission": "read", "priority": 50},
    {"pattern": "name-only.txt", "permission": "view", "priority": 50},
]


@pytest.fixture
def backend(home: Path, project: Path) -> Iterator[SandboxBackend]:
    (project / "locked.txt").write_text("locked\n")
    with Sandbox.from_local(project, preset="development", permissions=RULES) as sandbox:
        yield SandboxBackend(sandbox, timeout=30)


@pytest.fixture(scope="module")
def shared(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SandboxBackend]:
    """A sandbox for tests that change nothing in it that another looks at."""
    root = tmp_path_factory.mktemp("shared")
    for name in ("main.py", ".env", "locked.txt", "name-only.txt"):
        (root / name).write_text(f"{name}\n")
    (root / "src").mkdir()
    with Sandbox.from_local(root, preset="development", permissions=RULES) as sandbox:
        yield SandboxBackend(sandbox, timeout=30)


class Scripted(FakeMessagesListChatModel):
    """Says what it was told to say, and keeps what it heard."""

    heard: List[BaseMessage] = Field(default_factory=list)

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        return self

    def _generate(self, messages: List[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        self.heard[:] = messages
        return super()._generate(messages, *args, **kwargs)


def calls(*steps: Any) -> List[BaseMessage]:
    made = [
        AIMessage("", tool_calls=[{"name": name, "args": args, "id": f"call-{n}"}])
        for n, (name, args) in enumerate(steps)
    ]
    return [*made, AIMessage("done")]


def test_an_agent_reads_is_refused_changes_and_a_person_applies(home: Path, project: Path) -> None:
    model = Scripted(
        responses=calls(
            ("ls", {"path": "/workspace"}),
            ("read_file", {"file_path": "/workspace/main.py"}),
            ("read_file", {"file_path": "/workspace/.env"}),
            ("edit_file", {"file_path": "/workspace/main.py", "old_string": "hello", "new_string": "better"}),
            ("execute", {"command": "python3 main.py; cat .env"}),
            ("execute", {"command": "seq 200000"}),
        ),
    )
    seen: List[FileDiff] = []

    def approve(changes: List[FileDiff]) -> bool:
        assert (project / "main.py").read_text() == "print('hello')\n"
        seen.extend(changes)
        return True

    assert work(model, str(project), "improve it", approve) == "done"
    said = [message.text for message in model.heard if isinstance(message, ToolMessage)]
    assert "/workspace/README.md" in said[0] and ".env" not in said[0]
    assert "print('hello')" in said[1]
    assert said[2] == "Error: File '/workspace/.env': file_not_found"
    assert "better" in said[4] and "No such file" in said[4]
    assert re.search("/tmp/large_tool_results/", said[5])
    assert [change.path for change in seen] == ["main.py"]
    assert "+print('better')" in seen[0].patch
    assert (project / "main.py").read_text() == "print('better')\n"


def test_a_change_that_is_not_approved_is_not_applied(home: Path, project: Path) -> None:
    model = Scripted(responses=calls(("write_file", {"file_path": "/workspace/main.py", "content": "worse"})))
    work(model, str(project), "improve it", lambda changes: False)
    assert (project / "main.py").read_text() == "print('hello')\n"


def test_a_command_returns_both_outputs_and_its_exit_code(shared: SandboxBackend) -> None:
    answer = shared.execute("echo one; echo two >&2; exit 3")
    assert (set(answer.output.split()), answer.exit_code, answer.truncated) == ({"one", "two"}, 3, False)


def test_a_command_that_takes_too_long_is_ended(shared: SandboxBackend) -> None:
    answer = shared.execute("echo begun; sleep 1000", timeout=1)
    assert answer.output == "begun\n\n[ended after 1 s: it took too long]"
    assert answer.exit_code == 124
    assert "sleep 1000" not in shared.execute("ps ax").output.replace("ps ax", "")


def test_the_beginning_of_a_long_output_is_kept(shared: SandboxBackend) -> None:
    limited = SandboxBackend(shared._sandbox, max_output_bytes=100_000)
    answer = limited.execute("yes | head -c 3000000; exit 5")
    assert (len(answer.output), answer.truncated, answer.exit_code) == (100_000, True, 5)


@pytest.mark.parametrize("command", ["true \0", "true " + "x" * 3_000_000])
def test_a_command_that_cannot_be_run_is_a_result(shared: SandboxBackend, command: str) -> None:
    answer = shared.execute(command)
    assert answer.exit_code == 126 and answer.output


def test_output_that_is_not_utf8_has_replacement_characters(shared: SandboxBackend) -> None:
    assert shared.execute(r"printf '\377\303\251'").output == "\ufffdé"


async def test_a_cancelled_command_is_ended(backend: SandboxBackend) -> None:
    task = asyncio.create_task(backend.aexecute("echo begun > output/begun; sleep 1001"))
    await until(lambda: "begun" in str(backend.read("/workspace/output/begun").file_data))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: "sleep 1001" not in backend.execute("ps ax").output)


def test_a_directory_is_listed_without_what_is_hidden(backend: SandboxBackend) -> None:
    entries = backend.ls("/workspace").entries
    assert entries is not None
    paths = {entry["path"]: entry["is_dir"] for entry in entries}
    assert paths["/workspace/main.py"] is False and paths["/workspace/src"] is True
    assert "/workspace/.env" not in paths and "/workspace/secrets/key.txt" not in paths
    assert backend.ls("/").entries == [{"path": "/workspace", "is_dir": True}]


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/workspace/nope", "file_not_found"),
        ("/workspace/.env", "file_not_found"),
        ("/workspace/main.py", "not_a_directory"),
        ("/workspace/../etc", "invalid_path"),
        ("workspace", "invalid_path"),
        ("/workspace/\0", "invalid_path"),
        ("/workspace/\ud800", "invalid_path"),
        ("/etc", "only /workspace is listed and searched; use a command"),
    ],
)
def test_paths_that_cannot_be_listed(shared: SandboxBackend, path: str, code: str) -> None:
    assert shared.ls(path).error == f"Path '{path}': {code}"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/workspace/nope", "file_not_found"),
        ("/workspace/.env", "file_not_found"),
        ("/workspace/name-only.txt", "permission_denied"),
        ("/workspace/src", "is_directory"),
        ("/workspace/main.py/x", "not_a_directory"),
        ("/workspace/src/../main.py", "invalid_path"),
        ("/tmp/nope", "file_not_found"),
        ("/tmp", "is_directory"),
    ],
)
def test_files_that_cannot_be_read(shared: SandboxBackend, path: str, code: str) -> None:
    assert shared.read(path).error == f"File '{path}': {code}"
    refused, given = shared.download_files([path, "/workspace/main.py"])
    assert (refused.error, refused.content) == (code, None)
    assert (given.error, given.content) == (None, b"main.py\n")


def test_lines_of_a_file_are_read(backend: SandboxBackend) -> None:
    backend.write("/workspace/lines.txt", "".join(f"line {n} é\n" for n in range(1, 11)))
    part = backend.read("/workspace/lines.txt", offset=2, limit=3)
    assert part.file_data is not None
    assert part.file_data["content"] == "line 3 é\nline 4 é\nline 5 é\n"
    assert (part.start_line, part.end_line, part.total_lines, part.next_offset) == (3, 5, 10, 5)
    assert backend.read("/workspace/lines.txt", offset=99).error


def test_a_binary_file_is_read_in_base64(backend: SandboxBackend) -> None:
    content = bytes(range(256)) * 1000
    assert backend.upload_files([("/workspace/data.bin", content)])[0].error is None
    read = backend.read("/workspace/data.bin").file_data
    assert read is not None and read["encoding"] == "base64"
    assert base64.b64decode(read["content"]) == content
    assert backend.download_files(["/workspace/data.bin"])[0].content == content


def test_a_file_that_is_too_large_is_not_read(backend: SandboxBackend) -> None:
    limited = SandboxBackend(backend._sandbox, max_file_bytes=1 << 20)
    for path in ("/workspace/large", "/tmp/large"):
        backend.execute(f"truncate -s 1T {path}")
        error = limited.read(path).error
        assert error is not None and error.endswith("larger than 1048576 bytes")


@pytest.mark.parametrize("place", ["/workspace/new/dir", "/tmp/new/dir"])
def test_a_file_is_written_and_edited(backend: SandboxBackend, place: str) -> None:
    path = f"{place}/a b'ü.txt"
    assert backend.write(path, "one\ntwo ü\n").path == path
    assert backend.edit(path, "two ü", "three").occurrences == 1
    assert backend.edit(path, "e", "E", replace_all=True).occurrences == 3
    assert backend.download_files([path])[0].content == b"onE\nthrEE\n"
    assert "not found" in str(backend.edit(path, "absent", "x").error)
    assert "appears 2 times" in str(backend.edit(path, "h", "x").error) or backend.edit(path, "E", "x").error


def test_a_file_can_be_created_at_a_hidden_name(backend: SandboxBackend, project: Path) -> None:
    before = (project / ".env").read_bytes()
    assert backend.write("/workspace/.env", "own").error is None
    assert backend.download_files(["/workspace/.env"])[0].content == b"own"
    assert (project / ".env").read_bytes() == before != b"own"


def test_an_edit_keeps_line_ends(backend: SandboxBackend) -> None:
    backend.upload_files([("/workspace/dos.txt", b"a\r\nb\r\nc\r\n")])
    assert backend.edit("/workspace/dos.txt", "a\nb", "x\ny").error is None
    assert backend.download_files(["/workspace/dos.txt"])[0].content == b"x\r\ny\r\nc\r\n"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/workspace/locked.txt", "permission_denied"),
        ("/workspace/src", "is_directory"),
        ("/workspace/../x", "invalid_path"),
        ("x", "invalid_path"),
        ("/etc/passwd", "permission_denied"),
    ],
)
def test_files_that_cannot_be_written(shared: SandboxBackend, path: str, code: str) -> None:
    assert shared.write(path, "x").error == f"File '{path}': {code}"
    assert shared.upload_files([(path, b"x"), ("/workspace/ok", b"ok")])[0].error == code
    assert shared.download_files(["/workspace/ok"])[0].content == b"ok"


def test_text_that_is_not_utf8_is_not_written_or_edited(shared: SandboxBackend) -> None:
    assert shared.write("/workspace/x", "\ud800").error
    shared.upload_files([("/workspace/b", b"\xff\xfe")])
    assert "no UTF-8" in str(shared.edit("/workspace/b", "a", "b").error)


def test_a_link_does_not_lead_out_of_the_workspace(backend: SandboxBackend) -> None:
    backend.execute("ln -s /etc/passwd out; ln -s main.py in")
    assert backend.read("/workspace/out").error
    assert "/workspace/out" not in str(backend.grep("root", "/workspace").matches)


def test_a_file_is_deleted(backend: SandboxBackend) -> None:
    assert backend.delete("/workspace/src").path == "/workspace/src"
    assert backend.ls("/workspace/src").error == "Path '/workspace/src': file_not_found"
    assert backend.delete("/workspace/src").error == "File '/workspace/src': file_not_found"
    assert backend.delete("/workspace/locked.txt").error == "File '/workspace/locked.txt': permission_denied"
    assert backend.delete("/workspace").error == "File '/workspace': permission_denied"
    assert str(backend.delete("/etc/passwd").error).startswith("File '/etc/passwd': only /workspace")


def test_files_are_found_by_pattern(backend: SandboxBackend) -> None:
    def found(pattern: str, path: Any = None) -> List[str]:
        result = backend.glob(pattern, path)
        assert result.error is None and not result.truncated and result.matches is not None
        return [match["path"] for match in result.matches]

    assert found("*.py") == found("**/*.py", "/") == ["/workspace/main.py", "/workspace/src/lib.py"]
    assert found("*.py", "/workspace/src") == ["/workspace/src/lib.py"]
    assert found(".env") == found("key.txt") == []
    assert found("link") == ["/workspace/link"]
    assert backend.glob("*.py", "/workspace/nope").error == "Path '/workspace/nope': file_not_found"
    assert "raversal" in str(backend.glob("../*").error)
    for costly in ("*a*b*c*d", "x" * 1001):
        assert backend.glob(costly).error == backend.grep("x", glob=costly).error
        assert "a glob has at most" in str(backend.glob(costly).error)
    assert backend.glob("*", "/etc").error


def test_texts_are_found(backend: SandboxBackend) -> None:
    backend.write("/workspace/src/a:b é.py", "x\nlook [here] é\n")
    backend.write("/workspace/.git/objects", "look [here]\n")
    result = backend.grep("look [here]")
    assert result.matches == [{"path": "/workspace/src/a:b é.py", "line": 2, "text": "look [here] é"}]
    assert backend.grep("look [here]", glob="*.txt").matches == []
    assert len(backend.grep("look [here]", "/workspace/src", "src/*.py").matches or []) == 0
    assert len(backend.grep("look [here]", "/workspace", "src/*.py").matches or []) == 1
    assert backend.grep("secret").matches == []
    assert backend.grep("-e", "/workspace/nope").error == "Path '/workspace/nope': file_not_found"
    assert backend.grep("x" * 70_000).error


def test_a_search_with_too_many_matches_is_cut(backend: SandboxBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agentfense.integrations.deepagents._MATCHES", 100)
    backend.execute("seq -f 'match %g' 30000 > many.txt; mkdir many; cd many; seq 101 | xargs touch")
    capped = backend.grep("match", max_count=7)
    assert capped.truncated and len(capped.matches or []) == 7
    assert len(backend.grep("match").matches or []) == 100
    files = backend.glob("*", "/workspace/many")
    assert files.truncated and files.truncation_reason == "budget" and len(files.matches or []) == 100


def test_names_that_are_not_utf8_can_be_shown(backend: SandboxBackend) -> None:
    backend.execute(r"printf x > $(printf 'bad\377.txt')")
    shown = "/workspace/bad\ufffd.txt"
    assert shown in [entry["path"] for entry in backend.ls("/workspace").entries or []]
    assert [match["path"] for match in backend.glob("bad*").matches or []] == [shown]


async def test_the_asynchronous_classes(backend: SandboxBackend) -> None:
    assert (await backend.aexecute("echo hi")).output == "hi\n"
    assert (await backend.awrite("/workspace/t.txt", "text")).error is None
    assert (await backend.aedit("/workspace/t.txt", "text", "more")).occurrences == 1
    assert (await backend.aread("/workspace/t.txt")).file_data == {"content": "more", "encoding": "utf-8"}
    assert (await backend.als("/workspace/src")).entries
    assert (await backend.aglob("t.txt")).matches and (await backend.agrep("more")).matches
    assert (await backend.aupload_files([("/workspace/u", b"u")]))[0].error is None
    assert (await backend.adownload_files(["/workspace/u"]))[0].content == b"u"
    assert (await backend.adelete("/workspace/u")).error is None


def test_a_sandbox_that_is_gone_raises(backend: SandboxBackend) -> None:
    backend._sandbox.stop()
    with pytest.raises(SandboxNotRunningError):
        backend.execute("true")
    backend._sandbox.client.destroy_sandbox(backend.id)
    for use in (
        lambda: backend.execute("true"),
        lambda: backend.ls("/workspace"),
        lambda: backend.read("/workspace/main.py"),
        lambda: backend.write("/workspace/x", "x"),
        lambda: backend.write("/tmp/x", "x"),
        lambda: backend.glob("*"),
        lambda: backend.grep("x"),
        lambda: backend.delete("/workspace/main.py"),
        lambda: backend.upload_files([("/workspace/x", b"")]),
    ):
        with pytest.raises(SandboxNotFoundError):
            use()


async def test_a_sandbox_destroyed_under_a_command_raises(backend: SandboxBackend) -> None:
    task = asyncio.create_task(backend.aexecute("echo begun > output/begun; sleep 1002"))
    await until(lambda: "begun" in str(backend.read("/workspace/output/begun").file_data))
    backend._sandbox.client.destroy_sandbox(backend.id)
    with pytest.raises((SandboxNotRunningError, SandboxNotFoundError)):
        await task


async def test_the_langchain_tool(shared: SandboxBackend) -> None:
    tool = command_tool(shared._sandbox, max_output_bytes=1000)
    assert tool.invoke({"command": "echo hi; exit 2"}) == "hi\n\n[exit code 2]"
    assert await tool.ainvoke({"command": "cat .env"}) == "cat: .env: No such file or directory\n\n[exit code 1]"
    assert "[the output was longer]" in tool.invoke({"command": "seq 1000"})
    assert "[exit code 124]" in tool.invoke({"command": "sleep 1003", "timeout": 1})
    assert set(tool.args) == {"command", "timeout"}
