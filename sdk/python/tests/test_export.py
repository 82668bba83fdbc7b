"""Changes as files for other programs, and queries."""

from __future__ import annotations

import asyncio
import sqlite3
import tarfile
from pathlib import Path

import pytest

from agentfense import AsyncSandbox, ExportFormat, InvalidConfigurationError, Sandbox


def test_export_and_sql(home: Path, project: Path, tmp_path: Path) -> None:
    with Sandbox.from_local(project, "full-access") as sandbox:
        sandbox.run("echo new > made; mkdir blank").raise_on_error()
        got = sandbox.export(tmp_path / "x.db")
        assert (got.entries, got.deletions, got.left_out) == (2, 0, [])
        assert got.size == (tmp_path / "x.db").stat().st_size
        with sqlite3.connect(tmp_path / "x.db") as db:
            assert db.execute("select path from agentfense_changes order by path").fetchall() == [
                ("/blank",),
                ("/made",),
            ]
        with pytest.raises(FileExistsError):
            sandbox.export(tmp_path / "x.db", "tar")
        sandbox.export(tmp_path / "x.tar", ExportFormat.TAR)
        with tarfile.open(tmp_path / "x.tar") as archive:
            assert sorted(archive.getnames()) == ["blank", "made"]
        assert [left.path for left in sandbox.export(tmp_path / "x.patch", "patch").left_out] == ["blank"]
        with pytest.raises(ValueError, match="zip"):
            sandbox.export(tmp_path / "x.zip", "zip")
        with pytest.raises(Exception, match="mount"):
            sandbox.export(tmp_path / "none", mount="none")
        assert not (tmp_path / "none").exists() and not (tmp_path / "x.zip").exists()

        found = sandbox.sql(
            "select path, 1.5, null, x'00', cast(x'ff' as text) from changes order by path desc", max_rows=1
        )
        assert found.rows == [["/made", 1.5, None, b"\0", "\udcff"]] and found.more
        with pytest.raises(InvalidConfigurationError):
            sandbox.sql("drop table changes")


def test_async(home: Path, project: Path, tmp_path: Path) -> None:
    async def use() -> None:
        async with await AsyncSandbox.from_local(project, "full-access") as sandbox:
            await sandbox.run("echo new > made")
            assert (await sandbox.export(tmp_path / "x.tar", "tar")).entries == 1
            assert (await sandbox.sql("select count(*) as n from changes", timeout=30)).rows == [[1]]

    asyncio.run(use())
