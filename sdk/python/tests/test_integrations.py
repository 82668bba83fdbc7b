"""What the integrations say where their frameworks are not; tests/integrations has the rest."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agentfense import SandboxError
from agentfense.integrations import MissingExtraError

EXTRAS = ["deepagents", "jupyter", "langchain", "openai-agents", "pytest", "smolagents"]


@pytest.mark.parametrize("extra", EXTRAS)
def test_without_its_framework_a_module_names_the_extra(extra: str) -> None:
    module = f"agentfense.integrations.{extra.replace('-', '_')}"
    absent = dict.fromkeys(["deepagents", "langchain_core", "agents", "smolagents", "IPython", "pytest"])
    program = f"import sys; sys.modules.update({absent})\nimport {module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith(f"agentfense.integrations.MissingExtraError: {module}: ")
    assert last.endswith(f": pip install 'agentfense[{extra}]'")


def test_the_error_is_of_both_families() -> None:
    error = MissingExtraError("deepagents", "no module")
    assert isinstance(error, SandboxError) and isinstance(error, ImportError) and error.extra == "deepagents"


def test_the_package_of_integrations_imports_none() -> None:
    program = "import agentfense, agentfense.integrations, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    frameworks = {"IPython", "agents", "deepagents", "langchain_core", "pytest", "smolagents"}
    assert not (frameworks | {"grpc"}) & set(done.stdout.split())
