"""What is brought to its end in spite of an interrupt, and for event loops in spite of a cancellation."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, TimeoutError
from contextlib import suppress
from typing import Callable, Coroutine, Generic, Optional, TypeVar

from .exceptions import SandboxError

T = TypeVar("T")


def awaited(waiting: Callable[[], T]) -> T:
    """Return what a function waits for.

    A threading.Condition that an interrupt meets as it lets go of its lock raises RuntimeError in its place.
    """
    try:
        return waiting()
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise


class _Work(Generic[T]):
    """Work that is done once, in a thread: an interrupt strikes the main thread alone, and there only its wait."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._turn = threading.Lock()
        self.done: Future[T] = Future()

    def do(self) -> None:
        """Do it, unless it has begun."""
        if not self.forestall():
            return
        try:
            self.done.set_result(self._work())
        except BaseException as error:
            self.done.set_exception(error)

    def forestall(self) -> bool:
        """Return whether it had not begun, and will not."""
        return self._turn.acquire(blocking=False)

    def wait(self) -> T:
        """Let a thread do it, and return its result."""
        try:
            awaited(threading.Thread(target=self.do, name="agentfense-make", daemon=True).start)
        except RuntimeError:
            # No thread can be started any more, as at the end of the program.
            self.do()
        return awaited(self.done.result)


def finish(making: Callable[[], T], undo: Callable[[T], object], limit: float) -> T:
    """Return what ``making`` makes. What is made in spite of an interrupt, within ``limit`` seconds, is undone."""
    work = _Work(making)

    def undone() -> None:
        with suppress(TimeoutError):
            undo(work.done.result(limit))

    try:
        return work.wait()
    except KeyboardInterrupt:
        # It may strike before there is a thread, which then need not begin.
        if not work.forestall():
            with suppress(SandboxError):
                complete(undone)
        raise


def complete(work: Callable[[], T]) -> T:
    """Return what cleaning up returns. An interrupt waits for its end, a second one does not."""
    cleaning = _Work(work)
    try:
        return cleaning.wait()
    except KeyboardInterrupt:
        # It may strike before there is a thread.
        cleaning.do()
        with suppress(SandboxError):
            awaited(cleaning.done.result)
        raise


async def finish_async(
    making: Coroutine[object, object, T], undo: Callable[[T], Coroutine[object, object, object]]
) -> T:
    """Return what ``making`` makes. What is made in spite of a cancellation is undone."""
    made = asyncio.ensure_future(making)

    async def undone() -> None:
        await undo(await asyncio.shield(made))

    try:
        return await asyncio.shield(made)
    except asyncio.CancelledError:
        with suppress(SandboxError):
            await complete_async(undone)
        raise


async def complete_async(begin: Callable[[], Coroutine[object, object, T]]) -> T:
    """Return what cleaning up returns. A cancellation waits for its end, and so do those after it."""
    task = asyncio.ensure_future(begin())
    cancelled: Optional[asyncio.CancelledError] = None
    begun_again = False
    while True:
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
            continue
        if begun_again or not task.cancelled():
            break
        # A loop that ends cancels all its tasks, once.
        task, begun_again = asyncio.ensure_future(begin()), True
    if cancelled is None:
        return task.result()
    with suppress(SandboxError, asyncio.CancelledError):
        task.result()
    raise cancelled
