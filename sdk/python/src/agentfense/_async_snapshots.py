"""The calls about the states of sandboxes, for an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, List, Optional, Sequence, Union

from . import _requests as requests
from . import types as t
from ._arguments import id_of, text_of
from ._async_codebases import AsyncCalls
from ._connection import WORK
from ._errors import Call, next_page
from ._gen.sandbox.v1 import snapshot_pb2
from ._requests import Paths, Timeout, chosen, forked, mount_of
from ._states import merged_of, restored_of, snapshot_list_of, snapshot_of
from ._wire import file_diff_of, sandbox_of

if TYPE_CHECKING:
    from .async_client import AsyncSandboxClient


class AsyncSnapshotCalls(AsyncCalls):
    """The calls about the states of sandboxes.

    A snapshot is named by its name (``s1``), by its label, or by ``@{N}``: the state before the last
    merge, or command with ``checkpoint``, but N-1.
    """

    async def create_snapshot(self, sandbox_id: str, label: str = "") -> t.Snapshot:
        """Keep the present state of a sandbox, also while commands run. A sandbox can have 200 such snapshots."""
        request = snapshot_pb2.CreateSnapshotRequest(
            sandbox_id=id_of(sandbox_id, "sandbox_id"), label=text_of(label, "label")
        )
        return snapshot_of(await self._connection.call("CreateSnapshot", request, Call("snapshot", sandbox_id), WORK))

    async def list_snapshots(self, sandbox_id: str) -> t.SnapshotList:
        """Return the snapshots of a sandbox as a tree."""
        request = snapshot_pb2.ListSnapshotsRequest(sandbox_id=id_of(sandbox_id, "sandbox_id"))
        return snapshot_list_of(
            await self._connection.call("ListSnapshots", request, Call("list snapshots", sandbox_id))
        )

    async def delete_snapshot(self, sandbox_id: str, snapshot: str) -> None:
        """Remove a snapshot. What no other state has is lost."""
        request = snapshot_pb2.DeleteSnapshotRequest(
            sandbox_id=id_of(sandbox_id, "sandbox_id"), snapshot=text_of(snapshot, "snapshot")
        )
        await self._connection.call("DeleteSnapshot", request, Call("delete snapshot", sandbox_id), WORK)

    async def restore_snapshot(self, sandbox_id: str, snapshot: str) -> t.Restored:
        """Bring a stopped sandbox back to a snapshot, and keep what was there as another snapshot."""
        request = snapshot_pb2.RestoreSnapshotRequest(
            sandbox_id=id_of(sandbox_id, "sandbox_id"), snapshot=text_of(snapshot, "snapshot")
        )
        return restored_of(await self._connection.call("RestoreSnapshot", request, Call("restore", sandbox_id), WORK))

    async def fork_sandbox(
        self,
        sandbox_id: str,
        names: Sequence[str],
        *,
        snapshot: str = "",
        permissions: Optional[Sequence[t.RuleLike]] = None,
        allow_wider: bool = False,
        expires_in: Timeout = None,
    ) -> List[t.Sandbox]:
        """Make sandboxes with these names that begin with a state of another one, all or none.

        They are not started. ``snapshot`` is the state; empty means the present one. ``permissions``
        replace the rules; None keeps those of the other sandbox, and an empty list hides everything.
        With ``allow_wider`` they may permit more than the other sandbox, if the server's
        configuration does; else PermissionDeniedError is raised. ``expires_in`` is in seconds, or a
        timedelta; None means that the forks expire with the other sandbox.
        """
        request = forked(sandbox_id, names, snapshot, permissions, allow_wider, expires_in)
        answer = await self._connection.call("ForkSandbox", request, Call("fork", sandbox_id), WORK)
        return [sandbox_of(message) for message in answer.sandboxes]

    async def merge_sandbox(
        self,
        sandbox_id: str,
        from_sandbox_id: str,
        *,
        snapshot: str = "",
        paths: Paths = None,
        on_conflict: Union[t.ConflictResolution, str, None] = None,
        dry_run: bool = False,
    ) -> t.Merged:
        """Bring what a sandbox has changed into the changes of another one of the same codebase, all or nothing.

        The sandbox that gets the changes is stopped; the other one may run, and stays as it is. The
        codebase is not touched, and changes in mounts are left out. Texts that both changed are
        merged by lines. ``snapshot`` is a state of the other sandbox; empty means the present one.
        For ``paths`` see ``diff``. ``on_conflict`` says which version to take where both changed the
        same. With ``dry_run`` nothing changes, and the result has the conflicts. Else ConflictError
        is raised for them, and PermissionDeniedError if a policy does not permit a change.
        """
        wanted = chosen(paths)
        if wanted == []:
            return t.Merged()
        request = requests.merge(sandbox_id, from_sandbox_id, snapshot, wanted, on_conflict, dry_run)
        return merged_of(await self._connection.call("MergeSandbox", request, Call("merge", sandbox_id), WORK))

    async def compare_states(
        self,
        sandbox_id: str,
        state: str = "",
        *,
        from_sandbox_id: str = "",
        from_state: str = "",
        paths: Paths = None,
        names_only: bool = False,
        mount: Optional[str] = None,
    ) -> List[t.FileDiff]:
        """Return how two states of one codebase differ. Nothing of it can be applied.

        ``state`` is the later state: a snapshot, ``source`` for the codebase, or empty for the present
        state. ``from_state`` is the earlier one, of the sandbox ``from_sandbox_id`` or the same. For
        ``paths`` and ``names_only`` see ``diff``. ``mount`` is the name of a mount that both sandboxes
        have, whose codebases may then differ; None means the workspace.
        """
        wanted = chosen(paths, mount)
        found: List[t.FileDiff] = []
        if wanted == []:
            return found
        request = snapshot_pb2.CompareStatesRequest(
            sandbox_id=id_of(sandbox_id, "sandbox_id"),
            state=text_of(state, "state"),
            from_sandbox_id=id_of(from_sandbox_id, "from_sandbox_id"),
            from_state=text_of(from_state, "from_state"),
            paths=wanted,
            names_only=names_only,
            mount=mount_of(mount),
        )
        while True:
            page = await self._connection.call("CompareStates", request, Call("compare", sandbox_id), WORK)
            found.extend(map(file_diff_of, page.files))
            request.page_token = next_page(request.page_token, page.next_page_token)
            if not request.page_token:
                return found


class AsyncSandboxSnapshots:
    """The same calls for one sandbox."""

    _client: AsyncSandboxClient

    @property
    def id(self) -> str:
        """The sandbox's id."""
        raise NotImplementedError

    async def snapshot(self, label: str = "") -> t.Snapshot:
        """Keep the present state, also while commands run; see AsyncSandboxClient.create_snapshot."""
        return await self._client.create_snapshot(self.id, label)

    async def snapshots(self) -> t.SnapshotList:
        """Return the snapshots as a tree."""
        return await self._client.list_snapshots(self.id)

    async def delete_snapshot(self, snapshot: str) -> None:
        """Remove a snapshot. What no other state has is lost."""
        await self._client.delete_snapshot(self.id, snapshot)

    async def compare(
        self,
        from_state: str,
        state: str = "",
        *,
        from_sandbox_id: str = "",
        paths: Paths = None,
        mount: Optional[str] = None,
    ) -> List[t.FileDiff]:
        """Return how two states differ: snapshots, ``source``, or empty for now; see ``compare_states``."""
        return await self._client.compare_states(
            self.id, state, from_sandbox_id=from_sandbox_id, from_state=from_state, paths=paths, mount=mount
        )
