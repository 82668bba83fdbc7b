# Made from async_sandbox_policy.py by make gen: do not edit.

"""The rules of a sandbox, for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, List

from .types import Explanation, PermissionRule

if TYPE_CHECKING:
    from ._arguments import PathLike
    from .client import SandboxClient


class SandboxPolicy:
    """The rules of a sandbox; ``set_policy`` of the sandbox replaces them."""

    def __init__(self, client: SandboxClient, sandbox_id: str) -> None:
        self._client = client
        self._id = sandbox_id

    def rules(self) -> List[PermissionRule]:
        """Return the rules, as the server has them now."""
        sandbox = self._client.get_sandbox(self._id)
        return sandbox.permissions

    def explain(self, path: PathLike) -> Explanation:
        """Return the permission of a path, which need not exist, with the rule that decides."""
        return self._client.explain_policy(self._id, path)
