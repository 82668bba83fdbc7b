# Made from async_sandbox_policy.py by make gen: do not edit.

"""The policy of a sandbox: what it may do, and why, for threads."""

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
        """Ask the server which rules hold now."""
        sandbox = self._client.get_sandbox(self._id)
        return sandbox.permissions

    def explain(self, path: PathLike) -> Explanation:
        """Say what a path, which need not exist, is to the sandbox, and by which rule."""
        return self._client.explain_policy(self._id, path)
