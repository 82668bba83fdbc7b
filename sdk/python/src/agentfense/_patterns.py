"""The patterns of rules that the server accepts, checked where a policy is written (docs/policy.md)."""

from __future__ import annotations

from typing import List, Tuple

from .types import PatternType

PATTERN_BYTES = 4096
NAME_BYTES = 255
ALTERNATIVES = 1024
DOUBLE_STARS = 16


def check_pattern(text: str, kind: PatternType) -> None:
    """Raise ValueError with the reason for a pattern that the server would reject."""
    _check_text(text)
    told = kind in (PatternType.AUTO, PatternType.GLOB)
    if told and text[0] == "!":
        raise ValueError("a pattern cannot be negated: give a rule of higher priority, or write \\! for the character")
    if told and (kind is PatternType.GLOB or any(c in "*?[{\\" for c in text)):
        anchored = "/" in text[:-1]
        for alternative in _expand(text):
            _check_alternative(alternative, anchored)
        return
    if kind is PatternType.FILE and text.endswith("/") and text.strip("/."):
        raise ValueError("a file has no slash at its end: write type directory")
    for name in text.split("/"):
        if name not in ("", "."):
            _check_name(name, f'path "{text}": ')


def _check_text(text: str) -> None:
    if not text:
        raise ValueError("it is empty")
    if "\0" in text:
        raise ValueError("it holds a NUL")
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise ValueError("it is no UTF-8: write ? for each byte that is none") from None
    if size > PATTERN_BYTES:
        raise ValueError(f"it is longer than {PATTERN_BYTES} bytes")


def _check_name(name: str, where: str = "") -> None:
    if name in ("", ".", ".."):
        raise ValueError(f'{where}name "{name}" is not allowed')
    size = len(name.encode())
    if size > NAME_BYTES:
        raise ValueError(f"{where}name of {size} bytes is longer than {NAME_BYTES}")


# Braces


def _expand(text: str) -> List[str]:
    """Return the patterns without braces that a glob stands for."""
    _check_braces(text)
    found: List[str] = []
    left = [(text, 0)]
    while left:
        pattern, at = left.pop()
        while at < len(pattern) and pattern[at] != "{":
            at = _after_unit(pattern, at)
        if at >= len(pattern):
            if len(found) == ALTERNATIVES:
                raise ValueError(f"the braces stand for more than {ALTERNATIVES} patterns")
            found.append(pattern)
            continue
        bounds = _bounds(pattern, at)
        rest = pattern[bounds[-1] + 1 :]
        inside = [pattern[start + 1 : end] for start, end in zip(bounds, bounds[1:])]
        left += [(pattern[:at] + part + rest, at) for part in reversed(inside)]
    return found


def _bounds(text: str, opening: int) -> List[int]:
    """Return the position of the brace at ``opening``, of its commas and of its end."""
    found, depth, at = [opening], 0, opening
    while True:
        if text[at] == "{":
            depth += 1
        elif text[at] == "," and depth == 1:
            found.append(at)
        elif text[at] == "}":
            depth -= 1
            if depth == 0:
                return [*found, at]
        at = _after_unit(text, at)


def _after_unit(text: str, at: int) -> int:
    """Return the end of what begins at ``at``: an escaped character, a class, or one character."""
    if text[at] == "\\":
        return at + 2
    if text[at] == "[":
        return _class_end(text, at)
    return at + 1


def _check_braces(text: str) -> None:
    depth = at = 0
    while at < len(text):
        if text[at] == "\\" and text[at + 1 : at + 2] in ("", "/"):
            raise ValueError("a backslash escapes nothing: write \\\\ for the character")
        if text[at] == "{":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if depth < 0:
                raise ValueError("a brace is not open: { is missing")
        at = _after_unit(text, at)
    if depth:
        raise ValueError("a brace is not closed: } is missing")


# Classes


def _class_end(text: str, at: int) -> int:
    """Return the end of the class that begins at ``at``."""
    at += 1
    while at < len(text):
        if text[at] == "]":
            return at + 1
        if text[at] == "/":
            raise ValueError("a class cannot hold a slash")
        at += 2 if text[at] == "\\" else 1
    raise ValueError("a class is not closed: ] is missing")


def _check_class(inside: str) -> None:
    inside = inside[1:] if inside[:1] in ("!", "^") else inside
    if not inside:
        raise ValueError("a class is empty")
    if inside.startswith("[:"):
        raise ValueError("a named class is not known: write its characters")
    while inside:
        low, inside = _class_character(inside)
        high = low
        if len(inside) > 1 and inside[0] == "-":
            high, inside = _class_character(inside[1:])
        if high < low:
            raise ValueError(f'the range "{low}-{high}" in a class is empty')


def _class_character(text: str) -> Tuple[str, str]:
    if text[0] == "\\" and len(text) > 1:
        text = text[1:]
    return text[0], text[1:]


# Globs


def _check_alternative(text: str, anchored: bool) -> None:
    """Check a glob without braces."""
    parts = [part for part in text.split("/") if part not in ("", ".")]
    stars = 0
    for index, part in enumerate(parts):
        if part == "**":
            stars += index == 0 or parts[index - 1] != "**"
        else:
            _check_element(part)
    stars += bool(parts) and not anchored and parts[0] != "**"
    stars += text.endswith("/") and parts[-1:] != ["**"]
    if stars > DOUBLE_STARS:
        raise ValueError(f"it holds {stars} times **, at most {DOUBLE_STARS} can be matched in bounded time")


def _check_element(text: str) -> None:
    literal, least, wild, at = "", 0, False, 0
    while at < len(text):
        end = _after_unit(text, at)
        if text[at] == "[":
            _check_class(text[at + 1 : end - 1])
        if text[at] in "*?[":
            wild = True
            least += text[at] != "*"
        else:
            literal += text[end - 1]
        at = end
    if not wild:
        _check_name(literal)
    elif least + len(literal.encode()) > NAME_BYTES:
        raise ValueError(f"no name is as long as the {least + len(literal.encode())} bytes an element asks for")
