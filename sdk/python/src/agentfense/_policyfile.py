"""Policy files (docs/policy.md): reading, as strictly as the command line, and writing."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Iterable, List, NoReturn, Optional, Sequence, Tuple

from ._patterns import check_pattern
from .exceptions import PolicyError
from .types import PatternType, Permission, PermissionRule, RedactFormat

VERSION = "1"
MOST_BYTES = 8 << 20
"""The most bytes of a file."""

Document = Tuple[Optional[str], List[PermissionRule]]
"""The preset and the file's own rules."""


def read(text: str, name: str, presets: Sequence[str]) -> Document:
    """Return the content of a policy file. PolicyError has ``name``, the line and the most similar valid word."""
    return _Reader(name, presets).read(text)


def decode(content: bytes, name: str) -> str:
    """Return the text of a file. Raises PolicyError if it is too long or not UTF-8."""
    if len(content) > MOST_BYTES:
        raise PolicyError(f"{name}:1: the file is longer than {MOST_BYTES} bytes", name, 1)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise PolicyError(f"{name}:{line}: not YAML: byte {content[error.start]:#x} is no UTF-8", name, line) from None


# Writing


def write(preset: Optional[str], rules: Sequence[PermissionRule]) -> str:
    """Return the text of a policy file."""
    lines = [f"version: {VERSION}"]
    if preset is not None:
        lines.append(f"preset: {preset}")
    if rules or preset is None:
        lines.append("rules:" if rules else "rules: []")
    for rule in rules:
        lines.append(f"  - pattern: {_quoted(rule.pattern)}")
        lines.append(f"    permission: {rule.permission.value}")
        if rule.type is not PatternType.AUTO:
            lines.append(f"    type: {rule.type.value}")
        if rule.priority:
            lines.append(f"    priority: {rule.priority}")
        if rule.strict:
            lines.append("    strict: true")
        if rule.redact:
            lines.append(f"    redact: {rule.redact.value}")
        if rule.substitute:
            lines.append(f"    substitute: {_quoted(rule.substitute)}")
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Return a string of YAML with the text, whatever characters it has."""
    return '"' + "".join(_escaped(c) for c in text) + '"'


def _escaped(c: str) -> str:
    if c in '"\\':
        return "\\" + c
    if c.isprintable():
        return c
    code = ord(c)
    return f"\\x{code:02x}" if code < 1 << 8 else f"\\u{code:04x}" if code < 1 << 16 else f"\\U{code:08x}"


# Reading


def _shown(values: Dict[str, Any]) -> str:
    """Return what a rule shows in place of a file's content, as a policy file has it."""
    if "redact" in values:
        return f"redact: {values['redact'].value}"
    return f'substitute: "{values["substitute"]}"' if "substitute" in values else ""


class _Node:
    """A value of the file: a text, a list of nodes, alternating keys and values of a mapping, or an alias."""

    def __init__(self, event: Any) -> None:
        self.event = event
        self.line: int = event.start_mark.line + 1
        self.kind: str = type(event).__name__
        self.inside: List[_Node] = []

    @property
    def is_nothing(self) -> bool:
        """Whether YAML reads it as null."""
        if self.kind != "ScalarEvent":
            return False
        plain = self.event.implicit[0] and self.event.value in ("", "~", "null", "Null", "NULL")
        return plain or self.event.tag == "tag:yaml.org,2002:null"

    @property
    def shape(self) -> str:
        """A description of the kind of value."""
        if self.is_nothing:
            return "nothing"
        return {
            "MappingStartEvent": "a mapping",
            "SequenceStartEvent": "a list",
            "AliasEvent": "an alias",
        }.get(self.kind, "a single value")


_SPECIAL = re.compile(r"(?:[ \t]*(?:- )+)?(?:[ \t]*[a-z]+:)?[ \t]+[*&!{\[@%`|>]")
"""As in internal/lib/yamlfile, but matching takes time linear in the line's length: a file may be one line."""
_PLAIN_TAGS = ["tag:yaml.org,2002:" + name for name in ("str", "int", "float", "bool", "timestamp", "merge")]


_TABBED = re.compile(r" *(?:- *)*\t")
_EXPLANATIONS = (
    ("mapping values are not allowed", "this colon begins a value where none can be: check the indentation"),
    ("expected ',' or '}'", "a { is not closed, or a comma is missing"),
    ("expected ',' or ']'", "a [ is not closed, or a comma is missing"),
    ("scanning a quoted scalar", "a quotation mark is not closed"),
    (
        "block collection",
        "the indentation does not fit the list above: each item begins with a dash in the same column",
    ),
    (
        "block mapping",
        "the indentation does not fit the lines above: keys of the same mapping begin in the same column",
    ),
    ("escape", "after this backslash YAML knows no such character: write \\\\ in double quotes, or use single quotes"),
    ("alphabetic or numeric character", "after * or & a name is missing"),
    ("cannot start any token", "no value can begin with this character without quotation marks"),
    ("could not find expected ':'", "a colon after a key is missing"),
    ("node content", "a value is missing, or a bracket has no partner"),
    ("directive", "a line that begins with % is for YAML itself"),
)
"""The meaning of the parser's messages, as in internal/lib/yamlfile; the first match counts."""


def _explain(cause: str, line: str) -> str:
    """Return what is wrong with a line. ``cause`` is the parser's message."""
    if _TABBED.match(line):
        return "the line is indented with a tab: YAML takes spaces only"
    text = "the line does not fit the lines above it"
    for part, words in _EXPLANATIONS:
        if part in cause:
            text = words
            break
    if _SPECIAL.match(line):
        text += "; quote a value that begins with one of * & ! { [ @ % ` | >"
    return text


_MOST_MARKS = 1024
_MOST_REASON_BYTES = 200
_DEEPEST = 100
"""The deepest nesting of lists and mappings. YAML's time grows with its square."""


class _Reader:
    """Reads one file."""

    def __init__(self, name: str, presets: Sequence[str]) -> None:
        self.name = name
        self.presets = presets

    def fail(self, line: int, message: str) -> NoReturn:
        """Raise PolicyError for a line."""
        raise PolicyError(f"{self.name}:{line}: {message}", self.name, line)

    def read(self, text: str) -> Document:
        """Return the content of the file."""
        root = self.parse(text)
        if root is None:
            self.fail(1, f"the file is empty: it begins with version: {VERSION}")
        values = self.fields(root, "policy file", self.readers())
        if "version" not in values:
            self.fail(root.line, f"version is missing: the file begins with version: {VERSION}")
        if "preset" not in values and "rules" not in values:
            self.fail(root.line, "preset and rules are both missing")
        return values.get("preset"), values.get("rules", [])

    def parse(self, text: str) -> Optional[_Node]:
        """Return the value in the text; None if there is none."""
        import yaml

        try:
            return self.tree(yaml.parse(text, Loader=yaml.SafeLoader))
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            lines = text.splitlines() or [""]
            cause = f"{error.context or ''} {error.problem or ''}"
            self.fail(line, f"not YAML: {_explain(cause, lines[min(line, len(lines)) - 1])}")
        except yaml.reader.ReaderError as error:
            self.fail(text.count("\n", 0, error.position) + 1, "not YAML: control characters are not allowed")

    def tree(self, events: Iterable[Any]) -> Optional[_Node]:
        """Return the value in a stream of events."""
        import yaml

        root: Optional[_Node] = None
        around: List[_Node] = []
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent) and root is not None:
                self.fail(_Node(event).line, "a second document begins: the file holds one")
            elif isinstance(event, yaml.CollectionEndEvent):
                around.pop()
            elif isinstance(event, yaml.NodeEvent):
                node = _Node(event)
                if around:
                    around[-1].inside.append(node)
                root = root or node
                if isinstance(event, yaml.CollectionStartEvent):
                    around.append(node)
                if len(around) > _DEEPEST:
                    self.fail(node.line, f"the file is nested more than {_DEEPEST} deep")
        return root

    def fields(self, node: _Node, what: str, readers: Dict[str, Callable[[_Node], Any]]) -> Dict[str, Any]:
        """Return the values of a mapping, by key."""
        if node.kind != "MappingStartEvent":
            self.fail(node.line, f"a {what} is a mapping, not {node.shape}")
        values: Dict[str, Any] = {}
        for key, value in zip(node.inside[::2], node.inside[1::2]):
            word = key.event.value if key.kind == "ScalarEvent" else ""
            if word not in readers:
                self.fail(key.line, unknown("key", word, list(readers)))
            if word in values:
                self.fail(key.line, f'key "{word}" is given twice')
            values[word] = readers[word](value)
        return values

    def text(self, node: _Node, key: str) -> str:
        """Return a value as it is written, whatever its type in YAML."""
        if node.kind != "ScalarEvent":
            self.fail(node.line, f"{key} is text, not {node.shape}: quote a value that begins with * {{ or [")
        if node.is_nothing:
            self.fail(node.line, f"{key} has no value")
        event = node.event
        if event.anchor is not None or event.tag not in (None, "!", *_PLAIN_TAGS):
            self.fail(node.line, f"{key} is plain text: quote a value that begins with ! or &")
        value: str = event.value
        return value

    def word(self, node: _Node, key: str, valid: Sequence[str]) -> str:
        """Return a value that must be a valid word."""
        text = self.text(node, key)
        if text not in valid:
            self.fail(node.line, unknown(key, text, valid))
        return text

    def version(self, node: _Node) -> None:
        """Check the version."""
        text = self.text(node, "version")
        if text != VERSION:
            self.fail(node.line, f'version "{text}" is not known: this agentfense reads version {VERSION}')

    def preset(self, node: _Node) -> str:
        """Return the name of the preset."""
        return self.word(node, "preset", self.presets)

    def rules(self, node: _Node) -> List[PermissionRule]:
        """Return the rules."""
        if node.kind != "SequenceStartEvent":
            self.fail(node.line, f"rules is a list, not {node.shape}")
        return [self.rule(item) for item in node.inside]

    def readers(self) -> Dict[str, Callable[[_Node], Any]]:
        """Return the function that reads the value of each key."""
        return {
            "version": self.version,
            "preset": self.preset,
            "rules": self.rules,
            "network": self.network,
            "scratch": self.scratch,
            "marks": self.marks,
            "expect": self.expect,
        }

    def network(self, node: _Node) -> None:
        """Refuse hosts, which are no part of a policy."""
        self.fail(node.line, "network: a policy has no hosts: leave it out, and name them with allow_net=")

    def scratch(self, node: _Node) -> None:
        """Refuse scratch directories, which are no part of a policy."""
        self.fail(node.line, "scratch: a policy has no scratch directories: leave it out, and name them with scratch=")

    def apply(self, node: _Node) -> None:
        """Refuse rules that keep, which a policy cannot have."""
        if self.word(node, "apply", ["keep", "review"]) == "keep":
            self.fail(
                node.line, "apply: keep: a policy keeps no state: leave it out, and set keep in the rules of a mount"
            )

    def keys(self, node: _Node) -> None:
        """Refuse keys, which go with changes that are kept."""
        self.fail(node.line, "keys go with apply: keep: a policy keeps no state: leave them out")

    def substitute(self, node: _Node) -> str:
        """Return the path of a substitute."""
        text = self.text(node, "substitute")
        if not text:
            self.fail(node.line, "substitute is empty: name a file of the workspace")
        return text

    def marks(self, node: _Node) -> None:
        """Check the marks, which only the command line's reviews use."""
        if node.kind != "SequenceStartEvent":
            self.fail(node.line, f"marks is a list, not {node.shape}")
        if len(node.inside) > _MOST_MARKS:
            self.fail(node.line, f"{len(node.inside)} marks: at most {_MOST_MARKS} are allowed")
        for item in node.inside:
            self.mark(item)

    def expect(self, node: _Node) -> None:
        """Check the expectations, which only ``agentfense policy test`` uses."""
        if node.kind != "SequenceStartEvent":
            self.fail(node.line, f"expect is a list, not {node.shape}")
        for item in node.inside:
            fields: Dict[str, Callable[[_Node], Any]] = {
                "path": lambda value: self.text(value, "path"),
                "permission": lambda value: self.word(value, "permission", _PERMISSIONS),
            }
            values = self.fields(item, "expectation", fields)
            for key in fields:
                if key not in values:
                    self.fail(item.line, f"{key} is missing in the expectation")

    def mark(self, node: _Node) -> None:
        """Check one mark."""
        fields: Dict[str, Callable[[_Node], Any]] = {
            "pattern": lambda value: self.text(value, "pattern"),
            "reason": lambda value: self.text(value, "reason"),
        }
        values = self.fields(node, "mark", fields)
        if "pattern" not in values:
            self.fail(node.line, "pattern is missing in the mark")
        said, reason = f'mark "{values["pattern"]}"', values.get("reason", "")
        try:
            check_pattern(values["pattern"], PatternType.AUTO)
        except ValueError as cause:
            self.fail(node.line, f"{said}: pattern: {cause}")
        if not reason.strip():
            self.fail(node.line, f"{said}: reason is missing: say what runs or obeys the file")
        if len(reason.encode()) > _MOST_REASON_BYTES:
            self.fail(node.line, f"{said}: reason: longer than {_MOST_REASON_BYTES} bytes")
        if not reason.isprintable():
            self.fail(node.line, f"{said}: reason: has characters that cannot be printed")

    def rule(self, node: _Node) -> PermissionRule:
        """Return one rule."""
        lines = {}

        def pattern(value: _Node) -> str:
            lines["pattern"] = value.line
            return self.text(value, "pattern")

        values = self.fields(
            node,
            "rule",
            {
                "pattern": pattern,
                "permission": lambda value: Permission(self.word(value, "permission", _PERMISSIONS)),
                "type": lambda value: PatternType(self.word(value, "type", _TYPES)),
                "priority": self.priority,
                "strict": self.strict,
                "redact": lambda value: RedactFormat(self.word(value, "format", _FORMATS)),
                "substitute": self.substitute,
                "apply": self.apply,
                "keys": self.keys,
            },
        )
        shown = _shown(values)
        if shown:
            values.setdefault("permission", Permission.READ)
        for key in ("pattern", "permission"):
            if key not in values:
                self.fail(node.line, f"{key} is missing in the rule")
        values.pop("apply", None)
        rule = PermissionRule(**{"type": PatternType.AUTO, **values})
        if shown and rule.permission is not Permission.READ:
            is_not = f"{shown} goes with permission read, not {rule.permission.value}"
            self.fail(node.line, f"{is_not}: write permission: read, or leave permission out")
        if "strict" in values and rule.permission is not Permission.NONE:
            self.fail(node.line, f"strict goes with permission none, not {rule.permission.value}")
        try:
            check_pattern(rule.pattern, rule.type)
            if rule.redact and rule.substitute:
                raise ValueError("redact and substitute exclude each other: keep one of them")
        except ValueError as cause:
            self.fail(lines["pattern"], f'pattern "{rule.pattern}": {cause}')
        return rule

    def priority(self, node: _Node) -> int:
        """Return a priority."""
        text = self.text(node, "priority")
        if not re.fullmatch(r"[+-]?[0-9]{1,4096}", text, re.ASCII) or not -(2**31) <= int(text) < 2**31:
            self.fail(node.line, f'priority "{text}" is no whole number between {-(2**31)} and {2**31 - 1}')
        return int(text)

    def strict(self, node: _Node) -> bool:
        """Return whether a rule is strict."""
        text = self.text(node, "strict")
        if text not in ("true", "false"):
            self.fail(node.line, f'strict is true or false, not "{text}"')
        return text == "true"


_PERMISSIONS = [permission.value for permission in Permission]
_FORMATS = [format.value for format in RedactFormat]
_TYPES = [kind.value for kind in PatternType if kind is not PatternType.AUTO]


# Words


def unknown(what: str, word: str, valid: Sequence[str]) -> str:
    """Return an error text for an unknown word, with the most similar valid word, or else all."""
    near = nearest(word, valid)
    if near:
        return f'unknown {what} "{word}": did you mean "{near}"?'
    return f'unknown {what} "{word}": it is one of {", ".join(valid)}'


def nearest(word: str, valid: Sequence[str]) -> str:
    """Return the most similar valid word: a few edits away, or longer. Returns an empty string if none is similar."""
    if len(word) > 64:
        return ""
    word = word.lower()
    best, fewest = "", 0
    for other in valid:
        edits = _edits(word, other)
        if len(word) >= 3 and other.startswith(word):
            edits = min(edits, 1)
        if edits <= (max(len(word), len(other)) + 2) // 3 and (not best or edits < fewest):
            best, fewest = other, edits
    return best


def _edits(a: str, b: str) -> int:
    """Return the number of insertions, deletions, replacements and swaps of neighbours that turn ``a`` into ``b``."""
    before: List[int] = []
    last = list(range(len(b) + 1))
    for i in range(1, len(a) + 1):
        row = [i]
        for j in range(1, len(b) + 1):
            row.append(min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                row[j] = min(row[j], before[j - 2] + 1)
        before, last = last, row
    return last[len(b)]
