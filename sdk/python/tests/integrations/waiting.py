"""Waiting for a condition, not for a time."""

from __future__ import annotations

import asyncio
import time
from typing import Callable


def wait_until(true: Callable[[], bool]) -> None:
    """Wait until ``true()``; the limit only ends a test that has failed."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, "not within 60 s"
        time.sleep(0.01)


async def until(true: Callable[[], bool]) -> None:
    """Wait as wait_until does, for an event loop."""
    await asyncio.to_thread(wait_until, true)
