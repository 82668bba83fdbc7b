"""The states of sandboxes, from the messages of the API."""

from __future__ import annotations

from typing import Any

from . import types as t
from ._gen.sandbox.v1 import snapshot_pb2
from ._wire import change_status_of, conflict_kind_of, decode_path, named, time_of


def snapshot_of(message: Any) -> t.Snapshot:
    """Return a snapshot."""
    reason = named(snapshot_pb2.SnapshotReason, "SNAPSHOT_REASON_", message.reason, "")
    return t.Snapshot(
        name=message.name,
        label=message.label,
        created_at=time_of(message.created_at),
        reason=t.SnapshotReason(reason) if reason else None,
        command=message.command,
        parent=message.parent,
    )


def snapshot_list_of(message: Any) -> t.SnapshotList:
    """Return the tree of a sandbox's snapshots."""
    origin = message.fork_of
    return t.SnapshotList(
        snapshots=[snapshot_of(one) for one in message.snapshots],
        present=message.present,
        fork_of=t.ForkOrigin(origin.sandbox_id, origin.sandbox_name, origin.snapshot)
        if message.HasField("fork_of")
        else None,
    )


def restored_of(message: Any) -> t.Restored:
    """Return what a restore did."""
    return t.Restored(
        snapshot=snapshot_of(message.snapshot),
        kept=snapshot_of(message.kept) if message.HasField("kept") else None,
        left_mounts=list(message.left_mounts),
    )


def merged_of(message: Any) -> t.Merged:
    """Return what a merge did."""
    return t.Merged(
        paths=[
            t.MergedPath(
                decode_path(one.path), change_status_of(one.status), one.merged, conflict_kind_of(one.resolved)
            )
            for one in message.paths
        ],
        path_count=message.path_count,
        changed_count=message.changed_count,
        conflicts=[
            t.MergeConflict(decode_path(one.path), conflict_kind_of(one.kind), one.reason) for one in message.conflicts
        ],
        conflict_count=message.conflict_count,
        left_out=[t.MergeLeftOut(decode_path(one.path), one.mount, one.reason) for one in message.left_out],
        left_out_count=message.left_out_count,
        kept=snapshot_of(message.kept) if message.HasField("kept") else None,
    )
