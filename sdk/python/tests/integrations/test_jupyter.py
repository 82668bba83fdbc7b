"""The magics of notebooks, in IPython and in real kernels, with real sandboxes."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

import nbformat
import pytest
from IPython.core.interactiveshell import InteractiveShell
from nbclient import NotebookClient
from traitlets.config import Config

import agentfense
from agentfense import SandboxClient, SandboxError
from agentfense.integrations._notebook import rules_of
from agentfense.integrations.jupyter import SandboxMagic

EXTENSION = "%load_ext agentfense.integrations.jupyter"


@pytest.fixture
def there(home: Path, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The directory of a notebook: the working directory."""
    monkeypatch.chdir(project)
    monkeypatch.setenv("PYTHONPATH", str(Path(agentfense.__file__).parents[1]))
    for name in ("IPYTHONDIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return project


class Shell:
    """IPython without a terminal."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        make: Any = InteractiveShell
        self._shell = make(config=Config({"HistoryManager": {"enabled": False}}))
        self._capsys = capsys

    def __call__(self, cell: str) -> Tuple[str, str]:
        """Run a cell and return what it wrote to stdout and to stderr; its error is on stdout."""
        self._capsys.readouterr()
        self._shell.run_cell(cell)
        return self._capsys.readouterr()


@pytest.fixture
def run(there: Path, capsys: pytest.CaptureFixture[str], client: SandboxClient) -> Iterator[Shell]:
    shell = Shell(capsys)
    assert shell(EXTENSION) == ("", "")
    yield shell
    shell("%unload_ext agentfense.integrations.jupyter")
    assert (client.list_sandboxes(), client.list_codebases()) == ([], [])


def test_cells_share_a_shell(run: Shell, there: Path) -> None:
    assert run("%%sandbox\ncat main.py; echo é >&2; cd src; a=5") == ("print('hello')\n", "é\n")
    assert run("%%sandbox --shell\npwd; echo $a; printf '\\377'") == (f"{there}/src\n5\n\ufffd", "")
    assert run("%%sandbox --python\nimport os, sys\nprint(os.getcwd(), end='')\nsys.exit(3)") == (
        f"{there}/srcCommandExecutionError: exit code 3\n",
        "",
    )
    assert run("%%sandbox --no-raise\nexit 3") == ("", "")
    assert run("%%sandbox\npwd") == (f"{there}\n", "sandbox: the shell ended; this is a new one\n")


def test_options_are_rules_of_the_live_sandbox(run: Shell) -> None:
    assert run("%%sandbox --hide README.md --write src\nls; echo 1 > src/new; cat main.py; cat .env || true") == (
        "build\nempty\nlink\nmain.py\noutput\nrun.sh\nsrc\nprint('hello')\n",
        "cat: .env: No such file or directory\n",
    )
    assert "Permission denied" in run("%%sandbox\necho > main.py")[1]
    assert run("%%sandbox --write main.py\necho 2 > main.py; ls README.md")[1].startswith("ls: cannot access")
    assert run("%%sandbox --preset full-access\ncat README.md main.py src/new; ls -d secrets") == (
        "# project\n2\n1\nsecrets\n",
        "",
    )
    assert "rules: preset full-access\n" in run("%sandbox status")[0]


def test_a_policy_file(run: Shell, there: Path) -> None:
    (there / "policy.yaml").write_text('version: 1\nrules: [{pattern: "*.md", permission: read}]\n')
    assert run("%%sandbox --policy policy.yaml\nls; echo > README.md")[0] == (
        "README.md\nbuild\nempty\noutput\nsecrets\nsrc\nCommandExecutionError: exit code 2\n"
    )
    assert run("%%sandbox --write README.md\necho changed > README.md; cat README.md") == ("changed\n", "")
    assert "rules: policy policy.yaml write=README.md\n" in run("%sandbox status")[0]
    run("%%sandbox --write src --read README.md\ntrue")
    assert "Permission denied" in run("%%sandbox --read README.md\necho > README.md")[1]
    assert "rules: policy policy.yaml write=src read=README.md\n" in run("%sandbox status")[0]
    (there / "policy.yaml").write_text("version: 1\nrule: []\n")
    assert run("%%sandbox --policy policy.yaml\nls")[0].startswith("PolicyError: policy.yaml:2: ")


def test_diff_apply_and_discard(run: Shell, there: Path) -> None:
    run("%%sandbox --preset development\necho new > new.txt; printf '\\033[2Jx\\n' > README.md; rm run.sh; mkdir .git")
    run("%%sandbox\necho '#!/bin/sh' > .envrc; printf 'name: \\n' > $(printf 'a\\033b')")
    shown, _ = run("%sandbox diff README.md run.sh")
    assert "M README.md\n" in shown and "+\\u{1b}[2Jx\n" in shown and "D run.sh\n" in shown and "new.txt" not in shown
    assert "A a\\u{1b}b\n" in run("%sandbox diff")[0]
    assert run("%sandbox apply --dry-run README.md") == ("applied README.md\n1 change would be applied\n", "")
    assert (there / "README.md").read_text() == "# project\n"
    assert run("%sandbox discard README.md 'a\x1bb'") == ("README.md\na\\u{1b}b\n2 changes discarded\n", "")
    assert run("%sandbox apply new.txt") == ("applied new.txt\n1 change applied\n", "")
    assert (there / "new.txt").read_text() == "new\n"
    (there / "run.sh").write_text("changed meanwhile\n")
    assert "Error: " in run("%sandbox apply run.sh")[0]
    assert (there / "run.sh").exists()
    assert "command_executed [exit code 0] echo new > new.txt; " in run("%sandbox audit")[0]
    assert run("%sandbox audit -n 1")[0].count("\n") == 1


def test_stop_keeps_changes_and_rm_destroys_them(run: Shell, client: SandboxClient) -> None:
    run("%%sandbox\necho kept > output/a")
    assert run("%sandbox stop")[0].endswith(" is stopped; its changes remain\n")
    assert "stopped, bwrap, of " in run("%sandbox status")[0]
    assert run("%%sandbox\ncat output/a") == ("kept\n", "")
    assert run("%%sandbox --dir src/..\ncat output/a") == ("kept\n", "")
    assert "remove it first, with %sandbox rm\n" in run("%%sandbox --dir src\nls")[0]
    assert run("%sandbox rm")[0].endswith(" is destroyed\n")
    assert client.list_sandboxes() == []
    assert run("%%sandbox --dir src\nls") == ("lib.py\n", "")


def test_an_error_is_one_line(run: Shell) -> None:
    for cell, says in {
        "%sandbox status": "UsageError: %sandbox: there is no sandbox yet: a cell with %%sandbox creates one\n",
        "%sandbox": "VERB; see %sandbox -h\n",
        "%sandbox throw": "invalid choice: 'throw'",
        "%%sandbox --hide 'x\nls": "UsageError: sandbox: No closing quotation\n",
        "%%sandbox --timeout 0\nls": "want more than 0; see %%sandbox -h\n",
        "%%sandbox --python --shell\nls": "not allowed with argument",
        "%%sandbox --preset develop\nls": "ValueError: unknown preset 'develop': did you mean 'development'?\n",
        "%%sandbox --dir absent\nls": "ValueError: ",
        "%%sandbox --timeout 0.2\nsleep 1000": "CommandTimeoutError: command 'sleep 1000': took longer than 0.2 s\n",
    }.items():
        out, err = run(cell)
        assert says in out + err
        assert (out + err).count("\n") == 1
    out, err = run("%%sandbox --help\nls")
    assert "usage: %%sandbox" in out and err == ""


def test_a_server_that_is_gone_is_one_line(run: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setenv("AGENTFENSE_ENDPOINT", "unix:///nowhere/af.sock")
        assert run("%%sandbox\nls")[0].startswith("ConnectionError: ")


def test_rules_rank_as_those_of_the_command_line(project: Path) -> None:
    none, write = agentfense.Permission.NONE, agentfense.Permission.WRITE
    read_only = agentfense.get_preset("read-only")
    *_, hide, grant = rules_of(project, agentfense.get_preset("agent-safe"), [(none, "*.md"), (write, "src/")])
    assert (hide.pattern, hide.type, hide.priority) == ("*.md", "glob", 200)
    assert (grant.pattern, grant.type, grant.priority) == ("/src", "directory", 49)
    assert rules_of(project, read_only, [(write, "a")])[-1].priority == 99
    hidden = rules_of(project, read_only, [(none, "src"), (none, "/src")])[len(read_only) :]
    assert [(rule.pattern, rule.type) for rule in hidden] == [("src", "glob"), ("src/", "glob"), ("/src", "directory")]
    tight = agentfense.presets.as_rules([{"pattern": "a", "permission": "none"}, {"pattern": "b", "priority": 1}])
    with pytest.raises(
        ValueError, match="write 'c': there is no priority between what the rules show and what they hide"
    ):
        rules_of(project, tight, [(write, "c")])


# Real kernels


class Notebook(NotebookClient):
    """Executes a notebook, and interrupts its kernel when a cell says that it may."""

    def process_message(self, msg: Dict[str, Any], cell: Any, cell_index: int) -> Any:
        if "interrupt me" in msg["content"].get("text", ""):
            manager: Any = self.km
            self.interrupting = asyncio.ensure_future(manager.interrupt_kernel())
        return super().process_message(msg, cell, cell_index)


def execute(directory: Path, *cells: str) -> List[Dict[str, str]]:
    """Execute a notebook and return what each cell wrote to stdout and stderr, and its error."""
    v4: Any = nbformat.v4
    notebook = v4.new_notebook(cells=[v4.new_code_cell(cell) for cell in (EXTENSION, *cells)])
    config = Config({"KernelManager": {"shutdown_wait_time": 60}})
    resources = {"metadata": {"path": str(directory)}}
    Notebook(notebook, timeout=120, allow_errors=True, resources=resources, config=config).execute()
    outputs = []
    for cell in notebook.cells[1:]:
        shown: Dict[str, str] = {}
        for output in cell.outputs:
            if output.output_type == "stream":
                shown[output.name] = shown.get(output.name, "") + output.text
            else:
                shown[output.output_type] = "\n".join(output.traceback)
        outputs.append(shown)
    return outputs


def test_a_notebook(there: Path, client: SandboxClient) -> None:
    cells = execute(
        there,
        "%%sandbox --preset development\necho out; echo err >&2; a=5; echo changed > README.md",
        "%%sandbox\necho $a; exit 4",
        "%%sandbox --python\nprint(open('README.md').read(), end='')",
        "%sandbox apply",
    )
    assert cells == [
        {"stdout": "out\n", "stderr": "err\n"},
        {"stdout": "5\n", "error": "CommandExecutionError: exit code 4"},
        {"stdout": "changed\n", "stderr": "sandbox: the shell ended; this is a new one\n"},
        {"stdout": "applied README.md\n1 change applied\n"},
    ]
    assert (there / "README.md").read_text() == "changed\n"
    assert (client.list_sandboxes(), client.list_codebases()) == ([], [])


def test_the_documents_cells(there: Path) -> None:
    text = (Path(__file__).parents[4] / "docs/integrations.md").read_text()
    extension, *cells = re.findall(r"^```ipython\n(.*?)\n^```$", text, re.MULTILINE | re.DOTALL)
    assert extension == EXTENSION
    assert execute(there, *cells) == [
        {},
        {},
        {"stdout": f"{there}/src\n"},
        {"stdout": DIFF},
        {"stdout": "applied main.py\n1 change applied\n"},
    ]
    assert (there / "main.py").read_text() == "print('goodbye')\n"


DIFF = """\
M main.py
diff --git a/main.py b/main.py
--- a/main.py
+++ b/main.py
@@ -1 +1 @@
-print('hello')
+print('goodbye')
"""


def test_an_interrupt_ends_only_the_command(there: Path, client: SandboxClient) -> None:
    cells = execute(
        there,
        "%%sandbox\ncd src; echo $$ > ../output/shell; sleep 1000 & echo $! > ../output/pid; echo interrupt me; wait",
        "%%sandbox\npwd; [ $$ = $(cat ../output/shell) ] && ! kill -0 $(cat ../output/pid) 2>/dev/null && echo ended",
    )
    ended = "KeyboardInterrupt: the cell's command was ended; the sandbox and its shell remain"
    assert cells == [{"stdout": "interrupt me\n", "error": ended}, {"stdout": f"{there}/src\nended\n"}]
    assert (client.list_sandboxes(), client.list_codebases()) == ([], [])


def test_a_reason_is_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise SandboxError("destroy: /a\x1b[2J\udcff")

    magic = SandboxMagic()
    magic.notebook.remove = fail  # type: ignore[method-assign]
    magic.close()
    assert capsys.readouterr().err == "sandbox: could not be destroyed: destroy: /a\\u{1b}[2J\\xff\n"
