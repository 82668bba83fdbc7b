"""Writes the modules for threads from those for event loops; ``check`` fails unless they are current.

``async_client.py`` becomes ``client.py``, and so on: ``async`` and ``await`` are left out, names are replaced, and
ruff formats the rest. A statement whose first line ends in ``# async only`` is left out. What differs in more than
that is written for both by hand, as in ``_connection.py`` and ``_streams.py``.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path
from typing import Dict, List

PACKAGE = Path(__file__).parent / "src" / "agentfense"

FIXES = "F401,I,SIM117,UP028"
"""Rules of ruff that the translation breaks: imports that are not used, nested ``with`` blocks, loops of yields."""

CODE = [
    (r"\basync (?=def|for|with)", ""),
    (r"\bawait ", ""),
    (r"\basyncio\.to_thread\(([\w.]+)(?:, )?", r"\1("),
    (r"\b__a(enter|exit|iter|next)__\b", r"__\1__"),
    (r"\baclose\b", "close"),
    (r"\bStopAsyncIteration\b", "StopIteration"),
    (r"\bAwaitable\[([\w.]+)\]", r"\1"),
    (r"\breturn Opening\(", "return ("),
    (r"\bOpening\b", "SessionWrapper"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b(_?)async_(?=\w)", r"\1"),
    (r"_async\b", ""),
]
"""Patterns of what differs in code, and in the names that docstrings have, and what each becomes."""

TEXT = [
    ("an event loop", "threads"),
    ("Tasks of one event loop", "Threads"),
    ("an asynchronous iterator", "an iterator"),
    (" for ``async for``", ""),
    (", once there is a connection", ""),
    ("from when it is entered", "from now on"),
    ("; with ``await`` or without", ""),
    ("; awaited or with ``async with``", ""),
    (", awaited or by ``async with``", ""),
    (": awaited, or by ``async with``", ", and return it when it runs"),
    ("One task may read while others write", "One thread may read while others write"),
    ("Each method but ``aclose``", "What sends something"),
    (" The command starts when the first piece is asked for.", ""),
    (" The command starts when this is awaited, entered by ``async with``, or used in another way.", ""),
    (" Both ``await client.create_session(…)`` and ``async with client.create_session(…) as session`` work.", ""),
    (
        "The connection is made when it is first used, and belongs to the event loop that runs then.",
        "Threads may share a client.",
    ),
    ("``async with``", "``with``"),
]
"""What differs in docstrings, in the order in which it is replaced; none may be without use."""


def sources() -> List[Path]:
    """Return the modules that are written by hand and have a twin for threads."""
    return sorted(PACKAGE.glob("*async_*.py"))


def twin(module: Path) -> Path:
    """Return the module that is made of one for event loops."""
    return module.with_name(module.name.replace("async_", "", 1))


def without_async_only(source: str) -> str:
    """Return a module without the statements that are for event loops alone."""
    lines = source.splitlines(keepends=True)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.stmt) and node.end_lineno and lines[node.lineno - 1].endswith("# async only\n"):
            lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    return "".join(lines)


def translated(module: Path, unused: Dict[str, str]) -> str:
    """Return the module for threads, unformatted, and take the texts that it has out of ``unused``."""
    source = without_async_only(module.read_text())
    for text, other in TEXT:
        pattern = r"\s+".join(map(re.escape, text.split()))  # wherever its lines are broken
        pattern = r"\s+" * text.startswith(" ") + pattern + r"\s+" * text.endswith(" ")
        source, count = re.subn(pattern, lambda _, other=other: other, source)  # type: ignore[misc]
        if count:
            unused.pop(text, None)
    for pattern, other in CODE:
        source = re.sub(pattern, other, source)
    return f"# Made from {module.name} by make gen: do not edit.\n\n{source}"


def ruff(source: str, path: Path, *arguments: str) -> str:
    """Return what ruff makes of a module."""
    command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(path), "-"]
    return subprocess.run(command, input=source, stdout=subprocess.PIPE, text=True, check=True).stdout


def main(arguments: List[str]) -> None:
    """Write the modules, or with ``check`` fail unless they are as they would be written."""
    unused = dict(TEXT)
    for module in sources():
        path = twin(module)
        source = ruff(
            translated(module, unused), path, "check", "--quiet", "--fix-only", "--unsafe-fixes", "--select", FIXES
        )
        source = ruff(source, path, "format", "--quiet")
        if arguments != ["check"]:
            path.write_text(source)
        elif not path.exists() or path.read_text() != source:
            sys.exit(f"unasync: {path.name} is not what {module.name} makes: change that one, and run make gen")
    if unused:
        sys.exit(f"unasync: no module has the text {next(iter(unused))!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
