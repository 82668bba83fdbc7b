# Made from async_sandbox_policy.py by make gen: do not edit.

"""The rules of a sandbox, for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional

from .types import AllowedHost, Explanation, PermissionRule

if TYPE_CHECKING:
    from ._arguments import PathLike
    from ._requests import Hosts, Timeout
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

    def hosts(self) -> List[AllowedHost]:
        """Return the hosts that the sandbox may reach now."""
        sandbox = self._client.get_sandbox(self._id)
        return sandbox.allow_net

    def grant(self, hosts: Hosts, *, grant_for: Timeout = None) -> List[AllowedHost]:
        """Let the sandbox reach more hosts at once, and return all of them.

        Each is such as "api.example.com" or "@pypi". ``grant_for`` is how long the grants last, in
        seconds or as a timedelta; None means until they are revoked.
        """
        sandbox = self._client.change_hosts(self._id, grant=hosts, grant_for=grant_for)
        return sandbox.allow_net

    def revoke(self, hosts: Hosts) -> List[AllowedHost]:
        """No longer let the sandbox reach hosts, close the connections to them, and return the others."""
        sandbox = self._client.change_hosts(self._id, revoke=hosts)
        return sandbox.allow_net

    def explain(self, path: PathLike, *, mount: Optional[str] = None) -> Explanation:
        """Return the permission of a path, which need not exist, with the rule that decides.

        ``mount`` is the name of a mount in which the path is; None means the workspace.
        """
        return self._client.explain_policy(self._id, path, mount=mount)
