"""What is done about a server of another version: nothing that it does not know is asked of it in silence."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any, Iterable, Optional, Tuple

import grpc

from .exceptions import VersionMismatchError

LEVEL = 1
"""The level of the API that this package speaks: what internal/lib/apiversion has."""

GREET = 20.0
"""Seconds within which a server gives its first answer."""

HEALTH = "/grpc.health.v1.Health/Check"
"""Asked once for each connection: it needs no token, and the head of its answer has the levels."""

_HEADER = "agentfense-api"
_RANGE = re.compile(r"([1-9]\d*)-([1-9]\d*)", re.ASCII)
_ADDITIONS = 100
"""The first number of the fields and values that agentfense has added to what other servers know too."""

# They say nothing of the server's version.
_NO_ANSWER = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)


class Versions:
    """What a server has said of its version; a request or an answer that does not fit is a VersionMismatchError."""

    def __init__(self) -> None:
        self.known = False
        self._least = self._level = 0

    def hear(self, endpoint: str, head: Optional[Iterable[Tuple[str, Any]]], code: Any) -> bool:
        """Take the answer to HEALTH, and return whether there was one. A server without the header is another's."""
        # Not a dictionary of it: grpcio's metadata of event loops was no mapping until 1.60.
        said = next((value for name, value in head or () if name == _HEADER), None)
        if said is None:
            self.known = code not in _NO_ANSWER
            return self.known
        match = _RANGE.fullmatch(str(said))
        if match is None:
            raise VersionMismatchError(
                f"the server at {endpoint} speaks level {said!r} of the API, of which this package knows nothing: "
                "upgrade this package"
            )
        self._least, self._level = int(match[1]), int(match[2])
        self.known = True
        return True

    def check(self, endpoint: str) -> None:
        """Refuse a server that has given up what this package needs."""
        if self._least > LEVEL:
            raise self.mismatch("connect", endpoint, f"it speaks levels {self._least} to {self._level} of the API")

    def fit(self, operation: str, endpoint: str, request: Any) -> Any:
        """Return a request, one message or an iterator of them, unless the server would read it in part."""
        if self._level:
            return request  # it refuses what it does not know
        if hasattr(request, "ListFields"):
            first, whole = request, request
        else:
            rest = iter(request)
            first = next(rest, None)
            whole = rest if first is None else chain([first], rest)
        added = first is not None and _addition(first)
        if added:
            raise self.mismatch(operation, endpoint, f"{added}: it would ignore that")
        return whole

    def mismatch(self, operation: str, endpoint: str, why: str) -> VersionMismatchError:
        """Return the error that says which of the two is to be upgraded."""
        if self._level > LEVEL:
            which, advice = "newer", "upgrade this package"
        else:
            which, advice = "older", "upgrade agentfense there, and restart the server"
        return VersionMismatchError(
            f"{operation}: the server at {endpoint} is {which} than this package, whose level of the API is {LEVEL}: "
            f"{why}; {advice}"
        )


def _addition(message: Any) -> str:
    """Name the first field or value of a message that only agentfense knows."""
    for field, value in message.ListFields():
        if field.number >= _ADDITIONS or (field.enum_type and isinstance(value, int) and value >= _ADDITIONS):
            return str(field.name)
        if field.message_type and not field.message_type.GetOptions().map_entry:
            for inner in [value] if hasattr(value, "ListFields") else value:
                if found := _addition(inner):
                    return found
    return ""
