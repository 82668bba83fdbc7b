# Made from async_sandbox_policy.py by make gen: do not edit.

"""The rules of a sandbox, for threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Union

from .types import AllowedHost, Ask, AskList, AskScope, Explanation, PathGrant, Permission, PermissionRule

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

    def grant_path(
        self, path: PathLike, permission: Union[Permission, str], *, directory: bool = False, grant_for: Timeout = None
    ) -> List[PathGrant]:
        """Give a path a permission that it lacks at once, and return all grants.

        With ``directory`` the grant covers everything below the path. ``grant_for`` is how long it
        lasts, in seconds or as a timedelta; None means until it is revoked.
        """
        sandbox = self._client.grant_path(self._id, path, permission, directory=directory, grant_for=grant_for)
        return sandbox.grants

    def revoke_path(self, path: PathLike, *, directory: bool = False) -> List[PathGrant]:
        """Take all grants of a path back at once, and return the others."""
        sandbox = self._client.revoke_path(self._id, path, directory=directory)
        return sandbox.grants

    def asks(self, *, wait: Timeout = None, after: Optional[AskList] = None) -> AskList:
        """Return the refusals that wait for an answer; see ``list_asks`` of the client."""
        return self._client.list_asks(self._id, wait=wait, after=after)

    def answer(self, ask: Union[Ask, str], allow: bool, scope: Union[AskScope, str] = AskScope.ONCE) -> None:
        """Allow or deny what waits for an answer, once or for the sandbox."""
        self._client.answer_ask(self._id, ask, allow, scope)

    def explain(self, path: PathLike, *, mount: Optional[str] = None) -> Explanation:
        """Return the permission of a path, which need not exist, with the rule that decides.

        ``mount`` is the name of a mount in which the path is; None means the workspace.
        """
        return self._client.explain_policy(self._id, path, mount=mount)
