"""The enumerations have the words of the API."""

from __future__ import annotations

from enum import Enum
from typing import Any, Set, Type

import pytest

from agentfense import _wire, words
from agentfense._gen.sandbox.v1 import common_pb2, sandbox_pb2


@pytest.mark.parametrize(
    ("kind", "enum", "prefix", "more"),
    [
        (words.Permission, common_pb2.Permission, "PERMISSION_", set()),
        (words.PatternType, common_pb2.PatternType, "PATTERN_TYPE_", {"auto"}),
        (words.Risk, sandbox_pb2.Risk, "RISK_", {"none"}),
        (words.RuntimeType, sandbox_pb2.RuntimeType, "RUNTIME_TYPE_", set()),
        (words.SyncMode, sandbox_pb2.SyncMode, "SYNC_MODE_", set()),
        (words.ChangeStatus, sandbox_pb2.ChangeStatus, "CHANGE_STATUS_", set()),
        (words.ConflictKind, sandbox_pb2.ConflictKind, "CONFLICT_KIND_", set()),
        (words.ConflictResolution, sandbox_pb2.ConflictResolution, "CONFLICT_RESOLUTION_", set()),
        (words.ChangeKind, sandbox_pb2.ChangeKind, "CHANGE_KIND_", {"lost"}),
        (words.Outcome, sandbox_pb2.Outcome, "OUTCOME_", set()),
    ],
)
def test_the_words_are_those_of_the_api(kind: Type[Enum], enum: Any, prefix: str, more: Set[str]) -> None:
    api = {_wire.named(enum, prefix, number, "") for number in enum.values()} - {""}
    assert {word.value for word in kind} == api | more
