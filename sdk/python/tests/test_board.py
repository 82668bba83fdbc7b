"""Locks of paths, and messages of the sandboxes of one codebase."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import List

import pytest

from agentfense import (
    AsyncSandbox,
    BoardMessage,
    PermissionDeniedError,
    ResourceLimitExceededError,
    Sandbox,
    SandboxError,
    SandboxNotRunningError,
)


def test_two_sandboxes_share_a_board(home: Path, project: Path) -> None:
    with (
        Sandbox.from_local(project, "development", board=True) as one,
        Sandbox.from_codebase(one.codebase.id, "development") as two,
    ):
        assert one.info.board and not two.info.board
        one.board.lock(["main.py", "/workspace/new"], lock_for=600)
        assert two.run("echo x > main.py").exit_code != 0
        locks = two.board.locks()
        assert [(lock.path, lock.own, lock.waits) for lock in locks] == [
            ("main.py", False, False),
            ("new", False, False),
        ]
        assert locks[0].sandbox == one.info.name and locks[0].until is not None
        with pytest.raises(SandboxError, match="there is a lock"):
            two.board.lock("main.py")
        with pytest.raises(SandboxError, match="empty path"):
            two.board.lock("")
        with pytest.raises(PermissionDeniedError):
            one.board.lock(".env")
        waiting = threading.Thread(target=lambda: two.board.lock("main.py", wait=60))
        waiting.start()
        while not any(lock.waits for lock in one.board.locks()):
            pass
        one.board.unlock("main.py")
        waiting.join()
        assert two.run("echo x > main.py").exit_code == 0
        one.board.unlock()

        got: List[BoardMessage] = []
        reader = threading.Thread(target=lambda: got.extend(two.board.read(topic="plan", wait=60).messages))
        reader.start()
        assert one.board.post("I take the parser", "status") == 1
        assert one.board.post("\x1b[2J do it", "plan", as_agent=True) == 2
        reader.join()
        assert [(m.seq, m.sandbox, m.by, m.text) for m in got] == [(2, one.info.name, "agent", "\x1b[2J do it")]
        page = two.board.read()
        assert ([m.seq for m in page.messages], page.next, page.lost) == ([1, 2], 2, 0)
        state = two.board.state()
        assert {m.sandbox: m.status and m.status.text for m in state.members} == {
            one.info.name: "I take the parser",
            two.info.name: None,
        }
        assert [(topic.topic, topic.messages) for topic in state.topics] == [("plan", 1), ("status", 1)]
        with pytest.raises(ResourceLimitExceededError):
            one.board.post("x" * 5000)
        two.stop()
        with pytest.raises(SandboxNotRunningError):
            two.board.post("x")
        with pytest.raises(SandboxNotRunningError):
            two.board.locks()


async def test_a_board_for_an_event_loop(home: Path, project: Path) -> None:
    async with await AsyncSandbox.from_local(project, "development") as sandbox:
        await sandbox.board.lock("main.py", advisory=True)
        (lock,) = await sandbox.board.locks()
        assert lock.advisory and lock.own
        await sandbox.board.unlock()
        assert await sandbox.board.post("hello") == 1
        (message,) = (await sandbox.board.read()).messages
        assert (message.topic, message.by, message.sandbox_id) == ("general", "user", sandbox.id)
        assert [m.sandbox_id for m in (await sandbox.board.state()).members] == [sandbox.id]
