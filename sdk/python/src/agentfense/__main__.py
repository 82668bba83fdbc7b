"""``python -m agentfense`` runs the command ``agentfense``, even if that is not on the PATH."""

from __future__ import annotations

import os
import sys

from ._program import NAME, find_program
from .exceptions import InvalidConfigurationError


def main() -> None:
    """Replace this process by the program, with the same arguments."""
    try:
        program = find_program()
    except InvalidConfigurationError as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        sys.exit(125)
    os.execv(program, [NAME, *sys.argv[1:]])


if __name__ == "__main__":
    main()
