"""Writes docs/python-reference.md; ``check`` fails unless it is current.

The page has the package's signatures and docstrings. This reads the source without importing it, so
that no optional dependency is needed. The page describes everything in ``agentfense.__all__``, the
classes that their methods return, and the modules of ``agentfense.integrations``. A public name
without a docstring is an error, except for fields, values of enumerations and literal constants.
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from pathlib import Path
from typing import Dict, Iterable, Iterator, List, Set, Union

import griffe

SOURCE = Path(__file__).parent / "src"
DOCUMENT = Path(__file__).parents[2] / "docs" / "python-reference.md"
WIDTH = 110

INTRODUCTION = """\
# The Python package, name by name

This page describes every name that `agentfense` exports, the classes that its methods return, and
the integrations. `make gen` generates it from the docstrings in
[sdk/python](../sdk/python/src/agentfense). [The Python package](python.md) is an introduction.

Sizes are in bytes and times in seconds, unless the text says otherwise.
"""

Member = Union[griffe.Object, griffe.Alias]


class Undocumented(Exception):
    """Public names without a docstring."""


def target(member: Member) -> griffe.Object:
    """Return the object that a name refers to."""
    return member.final_target if isinstance(member, griffe.Alias) else member


def public(cls: griffe.Object) -> Dict[str, griffe.Object]:
    """Return the public members of a class, its own first."""
    members = {**cls.members, **{name: m for name, m in cls.all_members.items() if name not in cls.members}}
    visible = {name: target(m) for name, m in members.items() if not name.startswith("_")}
    return {name: m for name, m in visible.items() if not str(getattr(m, "value", "")).startswith("_")}


def awaited(function: griffe.Function) -> bool:
    """Return whether a call is awaited. An asynchronous iterator is not."""
    return "async" in function.labels and not str(function.returns).startswith("AsyncIterator")


def bases(cls: griffe.Object) -> Iterator[str]:
    """Yield the names of a class's bases, and of their bases."""
    if isinstance(cls, griffe.Class):
        for base in cls.bases:
            yield str(base)
        for parent in cls.mro():
            yield from (str(base) for base in parent.bases)


def kind(thing: griffe.Object) -> str:
    """Return the section of an object."""
    if thing.is_class:
        of = set(bases(thing))
        if of & {"Enum", "enum.Enum"}:
            return "Enumerations"
        if "Exception" in of:
            return "Errors"
        return "Values" if "dataclass" in thing.labels else "Sandboxes and clients"
    return "Functions" if thing.is_function else "Modules" if thing.is_module else "Constants"


def plain(annotation: object) -> str:
    """Return an annotation without the names of modules."""
    written = re.sub(r"\b(?:t|types)\.Sandbox\b", "SandboxInfo", str(annotation))
    return re.sub(r"\b(?:t|types|exceptions|requests)\.(?=[A-Z])", "", written)


def text(thing: griffe.Object) -> str:
    """Return a docstring as Markdown."""
    if thing.docstring is None:
        return ""
    doc = thing.docstring.value.strip()
    parts = re.split(r"(``.*?``)", doc, flags=re.DOTALL)
    parts[::2] = [re.sub(r"([*<\[])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [part[1:-1] for part in parts[1::2]]
    return code("".join(parts))


def code(doc: str) -> str:
    """Fence the indented examples of a docstring, which other tests run."""
    blocks = []
    for block in doc.split("\n\n"):
        if block.startswith("    ") or is_program(block):
            lines = [re.sub(r"\\([*<\[])", r"\1", line) for line in textwrap.dedent(block).split("\n")]
            block = "\n".join(["```text", *lines, "```"])
        blocks.append(block)
    return "\n\n".join(blocks).replace("```\n\n```text\n", "\n")


def is_program(block: str) -> bool:
    """Return whether a block is an example that lost its indentation, because no other text follows."""
    try:
        statements = ast.parse(block.replace("\\", "")).body
    except SyntaxError:
        return False
    return bool(statements) and not isinstance(statements[0], ast.Expr)


def parameter(p: griffe.Parameter) -> str:
    """Return a parameter as in source."""
    star = {"variadic positional": "*", "variadic keyword": "**"}.get(p.kind.value if p.kind else "", "")
    written = star + p.name + (f": {plain(p.annotation)}" if p.annotation is not None else "")
    if p.default is None or star:
        return written
    return written + (" = " if p.annotation is not None else "=") + plain(p.default)


def signature(function: griffe.Function, name: str) -> str:
    """Return how a function is called, on one line or with a line for each parameter."""
    written: List[str] = []
    for p in function.parameters:
        if p.name in ("self", "cls"):
            continue
        if p.kind is griffe.ParameterKind.keyword_only and not any(w.startswith("*") for w in written):
            written.append("*")
        written.append(parameter(p))
    prefix = "await " if awaited(function) else ""
    result = f" -> {plain(function.returns)}" if function.returns is not None and name == function.name else ""
    line = f"{prefix}{name}({', '.join(written)}){result}"
    if len(line) > WIDTH:
        line = f"{prefix}{name}(\n" + "".join(f"    {w},\n" for w in written) + f"){result}"
    return f"```text\n{line}\n```\n"


def typed(attribute: griffe.Attribute) -> str:
    """Return the type of an attribute, from its annotation or its value; or else the value."""
    value = str(attribute.value)
    making = attribute.parent.members.get("__init__") if attribute.parent is not None else None
    if attribute.annotation is not None:
        return f": {plain(attribute.annotation)}"
    if made := re.match(r"([A-Z]\w+)\(", value):
        return f": {made[1]}"
    if isinstance(making, griffe.Function) and value in [p.name for p in making.parameters]:
        return f": {plain(making.parameters[value].annotation)}"
    return f" = {value}"


class Page:
    """The page while it is written."""

    def __init__(self, package: griffe.Module) -> None:
        self.package = package
        self.lines: List[str] = [INTRODUCTION]
        self.missing: List[str] = []
        self.written: Set[str] = set()
        """The words of all types so far, among which aliases and classes are looked up."""
        self.returned: Set[str] = set()
        """The paths of classes that only methods return."""

    def add(self, *paragraphs: str) -> None:
        """Add paragraphs that are not empty."""
        for paragraph in filter(None, paragraphs):
            self.lines.append(paragraph.rstrip("\n") + "\n")

    def told(self, thing: griffe.Object) -> str:
        """Return the docstring of an object, or record that it is missing."""
        if thing.docstring is None:
            self.missing.append(thing.path)
        return text(thing)

    def function(self, name: str, function: griffe.Function, level: str) -> None:
        """Add a function or method."""
        self.note(function)
        self.add(f"{level} {name}", signature(function, function.name), self.told(function))

    def note(self, thing: griffe.Object) -> None:
        """Record the names in an object's types."""
        annotations: List[object] = (
            [thing.returns, *(p.annotation for p in thing.parameters)]
            if isinstance(thing, griffe.Function)
            else [getattr(thing, "annotation", None), getattr(thing, "value", None)]
        )
        for annotation in filter(None, annotations):
            self.written.update(re.findall(r"\b[A-Z]\w+", str(annotation)))

    def value(self, name: str, attribute: griffe.Attribute) -> str:
        """Return a line about a field, a property or a value of an enumeration."""
        self.note(attribute)
        known = typed(attribute)
        if "property" in attribute.labels and attribute.docstring is None:
            self.missing.append(attribute.path)
        about = " ".join(text(attribute).split())
        return f"- `{name}{known}`" + (f": {about}" if about else "")

    def cls(self, name: str, cls: griffe.Object, level: str = "###") -> None:
        """Add a class. For an asynchronous class, add only what differs from the synchronous one."""
        assert isinstance(cls, griffe.Class)
        self.add(f"{level} {name}")
        if kind(cls) == "Errors":
            self.add("Base class: " + ", ".join(f"`{plain(base)}`" for base in cls.bases) + ".")
        self.add(self.told(cls))
        members = public(cls)
        if kind(cls) == "Errors":
            members = {n: m for n, m in members.items() if n in cls.members}
        making = cls.members.get("__init__")
        if isinstance(making, griffe.Function) and kind(cls) != "Errors" and cls.path not in self.returned:
            self.note(making)
            self.add(signature(making, name))
        twin = self.package.members.get(name.replace("Async", "", 1)) if name.startswith("Async") else None
        if twin is None and name.startswith("Async"):
            twin = self.find(name[len("Async") :])
        if twin is not None:
            members = self.twin(target(twin), members)
        attributes = [self.value(n, m) for n, m in members.items() if isinstance(m, griffe.Attribute)]
        self.add("\n".join(attributes))
        for n, m in members.items():
            if isinstance(m, griffe.Function):
                self.function(f"{name}.{n}", m, level + "#")

    def twin(self, other: griffe.Object, members: Dict[str, griffe.Object]) -> Dict[str, griffe.Object]:
        """Add a list of the members that are as in the synchronous class, and return the other members."""
        theirs = public(other)
        rest: Dict[str, griffe.Object] = {}
        to_await: List[str] = []
        to_call: List[str] = []
        for n, m in members.items():
            self.note(m)
            if n not in theirs or re.sub(r"\bAsync(?=[A-Z])", "", text(m)) != text(theirs[n]):
                rest[n] = m
            elif isinstance(m, griffe.Function):
                (to_await if awaited(m) else to_call).append(n)
        for how, names in (("but awaited", to_await), ("and not awaited", to_call)):
            if names:
                listed = ", ".join(f"`{n}`" for n in names)
                self.add(f"As in [{other.name}](#{other.name.lower()}), {how}: {listed}.")
        return rest

    def find(self, name: str) -> Union[griffe.Object, None]:
        """Return the class or alias of a name in the package's modules, except the API's code."""
        for module in self.package.modules.values():
            found = module.members.get(name)
            if found is not None and not found.is_alias and module.name != "_gen":
                return target(found)
        return None

    def section(self, title: str, members: Iterable[tuple[str, griffe.Object]]) -> None:
        """Add a section."""
        things = list(members)
        if not things:
            return
        self.add(f"## {title}")
        listed: List[str] = []
        for name, thing in things:
            if thing.is_class:
                self.cls(name, thing)
            elif isinstance(thing, griffe.Function):
                self.function(name, thing, "###")
            elif isinstance(thing, griffe.Attribute):
                listed.append(self.constant(name, thing))
            else:
                listed.append(f"- `agentfense.{name}`: {' '.join(self.told(thing).split(chr(10) * 2)[0].split())}")
        self.add("\n".join(listed))

    def constant(self, name: str, constant: griffe.Attribute) -> str:
        """Return a line about a constant: its value, or its description."""
        literal = re.fullmatch(r"'[^']*'|\"[^\"]*\"|[0-9.]+", str(constant.value)) is not None
        if literal and constant.docstring is None:
            return f"- `{name}`" + ("" if name == "__version__" else f" = `{constant.value}`")
        known = f": {plain(constant.annotation)}" if constant.annotation is not None else ""
        return f"- `{name}{known}`: {' '.join(self.told(constant).split())}"


def exported(package: griffe.Module) -> Dict[str, griffe.Object]:
    """Return the names that a module exports: those of __all__, else those that it defines."""
    if package.exports is not None:
        return {str(name): target(package.members[str(name)]) for name in package.exports}
    return {
        name: target(m)
        for name, m in package.members.items()
        if not name.startswith("_")
        and not m.is_alias
        and not m.is_module
        and not str(getattr(m, "value", "")).startswith("TypeVar(")
    }


def write(package: griffe.Module) -> str:
    """Return the page."""
    page = Page(package)
    names = exported(package)
    kinds: Dict[str, List[tuple[str, griffe.Object]]] = {}
    for name, thing in names.items():
        kinds.setdefault(kind(thing), []).append((name, thing))
    page.section("Sandboxes and clients", kinds.get("Sandboxes and clients", []))
    place = len(page.lines)
    for title in ("Values", "Enumerations", "Errors", "Functions", "Constants", "Modules"):
        page.section(title, kinds.get(title, []))
    integrations(page, package)
    page.lines[place:place] = returned(page, {thing.path for thing in names.values()})
    aliases(page)
    if page.missing:
        raise Undocumented("no docstring: " + ", ".join(page.missing))
    return "\n".join(page.lines)


def returned(page: Page, documented: Set[str]) -> List[str]:
    """Return the lines about the classes that only methods return."""
    start = len(page.lines)
    while True:
        found = ((name, page.find(name)) for name in sorted(page.written))
        new = [(n, c) for n, c in found if c is not None and c.is_class and c.path not in documented | page.returned]
        if not new:
            break
        page.returned.update(c.path for _, c in new)
        for name, thing in new:
            page.cls(name, thing)
    lines = ["## Returned classes\n", *page.lines[start:]] if page.returned else []
    del page.lines[start:]
    return lines


def integrations(page: Page, package: griffe.Module) -> None:
    """Add the modules of agentfense.integrations."""
    below = package.members.get("integrations")
    if below is None:
        return
    page.add("## Integrations", page.told(target(below)))
    for module in target(below).modules.values():
        if module.name.startswith("_"):
            continue
        assert isinstance(module, griffe.Module)
        page.add(f"### agentfense.integrations.{module.name}", page.told(module))
        for name, thing in exported(module).items():
            if thing.is_class:
                page.cls(name, thing, "####")
            elif isinstance(thing, griffe.Function):
                page.function(name, thing, "####")
            elif isinstance(thing, griffe.Attribute):
                page.add(page.constant(name, thing))


def aliases(page: Page) -> None:
    """Add the names of types."""
    found: Dict[str, str] = {}
    while True:
        new = {
            name: plain(thing.value)
            for name in page.written - found.keys()
            if isinstance(thing := page.find(name), griffe.Attribute) and not str(thing.value).startswith("TypeVar")
        }
        if not new:
            break
        found.update(new)
        for value in new.values():
            page.written.update(re.findall(r"\b[A-Z]\w+", value))
    if found:
        page.add("## Names of types", "\n".join(f"- `{name}` = `{found[name]}`" for name in sorted(found)))


def main(arguments: List[str]) -> None:
    """Write the page, or with ``check`` fail unless it is current."""
    package = griffe.load("agentfense", search_paths=[SOURCE], allow_inspection=False)
    assert isinstance(package, griffe.Module)
    try:
        document = write(package)
    except Undocumented as problem:
        sys.exit(f"reference: {problem}")
    if arguments != ["check"]:
        DOCUMENT.write_text(document)
    elif not DOCUMENT.exists() or DOCUMENT.read_text() != document:
        sys.exit(f"{DOCUMENT.name} is not what the package's docstrings make: run make gen")


if __name__ == "__main__":
    main(sys.argv[1:])
