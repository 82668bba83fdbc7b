"""The examples of the documents, run word by word."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Dict

import pytest

ROOT = Path(__file__).resolve().parents[3]
DOCUMENTS = [ROOT / "sdk/python/README.md", ROOT / "docs/python.md"]


def examples(document: Path) -> list[tuple[int, str]]:
    """Return the line and the code of each example."""
    text = document.read_text()
    return [
        (text[: match.start(1)].count("\n"), match[1])
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_examples(document: Path, home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    names: Dict[str, Any] = {"__name__": "example"}
    found = examples(document)
    assert found
    for line, code in found:
        exec(compile("\n" * line + code, str(document), "exec"), names)
