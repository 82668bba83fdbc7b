"""The rules of a sandbox, for an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, List

from .types import Explanation, PermissionRule

if TYPE_CHECKING:
    from ._arguments import PathLike
    from .async_client import AsyncSandboxClient


class AsyncSandboxPolicy:
    """The rules of a sandbox; ``set_policy`` of the sandbox replaces them."""

    def __init__(self, client: AsyncSandboxClient, sandbox_id: str) -> None:
        self._client = client
        self._id = sandbox_id

    async def rules(self) -> List[PermissionRule]:
        """Return the rules, as the server has them now."""
        sandbox = await self._client.get_sandbox(self._id)
        return sandbox.permissions

    async def explain(self, path: PathLike) -> Explanation:
        """Return the permission of a path, which need not exist, with the rule that decides."""
        return await self._client.explain_policy(self._id, path)
