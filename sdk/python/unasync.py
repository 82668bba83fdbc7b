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
import textwrap
from pathlib import Path
from typing import List, Set

PACKAGE = Path(__file__).parent / "src" / "agentfense"

WIDTH = 100
"""The longest line of a paragraph that is filled again."""

SUMMARY = 120
"""The longest first line of a docstring, which is not wrapped."""

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
    ("One task", "One thread"),
    ("an asynchronous iterator", "an iterator"),
    (", once there is a connection", ""),
    ("from when it is entered", "from now on"),
    ("; with ``await`` or without", ""),
    ("; awaited or with ``async with``", ""),
    (", awaited or by ``async with``", ""),
    (": awaited, or by ``async with``", ""),
    ("The command starts when the first piece is asked for.", ""),
    ("The command starts when this is awaited, entered by ``async with``, or used in another way.", ""),
    ("Both ``await client.create_session(…)`` and ``async with client.create_session(…) as session`` work.", ""),
    (
        "The client connects when it is first used, and belongs to the event loop that runs then.",
        "Threads may share a client.",
    ),
    ("an ``async with``", "a ``with``"),
    ("``async with``", "``with``"),
]
"""What differs in docstrings, in the order in which it is replaced. Each text must occur in some module."""


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


def reworded(source: str, unused: Set[str]) -> str:
    """Return a module with the texts of its docstrings replaced, and take these texts out of ``unused``."""
    lines = source.split("\n")
    docstrings = [
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    for node in sorted(docstrings, key=lambda node: -node.lineno):
        written = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        body = written[: -len('"""')].rstrip()
        end = written[len(body) :]
        paragraphs = [reworded_paragraph(paragraph, unused) for paragraph in body.split("\n\n")]
        lines[node.lineno - 1 : node.end_lineno] = ("\n\n".join(filter(None, paragraphs)) + end).split("\n")
    return "\n".join(lines)


def reworded_paragraph(paragraph: str, unused: Set[str]) -> str:
    """Return a paragraph of a docstring with its texts replaced, and filled again if that changes it."""
    words = " ".join(paragraph.split())
    new = words
    for text, other in TEXT:
        if text in new:
            unused.discard(text)
            new = new.replace(text, other)
    if new == words or not new:
        return new and paragraph
    indent = paragraph[: len(paragraph) - len(paragraph.lstrip())]
    width = SUMMARY if paragraph.lstrip().startswith('"""') else WIDTH
    fill = textwrap.TextWrapper(width, indent, indent, break_long_words=False, break_on_hyphens=False)
    return fill.fill(new.strip())


def translated(module: Path, unused: Set[str]) -> str:
    """Return the module for threads, unformatted, and take the texts that it has out of ``unused``."""
    source = reworded(without_async_only(module.read_text()), unused)
    for pattern, other in CODE:
        source = re.sub(pattern, other, source)
    return f"# Made from {module.name} by make gen: do not edit.\n\n{source}"


def ruff(source: str, path: Path, *arguments: str) -> str:
    """Return what ruff makes of a module."""
    command = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", str(path), "-"]
    return subprocess.run(command, input=source, stdout=subprocess.PIPE, text=True, check=True).stdout


def main(arguments: List[str]) -> None:
    """Write the modules, or with ``check`` fail unless they are as they would be written."""
    unused = {text for text, _ in TEXT}
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
        sys.exit(f"unasync: no module has the text {min(unused)!r}")


if __name__ == "__main__":
    main(sys.argv[1:])
