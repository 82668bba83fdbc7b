"""Checks of what callers give. The errors name the argument."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

PathLike = Union[str, "os.PathLike[str]"]


def path_of(path: PathLike, name: str = "path") -> str:
    """Return a path as text. TypeError for what is none, bytes too; ValueError for what no name can hold."""
    try:
        found: Any = os.fspath(path)
    except TypeError:
        found = path
    if not isinstance(found, str):
        raise TypeError(f"{name}: want a string or an os.PathLike of one, not {type(path).__name__}")
    try:
        found.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as cause:
        raise _no_text(name, cause, "which no name of a file holds") from None
    return found


def string_of(text: str, name: str) -> str:
    """Return a string. TypeError for what is none."""
    if not isinstance(text, str):
        raise TypeError(f"{name}: want a string, not {type(text).__name__}")
    return text


def text_of(text: str, name: str, hint: str = "") -> str:
    """Return a text that UTF-8 can carry. TypeError for what is no string, ValueError for a lone surrogate."""
    try:
        string_of(text, name).encode()
    except UnicodeEncodeError as cause:
        raise _no_text(name, cause, f"which UTF-8 cannot carry{hint}") from None
    return text


def bytes_of(data: Union[str, bytes], name: str) -> bytes:
    """Return bytes, or a text in UTF-8. TypeError for what is neither, ValueError for a lone surrogate."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if not isinstance(data, str):
        raise TypeError(f"{name}: want a string or bytes, not {type(data).__name__}")
    return text_of(data, name, ": give bytes").encode()


def _no_text(name: str, cause: UnicodeEncodeError, why: str) -> ValueError:
    return ValueError(f"{name}: character {cause.start} is {cause.object[cause.start]!r}, {why}")


def words_of(words: Optional[Mapping[str, str]], name: str) -> Dict[str, str]:
    """Return a mapping of strings. TypeError unless it is one."""
    if words is not None and not isinstance(words, Mapping):
        raise TypeError(f"{name}: want a mapping of strings, not {type(words).__name__}")
    found = dict(words or {})
    for key, value in found.items():
        for word in (key, value):
            text_of(word, f"{name}: {key}")
    return found


def strings_of(strings: Optional[Sequence[str]], name: str) -> List[str]:
    """Return a list of strings. TypeError unless it is one: a string alone would be taken letter by letter."""
    if isinstance(strings, (str, bytes)) or (strings is not None and not hasattr(strings, "__iter__")):
        raise TypeError(f"{name}: want a list of strings, not {type(strings).__name__}")
    return [string_of(text, f"{name}[{i}]") for i, text in enumerate(strings or ())]
