"""Interrupts and cancellations, each at its worst moment."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import closing
from typing import Any, Callable, Iterator, List

import pytest
from conftest import wait_until

from agentfense import SandboxError
from agentfense._interrupts import complete, complete_async, finish, finish_async


@pytest.fixture
def strike() -> Iterator[Callable[[], None]]:
    """Interrupts the main thread, and goes on when that has been struck."""
    heard = threading.Event()

    def note(*_: Any) -> None:
        heard.set()
        raise KeyboardInterrupt

    def strike() -> None:
        heard.clear()
        os.kill(os.getpid(), signal.SIGINT)
        wait_until("the interrupt strikes", heard.is_set)

    before = signal.signal(signal.SIGINT, note)
    yield strike
    signal.signal(signal.SIGINT, before)


def test_cleaning_up_ends_before_an_interrupt_is_raised(strike: Callable[[], None]) -> None:
    done: List[str] = []

    def work() -> None:
        strike()
        done.append("cleaned up")

    with pytest.raises(KeyboardInterrupt):
        complete(work)
    assert done == ["cleaned up"]


def test_an_interrupt_is_raised_if_cleaning_up_fails(strike: Callable[[], None]) -> None:
    def work() -> None:
        strike()
        raise SandboxError("it failed")

    with pytest.raises(KeyboardInterrupt):
        complete(work)


def test_a_second_interrupt_does_not_wait(strike: Callable[[], None]) -> None:
    go_on = threading.Event()

    def work() -> None:
        strike()
        strike()
        go_on.wait()

    with pytest.raises(KeyboardInterrupt):
        complete(work)
    go_on.set()


def test_undoing_ends_before_a_second_interrupt_is_raised(strike: Callable[[], None]) -> None:
    undone: List[str] = []

    def making() -> str:
        strike()
        return "made"

    def undo(made: str) -> None:
        strike()
        undone.append(made)

    with pytest.raises(KeyboardInterrupt):
        finish(making, undo, 60)
    assert undone == ["made"]


@pytest.mark.parametrize("why", [KeyboardInterrupt(), RuntimeError("can't start new thread")])
def test_cleaning_up_without_a_thread(monkeypatch: pytest.MonkeyPatch, why: BaseException) -> None:
    done: List[str] = []

    def start(thread: threading.Thread) -> None:
        raise why

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", start)
        if isinstance(why, KeyboardInterrupt):
            with pytest.raises(KeyboardInterrupt):
                complete(lambda: done.append("cleaned up"))
        else:
            complete(lambda: done.append("cleaned up"))
    assert done == ["cleaned up"]


async def strike_task(task: asyncio.Task[Any]) -> None:
    """Cancel a task, again and again."""
    for _ in range(3):
        task.cancel()
        await asyncio.sleep(0)


def this_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    assert task is not None
    return task


async def test_cleaning_up_ends_before_cancellations_are_raised() -> None:
    done: List[str] = []

    async def outer() -> None:
        task = this_task()

        async def work() -> None:
            await strike_task(task)
            done.append("cleaned up")

        await complete_async(work)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(outer())
    assert done == ["cleaned up"]


async def test_undoing_ends_before_cancellations_are_raised() -> None:
    undone: List[str] = []

    async def outer() -> None:
        task = this_task()

        async def making() -> str:
            await strike_task(task)
            return "made"

        async def undo(made: str) -> None:
            await strike_task(task)
            undone.append(made)

        await finish_async(making(), undo)

    with pytest.raises(asyncio.CancelledError):
        await asyncio.ensure_future(outer())
    assert undone == ["made"]


def test_cleaning_up_ends_before_its_loop() -> None:
    """A loop that ends cancels all its tasks, that which cleans up too."""
    done: List[str] = []

    async def main() -> None:
        begun = asyncio.Event()

        async def work() -> None:
            begun.set()
            await asyncio.sleep(0)
            done.append("cleaned up")

        task = asyncio.ensure_future(complete_async(work))
        await begun.wait()
        for each in asyncio.all_tasks() - {this_task()}:
            each.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(main())
    assert done == ["cleaned up"]
