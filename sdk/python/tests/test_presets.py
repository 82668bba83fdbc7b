from __future__ import annotations

from typing import Iterator

import pytest

from agentfense import PermissionRule, _generated, presets
from agentfense.types import PatternType, Permission, ResourceLimits

FIRST_SECRETS = ["**/.env*", "**/secrets/**", "**/*.key", "**/*.pem"]
HIDDEN = [(p, "none", 100) for p in FIRST_SECRETS]
FIRST = {
    "agent-safe@v1": [
        ("**/*", "read", 0),
        ("/output/**", "write", 10),
        ("/tmp/**", "write", 10),
        ("**/.git/**", "none", 50),
        *HIDDEN,
        ("**/credentials*", "none", 100),
    ],
    "read-only@v1": [("**/*", "read", 0)],
    "full-access@v1": [("**/*", "write", 0)],
    "view-only@v1": [("**/*", "view", 0)],
    "development@v1": [("**/*", "write", 0), *HIDDEN],
}


@pytest.fixture
def registered() -> Iterator[None]:
    before = dict(presets.PRESETS)
    yield
    presets.PRESETS.clear()
    presets.PRESETS.update(before)


def test_each_preset_has_the_rules_of_the_command_line() -> None:
    for generated, mine in ((_generated.PRESETS, presets.PRESETS), (_generated.FIRST_PRESETS, presets.FIRST_PRESETS)):
        assert sorted(generated) == sorted(mine)
        for name, want in generated.items():
            rules = presets.get_preset(name)
            assert [(r.pattern, r.permission, r.type, r.priority) for r in rules] == list(want)
            assert presets.get_preset_dicts(name) == [
                {"pattern": p, "permission": q.value, "type": kind.value, "priority": n} for p, q, kind, n in want
            ]


def test_the_rules_of_the_first_presets_are_as_published() -> None:
    assert sorted(presets.FIRST_PRESETS) == sorted(FIRST)
    for name, want in FIRST.items():
        assert [(r.pattern, r.permission.value, r.priority) for r in presets.get_preset(name)] == want


def test_the_constants() -> None:
    got = {presets.PRESET_AGENT_SAFE, presets.PRESET_READ_ONLY, presets.PRESET_FULL_ACCESS, presets.PRESET_NOTHING}
    assert sorted(got | {presets.PRESET_DEVELOPMENT, presets.PRESET_VIEW_ONLY}) == presets.list_presets()


def test_a_preset_cannot_be_changed_through_copies() -> None:
    presets.get_preset("read-only")[0].permission = Permission.WRITE
    assert presets.get_preset("read-only")[0].permission is Permission.READ


@pytest.mark.parametrize("call", [presets.get_preset, presets.get_preset_dicts, presets.extend_preset])
def test_an_unknown_preset_names_the_nearest(call: object) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match="unknown preset 'agent_safe': did you mean 'agent-safe'"):
        call("agent_safe")
    with pytest.raises(ValueError, match="unknown preset 'zzz': it is one of agent-safe"):
        call("zzz")


def test_overrides_win_and_additions_stay() -> None:
    rules = presets.extend_preset(
        "agent-safe",
        additions=[{"pattern": "/docs/**", "permission": "write", "priority": "7"}],
        overrides=[PermissionRule("/a", Permission.READ), {"pattern": "/b", "priority": 300}],
    )
    assert [(r.pattern, r.priority) for r in rules[-3:]] == [("/docs/**", 7), ("/a", 200), ("/b", 300)]


def test_register(registered: None) -> None:
    presets.register_preset("mine", [{"pattern": "/x", "permission": "view", "type": "file"}])
    assert presets.get_preset("mine") == [PermissionRule("/x", Permission.VIEW, PatternType.FILE)]
    for name in ("mine", "development@v1"):
        with pytest.raises(ValueError, match="already exists"):
            presets.register_preset(name, [])


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({}, "want a pattern that is a non-empty string"),
        ({"pattern": ""}, "want a pattern that is a non-empty string"),
        (
            {"pattern": "x", "permission": "rwx"},
            "'rwx' is not a valid Permission: it is one of none, view, read, write",
        ),
        (
            {"pattern": "x", "type": "regex"},
            "'regex' is not a valid PatternType: it is one of glob, directory, file, auto",
        ),
        ({"pattern": "x", "priority": "high"}, "invalid literal"),
        ({"pattern": "x", "permisson": "none"}, "unknown key 'permisson'"),
        ("**/*", "want a PermissionRule or a mapping"),
    ],
)
def test_a_malformed_rule_is_refused(rule: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        presets.as_rules([rule])  # type: ignore[list-item]


def test_resource_limits_of_and_to_plain_data() -> None:
    limits = ResourceLimits.from_dict({"memory_bytes": 1, "pids_limit": None})
    assert limits == ResourceLimits(memory_bytes=1)
    assert limits.to_dict() == {"memory_bytes": 1}
    with pytest.raises(ValueError, match="unknown resource limit 'memory'"):
        ResourceLimits.from_dict({"memory": 1})
