"""The warnings of both kinds of sandboxes."""

from __future__ import annotations

import warnings
from contextlib import suppress

from .exceptions import ChangesLostWarning, SandboxError


def warn_of_rest(sandbox_id: str, why: SandboxError) -> None:
    """Warn that a sandbox remains, while another exception is being raised."""
    # A filter may turn the warning into an exception, which would hide the other one.
    with suppress(RuntimeWarning):
        warnings.warn(f"sandbox {sandbox_id} could not be destroyed: {why}", RuntimeWarning, stacklevel=3)


def warn_of_upload(directory: str) -> None:
    """Warn that a directory was uploaded instead of linked."""
    warnings.warn(
        f"the token may not link {directory}, so the directory is uploaded",
        UserWarning,
        stacklevel=3,
    )


def warn_of_lost(sandbox_id: str, lost: int, stacklevel: int = 3) -> None:
    """Warn of the changes that were lost with a sandbox, if any."""
    if lost:
        changes = "1 change" if lost == 1 else f"{lost} changes"
        warnings.warn(
            f"sandbox {sandbox_id} was destroyed with {changes} not applied: call apply() to keep changes, "
            "or discard() to drop them",
            ChangesLostWarning,
            stacklevel=stacklevel,
        )
