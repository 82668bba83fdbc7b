"""Checks of arguments. The errors name the argument."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

PathLike = Union[str, "os.PathLike[str]"]


def path_of(path: PathLike, name: str = "path") -> str:
    """Return a path as a string. Raises TypeError for other types and bytes, ValueError for impossible names."""
    try:
        found: Any = os.fspath(path)
    except TypeError:
        found = path
    if not isinstance(found, str):
        raise TypeError(f"{name}: want a string or an os.PathLike of one, not {type(path).__name__}")
    try:
        found.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as cause:
        raise _no_text(name, cause, "which a file name cannot have") from None
    return found


def string_of(text: str, name: str) -> str:
    """Return a string. Raises TypeError for other types."""
    if not isinstance(text, str):
        raise TypeError(f"{name}: want a string, not {type(text).__name__}")
    return text


def text_of(text: str, name: str, hint: str = "") -> str:
    """Return a string that UTF-8 can encode. Raises TypeError for other types, and ValueError for a lone surrogate."""
    try:
        string_of(text, name).encode()
    except UnicodeEncodeError as cause:
        raise _no_text(name, cause, f"which UTF-8 cannot encode{hint}") from None
    return text


def id_of(value: str, name: str) -> str:
    """Return an id. Raises TypeError for other types, and says so of an object that has an id."""
    if not isinstance(value, str) and isinstance(getattr(value, "id", None), str):
        raise TypeError(f"{name}: want a string, not {type(value).__name__}: pass its id")
    return text_of(value, name)


def id_of_sandbox(sandbox: object, name: str) -> str:
    """Return the id of a sandbox, which is named by its id or is an object that has it."""
    found: object = getattr(sandbox, "id", sandbox)
    if not isinstance(found, str):
        raise TypeError(f"{name}: want a sandbox or its id, not {type(sandbox).__name__}")
    return text_of(found, name)


def bytes_of(data: Union[str, bytes], name: str) -> bytes:
    """Return bytes; a string in UTF-8. Raises TypeError for other types, ValueError for a lone surrogate."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if not isinstance(data, str):
        raise TypeError(f"{name}: want a string or bytes, not {type(data).__name__}")
    return text_of(data, name, ": pass bytes").encode()


def _no_text(name: str, cause: UnicodeEncodeError, why: str) -> ValueError:
    return ValueError(f"{name}: character {cause.start} is {cause.object[cause.start]!r}, {why}")


def words_of(words: Optional[Mapping[str, str]], name: str) -> Dict[str, str]:
    """Return a mapping of strings to strings as a dictionary. Raises TypeError for other types."""
    if words is not None and not isinstance(words, Mapping):
        raise TypeError(f"{name}: want a mapping of strings, not {type(words).__name__}")
    found = dict(words or {})
    for key, value in found.items():
        for word in (key, value):
            text_of(word, f"{name}: {key}")
    return found


def strings_of(strings: Optional[Sequence[str]], name: str) -> List[str]:
    """Return a list of strings. Raises TypeError for other types, and for a single string."""
    if isinstance(strings, (str, bytes)) or (strings is not None and not hasattr(strings, "__iter__")):
        raise TypeError(f"{name}: want a list of strings, not {type(strings).__name__}")
    return [string_of(text, f"{name}[{i}]") for i, text in enumerate(strings or ())]
