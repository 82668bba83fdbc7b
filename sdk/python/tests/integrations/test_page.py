"""The examples of docs/integrations.md, run word by word, each with a scripted model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict

import pytest
from agents.testing import ScriptedModel, assistant_message, function_call
from test_deepagents import Scripted, calls
from test_smolagents import Scripted as CodeModel

PACKAGE = Path(__file__).resolve().parents[2]
PAGE = PACKAGE.parents[1] / "docs/integrations.md"


def programs() -> Dict[str, str]:
    """Return the code below each heading, at its lines of the page."""
    text = PAGE.read_text()
    found: Dict[str, str] = {}
    for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        heading = re.findall(r"^## (.*)$", text[: match.start()], re.MULTILINE)[-1]
        code = found.get(heading, "")
        found[heading] = code + "\n" * (text[: match.start(1)].count("\n") - code.count("\n")) + match[1]
    return found


def deepagents_model() -> Any:
    return Scripted(responses=calls(("execute", {"command": "echo better > README.md"})))


def openai_model() -> Any:
    call = function_call("exec_command", {"cmd": "echo better > README.md"}, call_id="1")
    return ScriptedModel([[call], [assistant_message("done")]])


def smolagents_model() -> Any:
    return CodeModel("open('README.md', 'w').write('better\\n')\nfinal_answer('done')")


DECLARED = "from typing import Any; model: Any\n"
MODELS: Dict[str, Callable[[], Any]] = {
    "deepagents and LangChain": deepagents_model,
    "OpenAI Agents SDK": openai_model,
    "smolagents": smolagents_model,
}


@pytest.mark.parametrize("heading", MODELS)
def test_examples(heading: str, home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project)
    code = programs()[heading]
    exec(compile(code, str(PAGE), "exec"), {"__name__": "example", "model": MODELS[heading]()})
    assert (project / "README.md").read_text() == "better\n"


def test_the_types_of_examples(tmp_path: Path) -> None:
    for number, heading in enumerate([*MODELS, "pytest"]):
        (tmp_path / f"example_{number}.py").write_text(programs()[heading].replace("\n", DECLARED, 1))
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", ".mypy_cache/integrations", str(tmp_path)],
        cwd=PACKAGE,
        env={**os.environ, "MYPYPATH": "src"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_example_is_run() -> None:
    """Those of pytest and of notebooks have tests beside the others of these."""
    assert set(programs()) == {*MODELS, "pytest"}
