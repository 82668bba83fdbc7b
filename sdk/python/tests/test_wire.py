from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from agentfense import (
    InvalidConfigurationError,
    PatternType,
    Permission,
    PermissionRule,
    ResourceLimits,
    RuleOrigin,
    _wire,
)
from agentfense._gen.sandbox.v1 import sandbox_pb2


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/lib.py", "src/lib.py"),
        ("ä\n\\ x", "ä\n\\ x"),
        ("latin\udce4", "latin\\xe4"),
        ("\\xe4", "\\x5cxe4"),
        ("\\x5c", "\\x5cx5c"),
        ("\\x41\\xE4\\x4", "\\x41\\xE4\\x4"),
        ("\\\udcff", "\\\\xff"),
    ],
)
def test_names_are_matched_as_bytes(name: str, text: str) -> None:
    assert _wire.encode_path(name) == text
    assert _wire.decode_path(text) == name


@pytest.mark.parametrize("path", ["/workspace/a/b", "/a/b", "a/b", "//a/b"])
def test_paths_inside(path: str) -> None:
    assert _wire.inside_path(path) == "a/b"


def test_root_in_the_sandbox() -> None:
    assert {_wire.inside_path(path) for path in ("", "/", "/workspace", "/workspace/")} == {""}
    assert _wire.inside_path("/workspaces/x") == "workspaces/x"


def test_times_are_local_and_naive() -> None:
    now = datetime(2026, 1, 2, 3, 4, 5, 600000)
    assert _wire.time_of(_wire.stamp_of(now)) == now
    assert _wire.time_of(Timestamp()) is None
    assert _wire.time_of(Timestamp(nanos=5)) is None


def test_durations() -> None:
    assert _wire.seconds_of(timedelta(minutes=1)) == 60
    assert _wire.seconds_of(None) is None
    duration = _wire.duration_of(1.5)
    assert duration is not None and _wire.span_of(duration) == timedelta(seconds=1.5)
    for wrong in (0, -1, timedelta(0), float("nan"), float("inf")):
        with pytest.raises(ValueError, match="more than 0 seconds"):
            _wire.seconds_of(wrong)


def test_limits_of_zero_become_none() -> None:
    assert _wire.sandbox_of(sandbox_pb2.Sandbox()).resources is None
    message = sandbox_pb2.Sandbox(resources=sandbox_pb2.ResourceLimits(pids_limit=5))
    assert _wire.sandbox_of(message).resources == ResourceLimits(pids_limit=5)


def test_unknown_values_of_enumerations() -> None:
    """A newer server must not break us; what is unknown grants nothing."""
    message = sandbox_pb2.Sandbox(status=99, runtime=99)  # type: ignore[arg-type]
    rule = message.permissions.add(pattern="x")
    rule.permission, rule.type, rule.origin = 99, 99, 99  # type: ignore[assignment]
    got = _wire.sandbox_of(message)
    assert (got.status.value, got.runtime.value) == ("error", "bwrap")
    assert got.permissions[0].to_dict() == {
        "pattern": "x",
        "permission": "none",
        "type": "glob",
        "priority": 0,
        "strict": True,
    }


def test_rules_come_back_as_they_were() -> None:
    rules = [
        PermissionRule("x", permission, kind, -5, origin)
        for permission in Permission
        for kind in PatternType
        for origin in RuleOrigin
    ]
    assert [_wire.rule_of(message) for message in _wire.wire_rules(rules)] == rules
    assert [_wire.rule_of(message) for message in _wire.wire_rules([rule.to_dict() for rule in rules])] == rules


def test_a_policy_error_is_also_a_value_error() -> None:
    for kind in (ValueError, InvalidConfigurationError):
        with pytest.raises(kind, match="'rad' is not a valid Permission"):
            _wire.wire_rules([{"pattern": "x", "permission": "rad"}])


@pytest.mark.parametrize("resources", [{"memory": 1}, {"memory_bytes": "much"}, {"pids_limit": 2**70}])
def test_invalid_resources(resources: object) -> None:
    with pytest.raises(InvalidConfigurationError, match="resources: "):
        _wire.wire_resources(resources)  # type: ignore[arg-type]


def test_invalid_runtime() -> None:
    with pytest.raises(InvalidConfigurationError, match="want bwrap or docker"):
        _wire.wire_runtime("runc")  # type: ignore[arg-type]
