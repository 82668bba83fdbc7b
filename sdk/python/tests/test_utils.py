from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Callable

import pytest

from agentfense import _requests as requests
from agentfense import utils


def names(path: Path, **more: object) -> set[str]:
    return {name for name, _ in utils.walk_directory(path, **more)}  # type: ignore[arg-type]


def test_walk_directory_leaves_out_what_an_upload_does(project: Path) -> None:
    (project / "node_modules/x").mkdir(parents=True)
    (project / "node_modules/x/index.js").write_text("x")
    (project / "src/lib.pyc").write_text("x")
    assert dict(utils.walk_directory(project))["main.py"] == b"print('hello')\n"
    everything = {"main.py", "README.md", "src/lib.py", "secrets/key.txt", "output/.keep", ".gitignore", "run.sh"}
    assert names(project) == everything
    assert names(project, ignore_patterns=["*.md", "!.env"]) == everything - {"README.md"} | {".env"}
    assert names(project, include_default_ignores=False) == everything | {
        ".env",
        "node_modules/x/index.js",
        "src/lib.pyc",
    }
    assert names(project, max_file_size=0) == {"output/.keep"}


def test_ignore_files_have_the_semantics_of_git(project: Path) -> None:
    (project / ".gitignore").write_text("# comment\n\n/*.md\nsrc/\n!keep.log\n*.log\n\\#odd\n")
    (project / ".sandboxignore").write_text("!important.log\r\n")
    for name in ("a.log", "important.log", "keep.log", "#odd", "deep/README.md"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text("x")
    assert utils.parse_ignore_file(project / ".gitignore") == ["/*.md", "src/", "!keep.log", "*.log", "\\#odd"]
    assert utils.parse_ignore_file(project / "absent") == []
    found = names(project)
    assert "important.log" in found and "deep/README.md" in found and "build/out.o" in found
    assert not found & {"README.md", "src/lib.py", "a.log", "keep.log", "#odd"}


def sparse(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.parametrize("name", utils.IGNORE_FILES)
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (os.mkfifo, "is not a regular file"),
        (os.mkdir, "is not a regular file"),
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
        (sparse, "more than 131072 bytes of patterns"),
    ],
    ids=["FIFO", "directory", "link", "sparse"],
)
def test_invalid_ignore_files(tmp_path: Path, name: str, make: Callable[[Path], object], says: str) -> None:
    """Neither is waited for, nor read into memory."""
    make(tmp_path / name)
    for read in (utils.walk_directory, lambda path: requests.upload_tree("cb_0", path, None)):
        with pytest.raises(ValueError, match=f"{re.escape(name)}: {says}"):
            list(read(tmp_path))


def test_a_file_that_becomes_a_fifo_does_not_block(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    messages = requests.upload_tree("cb_0", tmp_path, None)
    assert next(messages).metadata.file_path == "file"
    (tmp_path / "file").unlink()
    os.mkfifo(tmp_path / "file")
    with pytest.raises(ValueError, match="file: is not a regular file"):
        next(messages)


def test_symbolic_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/link").symlink_to("../outside")
    (tmp_path / "in/loop").symlink_to(".")
    assert names(tmp_path / "in") == set()


def test_count(project: Path) -> None:
    count, size = utils.count_files(project)
    assert (count, size) == (7, sum(len(content) for _, content in utils.walk_directory(project)))
    assert utils.count_files(project, ["*"]) == (0, 0)


@pytest.mark.parametrize("call", [utils.count_files, lambda path: list(utils.walk_directory(path))])
def test_a_missing_directory(call: object, project: Path) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match="no such directory"):
        call(project / "absent")
    with pytest.raises(ValueError, match="not a directory"):
        call(project / "main.py")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("", '^empty path: want "[.]" for'),
        ("~no-such-user/x", "^path '~no-such-user/x': .*home directory"),
        ("x" * 5000, "^path 'x+': File name too long$"),
        ("loop/x", "^path 'loop/x': Too many levels of symbolic links$"),
        ("a\0b", "^path .*: embedded null"),
        ("a\ud800", r"^path: character 1 is '\\ud800', which a file name cannot have$"),
    ],
)
def test_paths_that_are_not_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, says: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(ValueError, match=says):
        utils.check_directory(path)


def test_a_current_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for call in (utils.check_directory, utils.generate_codebase_name):
        with pytest.raises(ValueError, match=r"^path '\.': No such file or directory$"):
            call(".")


@pytest.mark.parametrize("path", [5, None, b"/tmp"])
def test_invalid_paths(path: Any) -> None:
    with pytest.raises(TypeError, match=r"^path: want a string or an os\.PathLike of one, not "):
        utils.check_directory(path)


@pytest.mark.parametrize(
    ("patterns", "says"),
    [
        ("*.py", "^ignore_patterns: want a list of strings, not str$"),
        (5, "^ignore_patterns: want a list of strings, not int$"),
        (["*.py", 5], r"^ignore_patterns\[1\]: want a string, not int$"),
    ],
)
def test_malformed_patterns(tmp_path: Path, patterns: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        utils.ignore_matcher(tmp_path, patterns)


def test_a_deep_tree(tmp_path: Path) -> None:
    path = tmp_path
    for _ in range(1100):
        path /= "d"
        path.mkdir()
    try:
        assert len(list(utils.walk_entries(tmp_path, utils.ignore_matcher(tmp_path)))) == 1100
    finally:
        while path != tmp_path:  # what removes it for pytest goes by recursion
            path.rmdir()
            path = path.parent


@pytest.mark.parametrize(
    ("n", "want"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KB"),
        (1536, "1.5 KB"),
        (50 << 20, "50.0 MB"),
        (3 << 40, "3.0 TB"),
        (2 << 50, "2048.0 TB"),
    ],
)
def test_sizes_for_people(n: int, want: str) -> None:
    assert utils.human_readable_size(n) == want


def test_generated_names(tmp_path: Path) -> None:
    assert re.fullmatch(r"user_[0-9a-f]{8}", utils.generate_owner_id())
    assert utils.generate_owner_id() != utils.generate_owner_id()
    (tmp_path / "my project!").mkdir()
    assert re.fullmatch(r"my-project-[0-9a-f]{8}", utils.generate_codebase_name(tmp_path / "my project!"))
    assert utils.generate_codebase_name("/").startswith("codebase-")


def test_the_state_directory_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "state" / "deep").mkdir(parents=True)
    (tmp_path / "state" / "deep" / "token").write_text("secret")
    (tmp_path / "main.py").write_text("")
    monkeypatch.setenv("AGENTFENSE_HOME", str(tmp_path / "state"))
    assert names(tmp_path) == {"main.py"}
    (tmp_path / "other").symlink_to("state")
    monkeypatch.setenv("AGENTFENSE_HOME", str(tmp_path / "other"))
    assert names(tmp_path) == {"main.py"}
