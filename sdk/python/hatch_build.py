"""Puts the programs into the wheel, and sets the platform of such a wheel.

$AGENTFENSE_WHEEL names a directory with the programs ``agentfense`` and ``agentfense-server`` and
with ``NOTICES``, the licences of what is linked into them; ``make wheel`` fills it. Without the
variable the wheel has no program, and is for any platform.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any, Dict

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MOST_BYTES = 25_000_000
"""The largest wheel, in bytes."""

MACHINES = {62: "x86_64", 183: "aarch64"}
"""The platform of wheels for each machine of a program (e_machine in elf.h)."""

PLATFORMS = ("manylinux_2_17", "manylinux2014", "musllinux_1_1")
"""The oldest platforms that pip knows and for which grpcio has wheels. A static program needs no C library."""

_HEADER = struct.Struct("<4sBB10xHH12xQ14xHH")
_INTERPRETER = 3  # elf.h, PT_INTERP


class ProgramHook(BuildHookInterface[Any]):
    """The hook that hatchling calls before and after it builds a wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: Dict[str, Any]) -> None:
        """Add the programs: the console command, and the server beside it."""
        named = os.environ.get("AGENTFENSE_WHEEL")
        if self.target_name != "wheel" or version == "editable":
            return
        if not named:
            self.app.display_warning("the wheel has no program agentfense: make wheel makes one that has")
            return
        parts = Path(named)
        try:
            platform = platform_of(parts / "agentfense")
            if platform_of(parts / "agentfense-server") != platform:
                raise ValueError(f"{parts}: the two programs are for different machines")
        except (OSError, ValueError) as cause:
            self.app.abort(f"AGENTFENSE_WHEEL: {cause}")
        metadata = f"{self.build_config.builder.project_id}.dist-info"
        build_data["tag"] = "py3-none-" + ".".join(f"{name}_{platform}" for name in PLATFORMS)
        build_data["pure_python"] = False
        for name in ("agentfense", "agentfense-server"):
            build_data["shared_scripts"][str(parts / name)] = name
        build_data["force_include"][str(parts / "NOTICES")] = f"{metadata}/licenses/NOTICES"

    def finalize(self, version: str, build_data: Dict[str, Any], artifact_path: str) -> None:
        """Reject a wheel that is too large."""
        artifact = Path(artifact_path)
        size = artifact.stat().st_size
        if size > MOST_BYTES:
            artifact.unlink()
            self.app.abort(f"{artifact.name}: {size} bytes, more than {MOST_BYTES}")


def platform_of(program: Path) -> str:
    """Return the platform of a program. Raises ValueError unless it runs on every Linux of that machine."""
    if not os.access(program, os.X_OK):
        raise ValueError(f"{program}: no such program")
    with program.open("rb") as file:
        head = file.read(_HEADER.size)
        if len(head) < _HEADER.size:
            raise ValueError(f"{program}: not a program of Linux")
        magic, bits, order, _, machine, segments, size, count = _HEADER.unpack(head)
        if magic != b"\x7fELF" or (bits, order) != (2, 1) or machine not in MACHINES:
            raise ValueError(f"{program}: not a program of Linux on {' or '.join(MACHINES.values())}")
        file.seek(segments)
        kinds = [file.read(size)[:4] for _ in range(count)]
    if _INTERPRETER in [int.from_bytes(kind, "little") for kind in kinds]:
        raise ValueError(f"{program}: not linked statically: build it with CGO_ENABLED=0")
    return MACHINES[machine]
