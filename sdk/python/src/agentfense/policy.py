"""Policy: rules as one value, which can be extended, and kept in the policy file of the command line.

Nothing here talks to a server.
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
from .types import PatternType, Permission, PermissionRule, RuleLike, RuleOrigin

GRANT_PRIORITY = 20
"""Of ``view``, ``read`` and ``write`` of a Policy: above what the presets grant, below what they hide."""
HIDE_PRIORITY = 100
"""Of ``hide`` of a Policy: that of the presets' secrets, above all that is granted without a priority of its own."""

_Frozen = Tuple[str, Permission, PatternType, int, bool]


@dataclass(frozen=True, init=False, repr=False)
class Policy:
    """The rules of a sandbox: a preset's, if one is named, and more. It never changes: each method returns another.

    A pattern is read as in a policy file unless ``type`` is given: ``*.pem`` and ``secrets/`` match at any depth,
    ``/src/**`` from the root. The order of the rules has no meaning: the highest priority decides, then the kind of the
    pattern and the longer beginning.

    Two policies are equal if they have the same preset and the same other rules. PolicyError, which is a ValueError
    too, for an unknown preset, a malformed rule and a malformed pattern.
    """

    preset: Optional[str]
    """The preset whose rules come first. Of one that was registered here alone, the rules are taken over instead."""
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
        """Copies of all rules: the preset's, and then the others. This is what a sandbox is given."""
        return ([] if self.preset is None else built_in(self.preset)) + self.own_rules

    @property
    def own_rules(self) -> List[PermissionRule]:
        """Copies of the rules beside the preset's."""
        return [PermissionRule(*rule[:4], strict=rule[4]) for rule in self._own]

    def hide(
        self,
        *patterns: str,
        priority: int = HIDE_PRIORITY,
        type: PatternType = PatternType.AUTO,
        strict: bool = False,
    ) -> Policy:
        """Let paths not exist; with ``strict``, nothing can be made there either."""
        return self._with(Permission.NONE, patterns, priority, type, strict)

    def view(self, *patterns: str, priority: int = GRANT_PRIORITY, type: PatternType = PatternType.AUTO) -> Policy:
        """Let paths be listed, their content refused."""
        return self._with(Permission.VIEW, patterns, priority, type)

    def read(self, *patterns: str, priority: int = GRANT_PRIORITY, type: PatternType = PatternType.AUTO) -> Policy:
        """Let paths be read, and not changed."""
        return self._with(Permission.READ, patterns, priority, type)

    def write(self, *patterns: str, priority: int = GRANT_PRIORITY, type: PatternType = PatternType.AUTO) -> Policy:
        """Let paths be changed."""
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
        """Add rules as they are; the type of one that has none is GLOB."""
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
        """Return the text of a policy file, which ``from_yaml`` and the command line read as this policy."""
        return _policyfile.write(self.preset, self.own_rules)

    def save(self, path: Union[str, os.PathLike[str]]) -> None:
        """Write a policy file. OSError where that cannot be done."""
        with open(path, "w", encoding="utf-8", newline="\n") as file:
            file.write(self.to_yaml())

    @classmethod
    def from_yaml(cls, text: str, name: str = "policy.yaml") -> Policy:
        """Return what the text of a policy file says.

        It is as strict as the command line: PolicyError, with ``name``, line and nearest valid word, for whatever is
        not understood.
        """
        preset, rules = _policyfile.read(text, name, built_in_names())
        return cls._made(preset, tuple(_frozen(rule) for rule in rules))

    @classmethod
    def load(cls, path: Union[str, os.PathLike[str]]) -> Policy:
        """Read a policy file. PolicyError also where it cannot be read, and for a FIFO or a device."""
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
        raise PolicyError(f"rule {rule.pattern!r}: a policy cannot hold what a flag of the command line says")
    return rule.pattern, rule.permission, rule.type, rule.priority, rule.strict


PolicyLike = Union[Policy, str, "os.PathLike[str]"]
"""A Policy, or the path of its file."""


class _Unsaid(str):
    """A default, told from the same word that was given."""


NO_RULES = "no rules: give permissions, preset or policy; permissions=[] hides everything"

DEFAULT_PRESET = _Unsaid(_generated.DEFAULT_PRESET)


def rules_of(
    policy: Optional[PolicyLike], preset: Optional[str], permissions: Optional[Sequence[RuleLike]]
) -> List[PermissionRule]:
    """Return the rules that are asked for: a policy's, or else a preset's and then ``permissions``.

    ValueError for an unknown preset and a malformed rule; of a malformed pattern it is a PolicyError.
    """
    if isinstance(permissions, Policy):
        raise ValueError("permissions are rules: give a Policy as policy=")
    if policy is None and permissions is None and preset is None:
        raise ValueError(NO_RULES)
    if policy is None:
        own = as_rules(permissions, "permissions")
        for rule in own:
            _check(rule)  # here it is the caller's rule; the server would count the preset's too
        return ([] if preset is None else get_preset(preset)) + own
    if permissions is not None or not (preset is None or isinstance(preset, _Unsaid)):
        raise ValueError("policy stands in place of preset and permissions: give one or the other")
    return (policy if isinstance(policy, Policy) else Policy.load(policy)).rules
