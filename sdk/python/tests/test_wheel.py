"""The wheel: its content, and that it works alone in an empty environment."""

from __future__ import annotations

import importlib.util
import json
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, Iterator, List

import pytest
from conftest import check_clean, stop_server

import agentfense

SDK = Path(__file__).resolve().parents[1]
ROOT = SDK.parents[1]
PINS = ROOT / "tools/python/run.txt"
MOST_BYTES = 25_000_000
INFO = f"agentfense-{agentfense.__version__}.dist-info"
SCRIPTS = f"agentfense-{agentfense.__version__}.data/scripts"
PROGRAMS = ("agentfense", "agentfense-server")


def build(to: Path) -> Path:
    """Make the wheel and the source distribution, as ``make wheel`` does."""
    subprocess.run([ROOT / "scripts/wheel", os.environ["AGENTFENSE_BINARY"], to], check=True, timeout=300)
    (wheel,) = to.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheel(home: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("dist"))


def test_the_wheel_has_the_programs_and_says_where_it_runs(wheel: Path) -> None:
    machine = os.uname().machine
    platforms = f"manylinux_2_17_{machine}.manylinux2014_{machine}.musllinux_1_1_{machine}"
    assert wheel.name == f"agentfense-{agentfense.__version__}-py3-none-{platforms}.whl"
    assert wheel.stat().st_size <= MOST_BYTES
    with zipfile.ZipFile(wheel) as archive:
        for name in PROGRAMS:
            program = archive.getinfo(f"{SCRIPTS}/{name}")
            assert program.external_attr >> 16 & 0o777 == 0o755
            assert archive.read(program) == Path(os.environ["AGENTFENSE_BINARY"]).with_name(name).read_bytes()
        assert {f"{INFO}/licenses/LICENSE", "agentfense/py.typed"} <= set(archive.namelist())
        assert "Root-Is-Purelib: false" in archive.read(f"{INFO}/WHEEL").decode()
        notices = archive.read(f"{INFO}/licenses/NOTICES").decode()
        for module in ("go go", "google.golang.org/grpc v", "modernc.org/sqlite v"):
            assert f"\n==== {module}" in notices


def test_two_builds_are_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    again = build(tmp_path)
    assert again.name == wheel.name and again.read_bytes() == wheel.read_bytes()
    (source,) = tmp_path.glob("*.tar.gz")
    assert source.read_bytes() == next(wheel.parent.glob("*.tar.gz")).read_bytes()


def hatch(at: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel"]
    env = {**os.environ, **variables}
    return subprocess.run(command, cwd=at, env=env, capture_output=True, text=True, timeout=60)


@pytest.fixture
def source(wheel: Path, tmp_path: Path) -> Path:
    """The source distribution, unpacked."""
    with tarfile.open(next(wheel.parent.glob("*.tar.gz"))) as archive:
        archive.extractall(tmp_path)
    return tmp_path / f"agentfense-{agentfense.__version__}"


def test_a_wheel_of_the_source_distribution_has_no_program(source: Path) -> None:
    done = hatch(source)
    assert done.returncode == 0 and "the wheel has no program agentfense" in done.stdout + done.stderr
    (made,) = (source / "dist").iterdir()
    assert made.name == f"agentfense-{agentfense.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(made) as archive:
        assert [name for name in archive.namelist() if ".data/" in name or "NOTICES" in name] == []


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """What makes the wheel."""
    spec = importlib.util.spec_from_file_location("hatch_build", SDK / "hatch_build.py")
    assert spec and spec.loader
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    return hook


def elf(machine: int = 62, bits: int = 2, kind: int = 1, magic: bytes = b"\x7fELF") -> bytes:
    """Return the head of a program with one segment."""
    header = struct.pack("<4sBB10xHHIQQQIHHHHHH", magic, bits, 1, 2, machine, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return header + struct.pack("<I52x", kind)


@pytest.mark.parametrize(
    ("program", "says"),
    [
        (elf(kind=3), "not linked statically"),
        (elf(machine=40), "not a program of Linux on x86_64 or aarch64"),
        (elf(bits=1), "not a program of Linux on x86_64 or aarch64"),
        (elf(magic=b"MZ\0\0"), "not a program of Linux on x86_64 or aarch64"),
        (b"#!/bin/sh\n", "not a program of Linux"),
        (None, "no such program"),
    ],
)
def test_programs_that_need_a_c_library_are_rejected(hook: Any, tmp_path: Path, program: Any, says: str) -> None:
    if program is not None:
        (tmp_path / "agentfense").write_bytes(program)
        (tmp_path / "agentfense").chmod(0o755)
    with pytest.raises(ValueError, match=says):
        hook.platform_of(tmp_path / "agentfense")


def test_a_program_of_another_machine_names_that(hook: Any, tmp_path: Path) -> None:
    (tmp_path / "agentfense").write_bytes(elf(machine=183))
    (tmp_path / "agentfense").chmod(0o755)
    assert hook.platform_of(tmp_path / "agentfense") == "aarch64"


def test_a_wheel_without_the_named_program_is_rejected(source: Path, tmp_path: Path) -> None:
    done = hatch(source, AGENTFENSE_WHEEL=str(tmp_path))
    assert done.returncode != 0 and f"{tmp_path}/agentfense: no such program" in done.stdout + done.stderr
    assert not list(source.glob("dist/*"))


def test_a_wheel_with_only_one_program_is_rejected(source: Path, tmp_path: Path) -> None:
    (tmp_path / "agentfense").write_bytes(elf())
    (tmp_path / "agentfense").chmod(0o755)
    done = hatch(source, AGENTFENSE_WHEEL=str(tmp_path))
    assert done.returncode != 0 and f"{tmp_path}/agentfense-server: no such program" in done.stdout + done.stderr
    assert not list(source.glob("dist/*"))


def test_a_wheel_with_programs_of_two_machines_is_rejected(source: Path, tmp_path: Path) -> None:
    for name, machine in zip(PROGRAMS, (62, 183)):
        (tmp_path / name).write_bytes(elf(machine))
        (tmp_path / name).chmod(0o755)
    done = hatch(source, AGENTFENSE_WHEEL=str(tmp_path))
    assert done.returncode != 0 and "the two programs are for different machines" in done.stdout + done.stderr
    assert not list(source.glob("dist/*"))


def test_a_wheel_that_is_too_large_is_rejected(source: Path, tmp_path: Path) -> None:
    for name in PROGRAMS:
        (tmp_path / name).write_bytes(elf() + os.urandom(MOST_BYTES // 2))
        (tmp_path / name).chmod(0o755)
    (tmp_path / "NOTICES").touch()
    done = hatch(source, AGENTFENSE_WHEEL=str(tmp_path))
    assert done.returncode != 0 and f"more than {MOST_BYTES}" in done.stdout + done.stderr
    assert not list(source.glob("dist/*"))


class Place:
    """An environment made for nothing but the wheel, and a shell that knows neither it nor the repository."""

    def __init__(self, root: Path) -> None:
        self.venv, self.home, self.work = root / "venv", root / "home", root / "work"
        self.before: List[str] = []
        self.work.mkdir()
        # What pip and ensurepip extract goes with all the rest.
        self.env = {"PATH": "/usr/bin:/bin", "HOME": str(root), "TMPDIR": str(root), "AGENTFENSE_HOME": str(self.home)}
        self.run(sys.executable, "-m", "venv", str(self.venv))

    def run(self, *command: str) -> str:
        done = subprocess.run(command, cwd=self.work, env=self.env, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def python(self, *args: str) -> str:
        return self.run(str(self.venv / "bin/python"), *args)

    def pip(self, verb: str, *args: str) -> None:
        self.python("-m", "pip", verb, "--quiet", "--disable-pip-version-check", *args)

    def files(self) -> List[str]:
        """Return what is there, but for the code that others' modules were compiled to."""
        paths = (path.relative_to(self.venv) for path in self.venv.rglob("*"))
        return sorted(str(path) for path in paths if "__pycache__" not in path.parts or "agentfense" in path.parts)


def pip_cache() -> str:
    """Return where packages were kept when the environment of the tests was made."""
    return subprocess.check_output([sys.executable, "-m", "pip", "cache", "dir"], text=True).strip()


@pytest.fixture(scope="module")
def place(wheel: Path) -> Iterator[Place]:
    """An environment in which the wheel was installed, with what it asks for as it is pinned."""
    with tempfile.TemporaryDirectory(prefix="af-") as directory:
        place = Place(Path(directory).resolve())
        # The packages that are pinned, and then the wheel, which may want no other.
        place.env["PIP_CACHE_DIR"] = pip_cache()
        place.pip("install", "--no-compile", "--require-hashes", "--only-binary=:all:", "-r", str(PINS))
        place.before = place.files()
        place.pip("install", "--no-compile", "--no-index", str(wheel))
        yield place
        try:
            if place.home.exists():
                check_clean(place.home)
        finally:
            stop_server(place.home)


def test_the_command_is_the_program(place: Place) -> None:
    command = str(place.venv / "bin/agentfense")
    version = json.loads(place.run(command, "version", "--json"))["version"]
    assert version.partition("+")[0] == agentfense.__version__
    assert place.run(command, "run", "--rm", "--", "echo", "ran") == "ran\n"
    assert place.python("-m", "agentfense", "run", "--rm", "--", "echo", "ran") == "ran\n"


EXAMPLE = """
import agentfense
from agentfense import Sandbox
assert agentfense.__file__.startswith({venv!r}), agentfense.__file__
with Sandbox.from_local({project!r}, preset="development") as sb:
    assert sb.run("cat README.md; echo new >new.txt").stdout == "# project\\n"
    print([(change.status.value, change.path) for change in sb.diff()])
"""


def test_a_program_starts_the_server_from_it(place: Place, project: Path) -> None:
    said = place.python("-c", EXAMPLE.format(venv=str(place.venv), project=str(project)))
    assert said == "[('added', 'new.txt')]\n"
    pid = json.loads((place.home / "server.json").read_text())["pid"]
    variables = dict(v.split("=", 1) for v in Path(f"/proc/{pid}/environ").read_text().split("\0") if v)
    program = os.readlink(f"/proc/{pid}/fd/{variables['AGENTFENSE_PROGRAM_FD']}")
    assert program == str(place.venv / "bin/agentfense")
    assert os.readlink(f"/proc/{pid}/exe") == str(place.venv / "bin/agentfense-server")
    assert find(place) == str(place.venv / "bin/agentfense")


def find(place: Place, **variables: str) -> str:
    was: Dict[str, str] = {**place.env}
    place.env.update(variables)
    try:
        return place.python("-c", "from agentfense._program import find_program; print(find_program())").strip()
    finally:
        place.env = was


def test_the_installed_program_precedes_the_path(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "agentfense"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    assert find(place, PATH=f"{tmp_path}:/usr/bin:/bin") == str(place.venv / "bin/agentfense")
    assert find(place, AGENTFENSE_BINARY=str(other)) == str(other)


def test_the_command_says_that_the_program_is_missing(place: Place) -> None:
    env = {**place.env, "AGENTFENSE_BINARY": "/nowhere/agentfense"}
    command = [str(place.venv / "bin/python"), "-m", "agentfense", "version"]
    done = subprocess.run(command, env=env, cwd=place.work, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (125, "")
    assert done.stderr.startswith("agentfense: AGENTFENSE_BINARY '/nowhere/agentfense': no such program: install")


def test_the_program_is_found_beside_a_package_installed_with_target(place: Place, wheel: Path, tmp_path: Path) -> None:
    place.pip("install", "--no-compile", "--no-deps", "--no-index", "--target", str(tmp_path / "lib"), str(wheel))
    assert find(place, PYTHONPATH=str(tmp_path / "lib")) == str(tmp_path / "lib/bin/agentfense")


def test_nothing_remains_after_it_is_removed(place: Place) -> None:
    assert place.files() != place.before
    place.pip("uninstall", "--yes", "agentfense")
    assert place.files() == place.before
