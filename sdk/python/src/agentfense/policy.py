"""Policy: a set of rules as one value, which can be extended, and stored as a policy file of the command line.

Nothing here calls a server.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import List, Optional, Sequence, Tuple, Union

from . import _generated, _policyfile
from ._arguments import path_of
from ._named import read_named
from ._patterns import check_pattern
from .exceptions import PolicyError
from .presets import as_rules, built_in, built_in_names, get_preset, is_built_in
from .types import PatternType, Permission, PermissionRule, RedactFormat, RuleLike, RuleOrigin

GRANT_PRIORITY = 20
"""The priority of ``Policy.view``, ``read`` and ``write``: above the presets' grants, below what presets hide."""
HIDE_PRIORITY = 100
"""The priority of ``Policy.hide``: that of the presets' secrets, above all grants without a priority."""

_Frozen = Tuple[str, Permission, PatternType, int, bool, Optional[RedactFormat], str]


@dataclass(frozen=True, init=False, repr=False)
class Policy:
    """The rules of a sandbox: those of a preset, if one is named, and more.

    A Policy is immutable: each method returns a new one. Patterns are read as in a policy file
    unless ``type`` is given: ``*.pem`` and ``secrets/`` match at any depth, ``/src/**`` from the
    root. The order of the rules has no meaning: the highest priority decides, then the type of the
    pattern and its longer literal beginning.

    Two policies are equal if they have the same preset and the same other rules. An unknown preset,
    a malformed rule and a malformed pattern raise PolicyError, which is also a ValueError.
    """

    preset: Optional[str]
    """The preset whose rules come first. A preset of ``register_preset`` is replaced by its rules."""
    _own: Tuple[_Frozen, ...]

    def __init__(self, preset: Optional[str] = None, rules: Sequence[RuleLike] = ()) -> None:
        try:
            before = [] if preset is None else get_preset(preset)
            own = as_rules(rules)
        except ValueError as cause:
            raise PolicyError(str(cause)) from None
        if preset is not None and not is_built_in(preset):
            preset, own = None, before + own
        object.__setattr__(self, "preset", preset)
        object.__setattr__(self, "_own", tuple(_frozen(rule) for rule in own))

    @classmethod
    def _made(cls, preset: Optional[str], own: Tuple[_Frozen, ...]) -> Policy:
        policy = cls()
        object.__setattr__(policy, "preset", preset)
        object.__setattr__(policy, "_own", own)
        return policy

    @property
    def rules(self) -> List[PermissionRule]:
        """Copies of all rules: those of the preset, followed by the others."""
        return ([] if self.preset is None else built_in(self.preset)) + self.own_rules

    @property
    def own_rules(self) -> List[PermissionRule]:
        """Copies of the rules that are not the preset's."""
        return [PermissionRule(*rule[:4], strict=rule[4], redact=rule[5], substitute=rule[6]) for rule in self._own]

    def hide(
        self,
        *patterns: str,
        priority: int = HIDE_PRIORITY,
        type: PatternType = PatternType.AUTO,
        strict: bool = False,
    ) -> Policy:
        """Hide paths: they do not exist for commands. With ``strict``, commands cannot create them either."""
        return self._with(Permission.NONE, patterns, priority, type, strict)

    def view(self, *patterns: str, priority: int = GRANT_PRIORITY, type: PatternType = PatternType.AUTO) -> Policy:
        """Let commands list paths, but not read them."""
        return self._with(Permission.VIEW, patterns, priority, type)

    def read(self, *patterns: str, priority: int = GRANT_PRIORITY, type: PatternType = PatternType.AUTO) -> Policy:
        """Let commands read paths, but not change them."""
        return self._with(Permission.READ, patterns, priority, type)

    def write(self, *patterns: str, priority: int = GRANT_PRIORITY, type: PatternType = PatternType.AUTO) -> Policy:
        """Let commands change paths."""
        return self._with(Permission.WRITE, patterns, priority, type)

    def _with(
        self,
        permission: Permission,
        patterns: Sequence[str],
        priority: int,
        kind: PatternType,
        strict: bool = False,
    ) -> Policy:
        given = [
            {"pattern": pattern, "permission": permission, "type": kind, "priority": priority, "strict": strict}
            for pattern in patterns
        ]
        return self.rule(*given)

    def rule(self, *rules: RuleLike) -> Policy:
        """Add rules unchanged. A rule without a type is a GLOB."""
        return self._made(self.preset, self._own + Policy(None, rules)._own)

    def extend(self, other: Policy) -> Policy:
        """Add the rules of another policy."""
        if self.preset is None and not self._own:
            return other
        more = other.own_rules if other.preset == self.preset else other.rules
        return self.rule(*more)

    def __repr__(self) -> str:
        return f"Policy({self.preset!r}, {self.own_rules!r})"

    # The file

    def to_yaml(self) -> str:
        """Return the text of a policy file, for ``from_yaml`` and the command line."""
        return _policyfile.write(self.preset, self.own_rules)

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Write a policy file. Raises OSError."""
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(self.to_yaml())

    @classmethod
    def from_yaml(cls, text: str, name: str = "policy.yaml") -> Policy:
        """Parse the text of a policy file, as strictly as the command line.

        For anything unknown, PolicyError has ``name``, the line and the most similar valid word.
        """
        preset, rules = _policyfile.read(text, name, built_in_names())
        return cls._made(preset, tuple(_frozen(rule) for rule in rules))

    @classmethod
    def load(cls, path: Union[str, os.PathLike[str]]) -> Policy:
        """Read a policy file. Raises PolicyError if it is malformed, cannot be read, or is not a regular file."""
        name = path_of(path, "policy")
        try:
            content = read_named(path, _policyfile.MOST_BYTES)
        except OSError as error:
            raise PolicyError(f"{name}: {error.strerror}", name) from None
        except ValueError as error:
            raise PolicyError(f"{name}: {error}", name) from None
        return cls.from_yaml(_policyfile.decode(content, name), name)


def _check(rule: PermissionRule) -> None:
    try:
        check_pattern(rule.pattern, rule.type)
    except ValueError as cause:
        raise PolicyError(f"rule {rule.pattern!r}: {cause}") from None


def _frozen(rule: PermissionRule) -> _Frozen:
    _check(rule)
    if rule.origin is not RuleOrigin.RULE:
        raise PolicyError(f"rule {rule.pattern!r}: a policy cannot have a rule from a flag of the command line")
    if rule.keep:
        raise PolicyError(f"rule {rule.pattern!r}: a policy keeps no state: give the rule to a mount")
    return rule.pattern, rule.permission, rule.type, rule.priority, rule.strict, rule.redact, rule.substitute


PolicyLike = Union[Policy, str, "os.PathLike[str]"]
"""A Policy, or the path of a policy file."""


class _Unsaid(str):
    """A default that differs from the same value given by a caller."""


NO_RULES = "no rules: give permissions, preset or policy; permissions=[] hides everything"

DEFAULT_PRESET = _Unsaid(_generated.DEFAULT_PRESET)


def rules_of(
    policy: Optional[PolicyLike], preset: Optional[str], permissions: Optional[Sequence[RuleLike]]
) -> List[PermissionRule]:
    """Return the rules: those of ``policy``, or else those of ``preset``, followed by ``permissions``.

    Raises ValueError for an unknown preset or a malformed rule, and PolicyError for a malformed
    pattern.
    """
    if isinstance(permissions, Policy):
        raise ValueError("permissions is a list of rules: pass a Policy as policy=")
    if policy is None and permissions is None and preset is None:
        raise ValueError(NO_RULES)
    if policy is None:
        own = as_rules(permissions, "permissions")
        for rule in own:
            _check(rule)  # for the number of the caller's rule; the server would count the preset's rules too
        return ([] if preset is None else get_preset(preset)) + own
    if permissions is not None or not (preset is None or isinstance(preset, _Unsaid)):
        raise ValueError("policy excludes preset and permissions: pass one or the other")
    return (policy if isinstance(policy, Policy) else Policy.load(policy)).rules
