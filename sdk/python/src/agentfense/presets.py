"""Presets: named lists of rules. Nothing here calls a server."""

from __future__ import annotations

import difflib
from dataclasses import replace
from enum import Enum
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Type, TypeVar

from . import _generated
from ._generated import PRESET_AGENT_SAFE as PRESET_AGENT_SAFE
from ._generated import PRESET_DEVELOPMENT as PRESET_DEVELOPMENT
from ._generated import PRESET_FULL_ACCESS as PRESET_FULL_ACCESS
from ._generated import PRESET_NOTHING as PRESET_NOTHING
from ._generated import PRESET_READ_ONLY as PRESET_READ_ONLY
from ._generated import PRESET_VIEW_ONLY as PRESET_VIEW_ONLY
from .types import PatternType, Permission, PermissionRule, RedactFormat, RuleLike, RuleOrigin


def _rules(rules: Iterable[_generated.Rule]) -> List[PermissionRule]:
    return [PermissionRule(*rule) for rule in rules]


PRESETS: Dict[str, List[PermissionRule]] = {name: _rules(rules) for name, rules in _generated.PRESETS.items()}
"""The rules of each preset. ``register_preset`` adds one."""

FIRST_PRESETS: Dict[str, List[PermissionRule]] = {
    name: _rules(rules) for name, rules in _generated.FIRST_PRESETS.items()
}
"""The presets with the rules that they had in agentfense 0.3.0."""

_BUILT_IN = {name: [replace(rule) for rule in rules] for name, rules in {**PRESETS, **FIRST_PRESETS}.items()}


def _known() -> Dict[str, List[PermissionRule]]:
    return {**FIRST_PRESETS, **PRESETS}


def is_built_in(name: str) -> bool:
    """Return whether the command line has this preset too, with the same rules."""
    return name in _BUILT_IN and _known().get(name) == _BUILT_IN[name]


def built_in_names() -> List[str]:
    """Return the names of the command line's presets, sorted, the current ones before the first ones."""
    return sorted(_BUILT_IN, key=lambda name: (name in FIRST_PRESETS, name))


def built_in(name: str) -> List[PermissionRule]:
    """Return copies of the rules of a preset of the command line."""
    return [replace(rule) for rule in _BUILT_IN[name]]


def as_rule(item: RuleLike) -> PermissionRule:
    """Return a copy of a rule, or a rule from a mapping. Raises ValueError."""
    if isinstance(item, PermissionRule):
        return _checked(**{key: getattr(item, key) for key in _KEYS})
    if not isinstance(item, Mapping):
        raise ValueError(f"rule: want a PermissionRule or a mapping, not {type(item).__name__}")
    for key in item:
        if key not in _KEYS:
            raise ValueError(f"rule {dict(item)!r}: unknown key {key!r}: it is one of {', '.join(_KEYS)}")
    return _checked(**item)


_KEYS = ("pattern", "permission", "type", "priority", "origin", "strict", "redact", "substitute", "keep", "keep_keys")


def _checked(
    pattern: Any = None,
    permission: Any = "read",
    type: Any = "glob",
    priority: Any = 0,
    origin: Any = "rule",
    strict: Any = False,
    redact: Any = None,
    substitute: Any = "",
    keep: Any = False,
    keep_keys: Any = (),
) -> PermissionRule:
    if not isinstance(pattern, str) or not pattern:
        raise ValueError(f"rule: want a pattern that is a non-empty string, not {pattern!r}")
    try:
        pattern.encode()
        rule = PermissionRule(
            pattern,
            _word(Permission, permission),
            _word(PatternType, type),
            int(priority),
            _word(RuleOrigin, origin),
            bool(strict),
            None if redact is None else _word(RedactFormat, redact),
            str(substitute),
            bool(keep),
            _texts(keep_keys),
        )
    except (ValueError, TypeError, OverflowError) as cause:
        raise ValueError(f"rule {pattern!r}: {cause}") from None
    if rule.strict and rule.permission is not Permission.NONE:
        raise ValueError(f"rule {pattern!r}: strict goes with permission none, not {rule.permission.value}")
    if (rule.redact or rule.substitute) and rule.permission is not Permission.READ:
        raise ValueError(
            f"rule {pattern!r}: redact and substitute go with permission read, not {rule.permission.value}"
        )
    if rule.redact and rule.substitute:
        raise ValueError(f"rule {pattern!r}: redact and substitute exclude each other: keep one of them")
    if rule.keep and rule.permission is not Permission.WRITE:
        raise ValueError(f"rule {pattern!r}: keep goes with permission write, not {rule.permission.value}")
    if rule.keep_keys and not rule.keep:
        raise ValueError(f"rule {pattern!r}: keep_keys goes with keep")
    if not -(2**31) <= rule.priority < 2**31:
        raise ValueError(f"rule {pattern!r}: priority {rule.priority} is not between {-(2**31)} and {2**31 - 1}")
    return rule


def _texts(values: Any) -> List[str]:
    if isinstance(values, str) or not all(isinstance(value, str) for value in values):
        raise ValueError("keep_keys: want a list of strings")
    return list(values)


_Word = TypeVar("_Word", bound=Enum)


def _word(kind: Type[_Word], value: Any) -> _Word:
    try:
        return kind(value)
    except ValueError as cause:
        raise ValueError(f"{cause}: it is one of {', '.join(word.value for word in kind)}") from None


def as_rules(items: Optional[Sequence[RuleLike]], name: str = "rules") -> List[PermissionRule]:
    """Return copies of rules, or rules from mappings. Raises ValueError."""
    if items is not None and (isinstance(items, (str, bytes, Mapping)) or not hasattr(items, "__iter__")):
        raise ValueError(f"{name}: want a list of rules, not {type(items).__name__}")
    return [as_rule(item) for item in items or ()]


def get_preset(name: str) -> List[PermissionRule]:
    """Return copies of the rules of a preset. Raises ValueError for an unknown name."""
    known = _known()
    if not isinstance(name, str) or name not in known:
        near = difflib.get_close_matches(str(name), known, 1)
        hint = f": did you mean {near[0]!r}?" if near else f": it is one of {', '.join(list_presets())}"
        raise ValueError(f"unknown preset {name!r}{hint}")
    return [replace(rule) for rule in known[name]]


def get_preset_dicts(name: str) -> List[Dict[str, Any]]:
    """Return the rules of a preset as dictionaries. Raises ValueError for an unknown name."""
    return [rule.to_dict() for rule in get_preset(name)]


def list_presets() -> List[str]:
    """Return the names of all presets except FIRST_PRESETS, sorted."""
    return sorted(PRESETS)


def extend_preset(
    base: str, additions: Optional[Sequence[RuleLike]] = None, overrides: Optional[Sequence[RuleLike]] = None
) -> List[PermissionRule]:
    """Return the rules of a preset, followed by more rules.

    ``additions`` are added unchanged. ``overrides`` win against all other rules: the priority of an
    override that is not higher than all others becomes the highest of them plus 100. Raises
    ValueError for an unknown preset.
    """
    rules = get_preset(base) + as_rules(additions)
    highest = max((rule.priority for rule in rules), default=0)
    for rule in as_rules(overrides):
        if rule.priority <= highest:
            rule.priority = highest + 100
        rules.append(rule)
    return rules


def register_preset(name: str, rules: Sequence[RuleLike]) -> None:
    """Add a preset. Raises ValueError if the name exists."""
    if name in _known():
        raise ValueError(f"preset {name!r}: already exists")
    PRESETS[name] = as_rules(rules)
