"""unasync.py generates the modules for threads from those for event loops."""

from __future__ import annotations

from pathlib import Path

import pytest

import unasync

SOURCE = '''\
"""A thing, for an event loop."""

import asyncio

from ._async_other import AsyncOther, work_async


class AsyncThing:
    """A thing."""

    async def open(self) -> None:  # async only
        """Connect."""
        await self.other.open()

    async def use(self, other: AsyncOther) -> bytes:
        """Use another thing; see AsyncOther.use."""
        await self.open()  # async only
        async with other:
            found = await asyncio.to_thread(other.look, 1)
            return await work_async(found)
'''

MADE = '''\
# Made from async_thing.py by make gen: do not edit.

"""A thing, for threads."""

from ._other import Other, work


class Thing:
    """A thing."""

    def use(self, other: Other) -> bytes:
        """Use another thing; see Other.use."""
        with other:
            found = other.look(1)
            return work(found)
'''


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of one module; of the texts only those that it has."""
    (tmp_path / "async_thing.py").write_text(SOURCE)
    monkeypatch.setattr(unasync, "PACKAGE", tmp_path)
    monkeypatch.setattr(unasync, "TEXT", [("an event loop", "threads")])
    return tmp_path


def test_a_module_is_translated(package: Path) -> None:
    unasync.main([])
    assert (package / "thing.py").read_text() == MADE
    unasync.main(["check"])


def test_a_module_that_was_edited_is_found(package: Path) -> None:
    (package / "thing.py").write_text(MADE.replace("look(1)", "look(2)"))
    with pytest.raises(SystemExit, match=r"thing\.py is not what async_thing\.py makes"):
        unasync.main(["check"])


def test_a_text_that_no_module_has_is_found(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unasync, "TEXT", [*unasync.TEXT, ("not there", "")])
    with pytest.raises(SystemExit, match="no module has the text 'not there'"):
        unasync.main([])
