"""Files of export and import, with the SDK of AgentFS."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Iterator

import pytest
from agentfs_sdk import AgentFS, AgentFSOptions  # type: ignore[import-untyped]

LARGE = "0123456789abcdef" * 1000
"""Some chunks."""


@pytest.fixture
def state(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory without a server, since export and import are of this host alone."""
    directory = tmp_path / "state"
    monkeypatch.setenv("AGENTFENSE_HOME", str(directory))
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # its database leaves files there
    yield directory
    for name in agentfense(tmp_path, "ls", "--quiet").split():
        agentfense(tmp_path, "rm", "--force", name)


def agentfense(where: Path, *words: str) -> str:
    done = subprocess.run([os.environ["AGENTFENSE_BINARY"], *words], cwd=where, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


async def opened(file: Path) -> AgentFS:
    return await AgentFS.open(AgentFSOptions(path=str(file)))


async def test_agentfs_reads_an_export(state: Path, project: Path, tmp_path: Path) -> None:
    script = f"""
        echo new > main.py; rm README.md; : > 'é'; mkdir -p made/in; ln -s ../main.py made/link
        printf %s {LARGE} > made/in/large; chmod 755 made/in/large"""
    agentfense(project, "run", "--name", "fix", "--preset", "full-access", "--", "sh", "-c", script)
    file = tmp_path / "fix.db"
    agentfense(project, "export", "fix", str(file))

    async with await opened(file) as agent:
        assert sorted(await agent.fs.readdir("/")) == ["made", "main.py", "é"]
        assert await agent.fs.read_file("/main.py") == "new\n"
        assert await agent.fs.read_file("/made/in/large") == LARGE
        assert await agent.fs.read_file("/é") == ""
        stat = await agent.fs.stat("/made/in/large")
        assert (stat.is_file(), stat.mode & 0o777, stat.size, stat.nlink) == (True, 0o755, len(LARGE), 1)
        assert (await agent.fs.stat("/made/link")).is_symbolic_link()
        (call,) = await agent.tools.get_by_name("exec")
        assert call.status == "success" and call.parameters["argv"][:2] == ["sh", "-c"]
        # It also writes to it.
        await agent.fs.write_file("/made/by-agentfs", "more\n")
        await agent.fs.unlink("/made/in/large")
        await agent.kv.set("plan", {"steps": [1, 2]})

    agentfense(project, "import", str(file), "again", "--preset", "full-access")
    assert agentfense(project, "diff", "again", "--name-status").splitlines() == [
        "D\tREADME.md",
        "A\tmade/by-agentfs",
        "A\tmade/in",
        "A\tmade/link",
        "M\tmain.py",
        "A\té",
    ]
    agentfense(project, "export", "again", str(tmp_path / "again.db"))
    async with await opened(tmp_path / "again.db") as agent:
        assert await agent.kv.get("plan") == {"steps": [1, 2]}
        assert await agent.fs.read_file("/made/by-agentfs") == "more\n"


async def test_a_file_of_agentfs_is_imported(state: Path, project: Path, tmp_path: Path) -> None:
    file = tmp_path / "agent.db"
    async with await opened(file) as agent:
        await agent.fs.write_file("/src/lib.py", "x = 2\n")
        await agent.fs.write_file("/src/large", LARGE)
        await agent.fs.mkdir("/notes")
        await agent.fs.write_file("/notes/one", "1\n")
        await agent.fs.rename("/notes/one", "/notes/two")
        await agent.kv.set("key", "value")
        await agent.tools.record("search", 1, 2, {"q": "x"}, {"n": 1})

    agentfense(project, "import", str(file), "agent", "--preset", "full-access")
    script = "cat src/lib.py notes/two; test $(cat src/large) = " + LARGE
    assert agentfense(project, "run", "--name", "agent", "--", "sh", "-c", script) == "x = 2\n1\n"
    agentfense(project, "apply", "agent", "--latest")
    assert (project / "src/lib.py").read_text() == "x = 2\n"
    assert (project / "notes/two").read_text() == "1\n"
