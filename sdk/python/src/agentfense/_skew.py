"""Servers of other versions. The package asks no server for what the server would silently ignore."""

from __future__ import annotations

import re
from itertools import chain
from typing import Any, Iterable, Optional, Tuple

import grpc

from .exceptions import VersionMismatchError

LEVEL = 1
"""The level of the API that this package uses, as in internal/lib/apiversion."""

GREET = 20.0
"""Seconds within which a server gives its first answer."""

HEALTH = "/grpc.health.v1.Health/Check"
"""A call that each connection makes once. It needs no token, and its header has the server's levels."""

_HEADER = "agentfense-api"
_RANGE = re.compile(r"([1-9]\d*)-([1-9]\d*)", re.ASCII)
_ADDITIONS = 100
"""The number from which on fields and values are additions of agentfense to the original API."""

# Statuses that say nothing about the server's version.
_NO_ANSWER = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)


class Versions:
    """The versions of the API that a server has. A mismatch is a VersionMismatchError."""

    def __init__(self) -> None:
        self.known = False
        self._least = self._level = 0

    def hear(self, endpoint: str, head: Optional[Iterable[Tuple[str, Any]]], code: Any) -> bool:
        """Record the answer to HEALTH, and return whether there was one. Other servers send no such header."""
        # No dict(head): the metadata of grpc.aio was not a mapping before grpcio 1.60.
        said = next((value for name, value in head or () if name == _HEADER), None)
        if said is None:
            self.known = code not in _NO_ANSWER
            return self.known
        match = _RANGE.fullmatch(str(said))
        if match is None:
            raise VersionMismatchError(
                f"the server at {endpoint} speaks level {said!r} of the API, which this package does not know: "
                "upgrade this package"
            )
        self._least, self._level = int(match[1]), int(match[2])
        self.known = True
        return True

    def check(self, endpoint: str) -> None:
        """Raise VersionMismatchError if the server no longer has this package's level."""
        if self._least > LEVEL:
            raise self.mismatch("connect", endpoint, f"it speaks levels {self._least} to {self._level} of the API")

    def fit(self, operation: str, endpoint: str, request: Any) -> Any:
        """Return the request, a message or an iterator of messages.

        Raises VersionMismatchError if the server would ignore a part of it.
        """
        if self._level:
            return request  # the server rejects what it does not know
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
        """Return the error that says which side to upgrade."""
        if self._level > LEVEL:
            which, advice = "newer", "upgrade this package"
        else:
            which, advice = "older", "upgrade agentfense there, and restart the server"
        return VersionMismatchError(
            f"{operation}: the server at {endpoint} is {which} than this package, whose level of the API is {LEVEL}: "
            f"{why}; {advice}"
        )


def _addition(message: Any) -> str:
    """Return the name of the first field or value of a message that is an addition of agentfense, else ""."""
    for field, value in message.ListFields():
        if field.number >= _ADDITIONS or (field.enum_type and isinstance(value, int) and value >= _ADDITIONS):
            return str(field.name)
        if field.message_type and not field.message_type.GetOptions().map_entry:
            for inner in [value] if hasattr(value, "ListFields") else value:
                if found := _addition(inner):
                    return found
    return ""
