"""Hosts and servers that lack something: one exception says what and how to mend it, and nothing remains."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, Iterator, List

import pytest
from conftest import check_clean, root, stop_server
from hosts import NOBODY

from agentfense import InvalidConfigurationError, RuntimeType, Sandbox, SandboxClient

HERE = Path(__file__).parent

PROGRAM = """
import json, sys, time
import agentfense
began = time.monotonic()
try:
    with agentfense.Sandbox.from_local(sys.argv[1], **json.loads(sys.argv[2])) as sb:
        said = ["no error", sb.run("cat main.py").stdout]
except agentfense.SandboxError as error:
    said = [type(error).__name__, str(error)]
with agentfense.SandboxClient() as client:
    left = [str(thing) for thing in [*client.list_sandboxes(), *client.list_codebases()]]
print(json.dumps([*said, time.monotonic() - began, left]))
"""

SWITCHED_OFF = "user namespaces are switched off; run as root: sysctl -w user.max_user_namespaces=10000"
PASS = "in a container, pass the device in (Docker: --device /dev/fuse)"
CASES = {
    "nothing is lacking": ("open_fuse user", None),
    "no fuse": ("no_fuse", f"/dev/fuse: no such device: `modprobe fuse`; {PASS}"),
    "no fuse, as a user": ("no_fuse user", f"/dev/fuse: no such device: `modprobe fuse`; {PASS}"),
    "another device": ("not_fuse", f"mknod -m 0666 /dev/fuse c 10 229); {PASS}"),
    "fuse that root may not open": ("forbidden_fuse", f"/dev/fuse: not even root may open it here: {PASS}"),
    "fuse for root alone": ("root_fuse user", "/dev/fuse: only root may open it: `chmod 0666 /dev/fuse`"),
    "no user namespaces, as a user": ("open_fuse no_user_namespaces user", SWITCHED_OFF),
    "no user namespaces, as root": ("no_user_namespaces", SWITCHED_OFF),
    "a root that may not mount": ("no_mounts", "this root has no CAP_SYS_ADMIN"),
    "no bubblewrap": ("no_bwrap", "bubblewrap is not installed: run: apt install bubblewrap"),
    "no docker": ("docker", "no daemon answers at unix:///nowhere/docker: "),
}


@pytest.fixture
def own_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A state directory without a server, which an ordinary user may have too."""
    with tempfile.TemporaryDirectory(prefix="af-") as directory:
        os.chmod(directory, 0o777)
        own = Path(directory).resolve() / "home"
        monkeypatch.setenv("AGENTFENSE_HOME", str(own))
        monkeypatch.setenv("AGENTFENSE_RUNTIME_DOCKER_HOST", "unix:///nowhere/docker")
        yield own
        try:
            if own.exists():
                check_clean(own)
        finally:
            stop_server(own)


def readable(directory: Path) -> None:
    """Let an ordinary user at a directory of the test."""
    for parent in [directory, *directory.parents]:
        if parent == Path(tempfile.gettempdir()).parent:
            break
        parent.chmod(0o755)


NEEDED = [sys.base_prefix, sys.prefix, str(HERE.parent), os.path.dirname(os.environ.get("AGENTFENSE_BINARY", ""))]
"""What an ordinary user has to reach."""


@pytest.mark.parametrize("name", CASES)
def test_a_host(own_home: Path, project: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    root()
    kinds, says = CASES[name]
    more: Dict[str, Any] = {}
    readable(project)
    if kinds == "docker":
        kinds, more = "", {"runtime": "docker"}
    if kinds == "no_bwrap":
        kinds = ""
        bin_ = own_home.parent / "bin"
        bin_.mkdir()
        for program in ("sh", "cat"):
            (bin_ / program).symlink_to(shutil.which(program) or "")
        monkeypatch.setenv("PATH", str(bin_))
    if kinds.endswith("user"):
        on_host = as_user(*kinds.split()[:-1])
    else:
        on_host = [sys.executable, str(HERE / "hosts.py"), *kinds.split(), "--"]
    script = [sys.executable, "-c", PROGRAM, str(project), json.dumps(more)]
    done = subprocess.run([*on_host, *script], stdout=subprocess.PIPE, timeout=100, text=True)
    raised, text, seconds, left = json.loads(done.stdout)
    assert left == []
    if says is None:
        assert (raised, text) == ("no error", "print('hello')\n")
        return
    assert raised == "InvalidConfigurationError" and says in text
    assert seconds < 60
    if "docker" not in name:
        doctor = [os.environ["AGENTFENSE_BINARY"], "doctor", "--json"]
        found = subprocess.run([*on_host, *doctor], stdout=subprocess.PIPE, timeout=60, text=True)
        assert found.returncode != 0
        assert any(says in check["detail"] for check in json.loads(found.stdout)["checks"]), found.stdout


def as_user(*kinds: str) -> List[str]:
    """Return the words before a command that make it one of an ordinary user on such a host."""
    return [sys.executable, str(HERE / "hosts.py"), f"show={':'.join(NEEDED)}", *kinds, "user", "--"]


def test_a_missing_image(home: Path, project: Path, docker: Any) -> None:
    with pytest.raises(InvalidConfigurationError, match=r"no such image: absent:1.*; run: docker pull absent:1"):
        Sandbox.from_local(project, runtime=RuntimeType.DOCKER, image="absent:1", owner_id="absent")
    with SandboxClient() as client:
        assert client.list_codebases("absent") == []


def test_a_program_that_is_not_executable(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    program = tmp_path / "agentfense"
    program.write_text("#!/bin/sh\n")
    for text, mode, says in [
        ("#!/bin/sh\n", 0o644, f"AGENTFENSE_BINARY '{program}': not executable"),
        ("no program", 0o755, "Exec format error"),
        ("#!/nowhere/sh\n", 0o755, "No such file"),
    ]:
        program.write_text(text)
        program.chmod(mode)
        monkeypatch.setenv("AGENTFENSE_BINARY", str(program))
        with pytest.raises(InvalidConfigurationError, match=says):
            Sandbox.from_local(project)


def test_an_ordinary_user(home: Path) -> None:
    """The tests that are marked so, again."""
    root()
    with tempfile.TemporaryDirectory(prefix="af-") as own:
        os.chown(own, NOBODY, NOBODY)
        pytest_ = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-m",
            "anyone",
            f"--ignore={HERE}/integrations",
            str(HERE),
        ]
        environ = {name: value for name, value in os.environ.items() if not name.startswith("AGENTFENSE_RUNTIME")}
        environ.update({"TMPDIR": own, "HOME": own, "PYTHONDONTWRITEBYTECODE": "1"})
        done = subprocess.run(
            [*as_user("open_fuse"), *pytest_],
            cwd=HERE.parent,
            env=environ,
            stdout=subprocess.PIPE,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout
        passed = re.search(r"(\d+) passed, \d+ deselected", done.stdout)
        assert passed and int(passed[1]) >= 10 and "skipped" not in done.stdout, done.stdout
        assert os.listdir(own) == []
