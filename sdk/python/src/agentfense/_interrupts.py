"""Work that ends in order even after an interrupt, or a cancellation in an event loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future, TimeoutError
from contextlib import suppress
from typing import Callable, Coroutine, Generic, Optional, TypeVar

from .exceptions import SandboxError

T = TypeVar("T")


def awaited(waiting: Callable[[], T]) -> T:
    """Return the result of a function that waits.

    If an interrupt comes while a threading.Condition releases its lock, it raises RuntimeError
    instead of KeyboardInterrupt.
    """
    try:
        return waiting()
    except RuntimeError as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise error.__context__ from None
        raise


class _Work(Generic[T]):
    """Work that is done once, in a thread. An interrupt affects only the main thread, which waits."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._turn = threading.Lock()
        self.done: Future[T] = Future()

    def do(self) -> None:
        """Do the work, unless it has begun."""
        if not self.forestall():
            return
        try:
            self.done.set_result(self._work())
        except BaseException as error:
            self.done.set_exception(error)

    def forestall(self) -> bool:
        """Prevent the work, and return whether it had not begun."""
        return self._turn.acquire(blocking=False)

    def wait(self) -> T:
        """Do the work in a thread, and return its result."""
        try:
            awaited(threading.Thread(target=self.do, name="agentfense-make", daemon=True).start)
        except RuntimeError:
            # At the end of the program no thread can be started.
            self.do()
        return awaited(self.done.result)


def finish(making: Callable[[], T], undo: Callable[[T], object], limit: float) -> T:
    """Return the result of ``making``. After an interrupt, wait ``limit`` seconds for it, and undo it."""
    work = _Work(making)

    def undone() -> None:
        with suppress(TimeoutError):
            undo(work.done.result(limit))

    try:
        return work.wait()
    except KeyboardInterrupt:
        # If the interrupt came before the thread, the work need not begin.
        if not work.forestall():
            with suppress(SandboxError):
                complete(undone)
        raise


def complete(work: Callable[[], T]) -> T:
    """Return the result of clean-up work. An interrupt waits for its end; a second one does not."""
    cleaning = _Work(work)
    try:
        return cleaning.wait()
    except KeyboardInterrupt:
        # The interrupt may have come before the thread.
        cleaning.do()
        with suppress(SandboxError):
            awaited(cleaning.done.result)
        raise


async def finish_async(
    making: Coroutine[object, object, T], undo: Callable[[T], Coroutine[object, object, object]]
) -> T:
    """Return the result of ``making``. After a cancellation, wait for it, and undo it."""
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
    """Return the result of clean-up work. All cancellations wait for its end."""
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
        # An event loop that ends cancels all its tasks, once.
        task, begun_again = asyncio.ensure_future(begin()), True
    if cancelled is None:
        return task.result()
    with suppress(SandboxError, asyncio.CancelledError):
        task.result()
    raise cancelled
