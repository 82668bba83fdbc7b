"""docs/python-reference.md has each public name, and each has a docstring."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict

import griffe
import pytest

import agentfense
from reference import DOCUMENT, Undocumented, write


def test_each_exported_name_is_described() -> None:
    described = re.findall(r"^(?:### |- `(?:agentfense\.)?)(\w+)", DOCUMENT.read_text(), re.MULTILINE)
    assert set(agentfense.__all__) <= set(described)


def page_of(root: Path, modules: Dict[str, str]) -> str:
    for name, source in modules.items():
        file = root / "package" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    package = griffe.load("package", search_paths=[root], allow_inspection=False)
    assert isinstance(package, griffe.Module)
    return write(package)


@pytest.mark.parametrize(
    ("modules", "missing"),
    [
        ({"__init__.py": "from .a import f\n__all__ = ['f']\n", "a.py": "def f(): ...\n"}, "package.a.f"),
        ({"__init__.py": "class C:\n    '''Is C.'''\n    def m(self): ...\n__all__ = ['C']\n"}, "package.C.m"),
        (
            {"__init__.py": "class C:\n    '''C.'''\n    @property\n    def p(self) -> int: ...\n__all__ = ['C']\n"},
            "package.C.p",
        ),
        ({"__init__.py": "from . import a\n__all__ = ['a']\n", "a.py": ""}, "package.a"),
        ({"__init__.py": "X = {}\n__all__ = ['X']\n"}, "package.X"),
        (
            {
                "__init__.py": "from .a import f\n__all__ = ['f']\n",
                "a.py": "class Given:\n    pass\ndef f() -> Given:\n    '''Gives it.'''\n",
            },
            "package.a.Given",
        ),
        (
            {"__init__.py": "__all__ = []\n", "integrations/__init__.py": "'''All.'''\n", "integrations/x.py": ""},
            "package.integrations.x",
        ),
    ],
    ids=["function", "method", "property", "module", "constant", "class that is returned", "integration"],
)
def test_names_without_a_docstring_are_reported(tmp_path: Path, modules: Dict[str, str], missing: str) -> None:
    with pytest.raises(Undocumented, match=f"no docstring: {re.escape(missing)}$"):
        page_of(tmp_path, modules)


def test_a_name_is_described_with_its_types(tmp_path: Path) -> None:
    source = (
        "from typing import Union\nSize = Union[int, str]\nclass Error(Exception):\n    '''Is bad.'''\n"
        "async def f(a: Size, *, b: int = 1) -> str:\n    '''Do ``a`` *now*.'''\n__all__ = ['f', 'Error']\n"
    )
    page = page_of(tmp_path, {"__init__.py": source})
    assert "### Error\n\nBase class: `Exception`.\n\nIs bad.\n" in page
    assert "### f\n\n```text\nawait f(a: Size, *, b: int = 1) -> str\n```\n\nDo `a` \\*now\\*.\n" in page


def test_the_names_of_types_are_explained(tmp_path: Path) -> None:
    modules = {
        "__init__.py": "from .a import f\n__all__ = ['f']\n",
        "a.py": "from typing import Union\nSize = Union[int, str]\ndef f(a: Size) -> None:\n    '''Do it.'''\n",
    }
    assert "- `Size` = `Union[int, str]`\n" in page_of(tmp_path, modules)
