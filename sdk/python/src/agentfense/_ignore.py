"""Matching of .gitignore patterns, identical to git's in every corner case, in bounded time."""

from __future__ import annotations

import os
import re
import string
from functools import lru_cache
from typing import Iterable, List, Optional, Set, Tuple

_SLASH = ord("/")

_SPECIAL = re.compile(rb"[*?\[\\]")

_STAR = 1
"""The state remains active at each byte that is not a slash."""
_DEEP = 2
"""The state remains active at each byte."""
_DIRECTORIES = 4
"""The state becomes active again after each later slash."""
_FIRST = 8
_LAST = 16
_LAST_OF_DIRECTORY = 32
_NEGATED = 64

_CLASSES = {
    b"alnum": string.ascii_letters + string.digits,
    b"alpha": string.ascii_letters,
    b"blank": " \t",
    b"cntrl": "".join(map(chr, range(32))) + "\x7f",
    b"digit": string.digits,
    b"graph": string.ascii_letters + string.digits + string.punctuation,
    b"lower": string.ascii_lowercase,
    b"print": string.ascii_letters + string.digits + string.punctuation + " ",
    b"punct": string.punctuation,
    b"space": " \t\n\r",  # as git has it
    b"upper": string.ascii_uppercase,
    b"xdigit": string.hexdigits,
}


class Matcher:
    """A list of patterns, compiled to one automaton whose states are the bits of a number.

    Each pattern has a state before each of its elements and one at its end. All patterns advance
    together with each byte of a path. The number of steps depends only on the path's length.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        flags, taken = bytearray(1), [_column(b"")]
        for line in lines:
            pattern = _parse_line(line.encode("utf-8", "surrogateescape"))
            if pattern is not None:
                flags += pattern[0]
                taken += pattern[1]
        table = b"".join(taken)
        self._takes = [int(table[byte::256][::-1], 2) for byte in range(256)]
        self._stays = _mask(flags, _STAR | _DEEP)
        self._deep = _mask(flags, _DEEP)
        self._directories = _mask(flags, _DIRECTORIES)
        self._first = _mask(flags, _FIRST)
        self._last = _mask(flags, _LAST)
        self._last_of_directory = _mask(flags, _LAST | _LAST_OF_DIRECTORY)
        self._negated = _mask(flags, _NEGATED)

    def excludes(self, path: str, is_dir: bool) -> bool:
        """Return whether a path is ignored, if no directory above it is. The last pattern that matches decides."""
        now = self._first
        again = now & self._directories
        for byte in os.fsencode(path):
            moved = (now & self._takes[byte]) << 1
            now = moved | now & self._deep | again if byte == _SLASH else moved | now & self._stays
            again |= now & self._directories
        matched = now & (self._last_of_directory if is_dir else self._last)
        return bool(matched) and not self._negated >> (matched.bit_length() - 1) & 1


def _mask(flags: bytearray, wanted: int) -> int:
    return int("".join("1" if flag & wanted else "0" for flag in reversed(flags)), 2)


@lru_cache(maxsize=1024)
def _column(members: bytes) -> bytes:
    """Return a digit for each byte: 1 if it is a member."""
    return bytes(b"01"[byte in members] for byte in range(256))


# Patterns


def _parse_line(line: bytes) -> Optional[Tuple[bytearray, List[bytes]]]:
    """Return the flags of a pattern's states and the bytes that each accepts; None if it matches nothing."""
    if line.startswith(b"#"):
        return None
    text = _trim_spaces(line.split(b"\0")[0])
    negated = text.startswith(b"!")
    text = text[negated:]
    of_directory = text.endswith(b"/")
    text = text[: len(text) - of_directory]
    anchored = b"/" in text
    text = text[text.startswith(b"/") :]
    states = _states(text, anchored) if text else None
    if states is not None:
        flags = states[0]
        flags[0] |= _FIRST if anchored else _FIRST | _DIRECTORIES
        flags[-1] |= (_LAST_OF_DIRECTORY if of_directory else _LAST) | (_NEGATED if negated else 0)
    return states


def _trim_spaces(line: bytes) -> bytes:
    """Remove the trailing spaces that no backslash escapes. A line that ends in a lone backslash is unchanged."""
    end = at = 0  # the former behind the last byte that is to stay
    while at < len(line):
        escape = line[at] == ord("\\")
        if escape and at + 1 == len(line):
            return line
        at += 1 + escape
        if line[at - 1] != ord(" ") or escape:
            end = at
    return line[:end]


def _states(text: bytes, anchored: bool) -> Optional[Tuple[bytearray, List[bytes]]]:
    flags, taken = bytearray(1), []
    special = _SPECIAL.search(text)
    wild = special.start() if special else len(text)
    at = 0
    while at < len(text):
        if text[at] == ord("*"):
            flag, at = _stars(text, at, anchored, wild)
            flags[-1] |= flag
            continue
        members: Optional[bytes]
        members, at = _element(text, at)
        if members is None:
            return None
        taken.append(_column(members))
        flags.append(0)
    return flags, [*taken, _column(b"")]


def _stars(text: bytes, at: int, anchored: bool, wild: int) -> Tuple[int, int]:
    """Return the flag for the stars at ``at``, and the position after them.

    In an anchored pattern, ``**`` differs from ``*`` if it is alone between slashes. As in git, the
    first special character, at ``wild``, counts as if it followed a slash.
    """
    end = len(text) - len(text[at:].lstrip(b"*"))
    alone = (at == wild or text[at - 1] == _SLASH) and (end == len(text) or text.startswith((b"/", b"\\/"), end))
    if not anchored or end - at == 1 or not alone:
        return _STAR, end
    if text.startswith(b"/", end):
        return _DIRECTORIES, end + 1
    return _DEEP, end


_ANY = bytes(byte for byte in range(256) if byte != _SLASH)
"""The bytes that ``?`` accepts: one byte, not one character."""


def _element(text: bytes, at: int) -> Tuple[Optional[bytes], int]:
    """Return the bytes that the element at ``at`` accepts (None if it is malformed), and the position after it."""
    if text[at] == ord("?"):
        return _ANY, at + 1
    if text[at] == ord("["):
        return _set(text, at + 1)
    return _byte(text, at)


def _byte(text: bytes, at: int) -> Tuple[Optional[bytes], int]:
    """Read a byte, or the byte after a backslash."""
    at += text.startswith(b"\\", at)
    return text[at : at + 1] or None, at + 1


# Sets


_CLASS = re.compile(rb"\[:([^\]]*):\]")


def _set(text: bytes, at: int) -> Tuple[Optional[bytes], int]:
    """Read a set after its ``[``. No set contains a slash."""
    negated = text.startswith((b"!", b"^"), at)
    at += negated
    first, low = at, -1  # low: what a - would make the beginning of a range, -1 for nothing
    members: Set[int] = set()
    while at == first or not text.startswith(b"]", at):
        if name := _CLASS.match(text, at):
            if name[1] not in _CLASSES:
                return None, at
            members.update(_CLASSES[name[1]].encode())
            low, at = -1, name.end()
            continue
        is_range = low >= 0 and text.startswith(b"-", at) and not text.startswith(b"]", at + 1) and at + 1 < len(text)
        byte, at = _byte(text, at + is_range)
        if byte is None:
            return None, at
        members.update(range(low, byte[0] + 1) if is_range else byte)
        low = -1 if is_range else byte[0]
    return bytes(byte for byte in _ANY if (byte in members) is not negated), at + 1
