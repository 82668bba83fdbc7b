"""Finding the program ``agentfense``."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Iterator

from .exceptions import InvalidConfigurationError

NAME = "agentfense"


def find_program() -> str:
    """Return the program: $AGENTFENSE_BINARY, else the one installed with this package, else the one on the PATH.

    The one on the PATH may be of another version.
    """
    named = os.environ.get("AGENTFENSE_BINARY")
    for candidate in [named] if named else [*_installed(Path(__file__).resolve().parent.parent), NAME]:
        found = shutil.which(candidate)
        if found and (named or os.path.isabs(found)):  # a PATH with "." would find a program of the current directory
            return found
    if named and os.path.isfile(named):
        raise InvalidConfigurationError(f"AGENTFENSE_BINARY {named!r}: not executable: use chmod +x")
    what = (
        f"AGENTFENSE_BINARY {named!r}: no such program"
        if named
        else "no server runs, and there is no program to start one"
    )
    raise InvalidConfigurationError(
        f"{what}: install agentfense, or name the program in AGENTFENSE_BINARY, or a server in AGENTFENSE_ENDPOINT"
    )


def _installed(site: Path) -> Iterator[str]:
    """Yield the places where the wheel in ``site`` may have put the program.

    The wheel's record names the place. But pip with --target moves the program to a directory
    beside the package.
    """
    from importlib.metadata import distributions

    for installed in distributions(name=NAME, path=[str(site)]):
        for file in installed.files or ():
            if file.name == NAME:
                path = Path(str(installed.locate_file(file)))
                yield str(path.parent.resolve() / path.name)
        yield str(site / "bin" / NAME)
