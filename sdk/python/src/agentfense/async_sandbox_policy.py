"""The rules of a sandbox, for an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional

from .types import AllowedHost, Explanation, PermissionRule

if TYPE_CHECKING:
    from ._arguments import PathLike
    from ._requests import Hosts, Timeout
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

    async def hosts(self) -> List[AllowedHost]:
        """Return the hosts that the sandbox may reach now."""
        sandbox = await self._client.get_sandbox(self._id)
        return sandbox.allow_net

    async def grant(self, hosts: Hosts, *, grant_for: Timeout = None) -> List[AllowedHost]:
        """Let the sandbox reach more hosts at once, and return all of them.

        Each is such as "api.example.com" or "@pypi". ``grant_for`` is how long the grants last, in
        seconds or as a timedelta; None means until they are revoked.
        """
        sandbox = await self._client.change_hosts(self._id, grant=hosts, grant_for=grant_for)
        return sandbox.allow_net

    async def revoke(self, hosts: Hosts) -> List[AllowedHost]:
        """No longer let the sandbox reach hosts, close the connections to them, and return the others."""
        sandbox = await self._client.change_hosts(self._id, revoke=hosts)
        return sandbox.allow_net

    async def explain(self, path: PathLike, *, mount: Optional[str] = None) -> Explanation:
        """Return the permission of a path, which need not exist, with the rule that decides.

        ``mount`` is the name of a mount in which the path is; None means the workspace.
        """
        return await self._client.explain_policy(self._id, path, mount=mount)
