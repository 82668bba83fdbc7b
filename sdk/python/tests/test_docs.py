"""The examples of all documents, run word by word, and type-checked as strictly as the package.

A document's blocks are one program, run in the directory of the fixture ``project``. A block with a file's name is
saved and run by the document's session in the shell, which test/docs plays; here its types are checked.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "sdk/python"


class Example(NamedTuple):
    """A block of a document."""

    line: int
    """How many lines are above its code."""
    file: str
    code: str


def documents() -> Iterator[Path]:
    for directory, directories, files in os.walk(ROOT):
        directories[:] = [
            d for d in directories if d[0] != "." and d not in ("bin", "dist", "testdata", "node_modules")
        ]
        yield from (Path(directory, name) for name in files if name.endswith(".md"))


def examples(document: Path) -> List[Example]:
    text = document.read_text()
    return [
        Example(text[: match.start(2)].count("\n"), match[1] or "", match[2])
        for match in re.finditer(r"^```python(?: (\S+))?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


ELSEWHERE = ["docs/integrations.md"]
"""What tests/integrations runs and checks, where its frameworks are."""

EXAMPLES = {
    name: found
    for path in sorted(documents())
    if (name := str(path.relative_to(ROOT))) not in ELSEWHERE and (found := examples(path))
}


def program(of: List[Example]) -> str:
    """Return the code of blocks, each at its document's lines."""
    text = ""
    for example in of:
        text += "\n" * (example.line - text.count("\n")) + example.code
    return text


RUN_HERE = {name: rest for name, found in EXAMPLES.items() if (rest := [e for e in found if not e.file])}


@pytest.mark.parametrize("document", RUN_HERE)
def test_examples(document: str, home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    names: Dict[str, Any] = {"__name__": "example"}
    for example in RUN_HERE[document]:
        exec(compile("\n" * example.line + example.code, str(ROOT / document), "exec"), names)


def test_the_documents_are_found() -> None:
    assert {"docs/python.md", "sdk/python/README.md"} <= set(RUN_HERE)


def test_the_types_of_examples(tmp_path: Path) -> None:
    programs = {re.sub(r"\W", "_", name[: -len(".md")]): rest for name, rest in RUN_HERE.items()}
    for name, found in EXAMPLES.items():
        for example in found:
            if example.file:
                programs[re.sub(r"\W", "_", f"{name} {example.file[:-3]}")] = [example]
    for name, of in programs.items():
        (tmp_path / f"{name}.py").write_text(program(of))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--config-file", str(PACKAGE / "pyproject.toml"), str(tmp_path)],
        cwd=PACKAGE,
        env={**os.environ, "MYPYPATH": "src"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert f"no issues found in {len(programs)} source file" in checked.stdout
