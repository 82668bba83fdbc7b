"""The benchmark of the package runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench.py"
SIZE = 1 << 20


@pytest.mark.parametrize(
    ("arguments", "counts"),
    [
        (["run"], {}),
        (["session"], {}),
        (["from-local"], {}),
        (["first-from-local"], {}),
        (["stream", str(SIZE)], {"bytes": SIZE}),
        (["stream-async", str(SIZE)], {"bytes": SIZE}),
        (["many", "3"], {"commands": 60, "errors": 0, "said": []}),
    ],
)
def test_works(home: Path, project: Path, arguments: list[str], counts: dict[str, object]) -> None:
    work, *more = arguments
    command = [sys.executable, str(BENCH), work, str(project), *more]
    done = subprocess.run(command, input="\n\n", capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    ready, *twice = done.stdout.splitlines()
    assert ready == "ready" and len(twice) == 2
    for line in twice:
        said = json.loads(line)
        assert said["ns"] > 0 and {**said, **counts} == said
