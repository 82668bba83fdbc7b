"""The patterns of a .gitignore, as git itself has them."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path
from typing import Any, Dict, Iterable, List

import pytest
from conftest import need

from agentfense import utils
from agentfense._ignore import _CLASSES, Matcher


class Oracle:
    """git, asked about everything in a tree."""

    def __init__(self, base: Path, files: Iterable[bytes]) -> None:
        self.repository, self.tree = base / "git", base / "tree"
        try:
            subprocess.run(["git", "init", "--quiet", "--bare", self.repository], check=True)
        except FileNotFoundError:
            need("git", "it is not installed")
        root = os.fsencode(self.tree)
        for file in files:
            at = os.path.join(root, file)
            os.makedirs(at if file.endswith(b"/") else os.path.dirname(at), exist_ok=True)
            if not file.endswith(b"/"):
                Path(os.fsdecode(at)).touch()
        self.ignore_file = self.tree / ".gitignore"
        self.ignore_file.touch()
        self.paths: Dict[str, bool] = {}
        for directory, names, others in os.walk(self.tree):
            for name in names + others:
                self.paths[os.path.relpath(os.path.join(directory, name), self.tree)] = name in names

    def left(self) -> List[str]:
        """Return the paths that git does not leave out."""
        command = ["git", f"--git-dir={self.repository}", f"--work-tree={self.tree}", "-c", "core.bare=false"]
        command += ["-c", "core.excludesFile=/dev/null", "check-ignore", "--no-index", "--stdin", "-z", "-v", "-n"]
        told = subprocess.run(
            command,
            cwd=self.tree,
            input=b"".join(os.fsencode(path) + b"\0" for path in self.paths),
            env={**os.environ, "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"},
            stdout=subprocess.PIPE,
        )
        assert told.returncode in (0, 1)  # 1: none matches
        fields = told.stdout.split(b"\0")  # file, line, pattern, path
        decided = {os.fsdecode(path): by for by, path in zip(fields[2::4], fields[3::4])}
        assert decided.keys() == self.paths.keys()
        return sorted(path for path, by in decided.items() if not by or by.startswith(b"!"))

    def check(self, patterns: bytes) -> None:
        """Fail where an upload differs from git."""
        self.ignore_file.write_bytes(patterns)
        matcher = utils.ignore_matcher(self.tree, include_default_ignores=False)
        assert sorted(entry.path for entry in utils.walk_entries(self.tree, matcher)) == self.left(), patterns


TREE = (
    *(b"a|b|ab|ba|aab|abab|-|#a|!a|a b| |a |a\\|\\|[a]|*|?|^|A|.a|\xff|\xc3\xa9|d/a|d/b|d/ab|d/d/a|d/d/b".split(b"|")),
    *(b"d/d/d/ab|d/a.b|d/\xff|b.d/a|b.d/d/b|da/b|dab/d/b|e/|e.a/|e/a/|a.b/a/b/d|\xffd/a".split(b"|")),
)

PIECES = [
    *(
        b"a|b|d|ab|e|.|-| |A|*|*|**|**|***|?|/|/|/|[ab]|[!a]|[^d-z]|[a-]|[]a]|[|]|!|#|\\|[[:alpha:]]|[[:no:]]".split(
            b"|"
        )
    ),
    *(b"[:|[\\]]|[b-a]|[--a]|\r|\0|\t|\xff|\xc3\xa9|[\x80-\xff]".split(b"|")),
]


def test_patterns_at_random(tmp_path: Path) -> None:
    chance, oracle = random.Random(1), Oracle(tmp_path, TREE)
    for _ in range(150):
        lines = [b"".join(chance.choices(PIECES, k=chance.randint(1, 6))) for _ in range(chance.randint(1, 5))]
        oracle.check(chance.choice([b"\n", b"\r\n"]).join(lines) + chance.choice([b"", b"\n", b"\r\n"]))


ODD = (
    "foo**/bar|x/foo**|x/fo?**|a?**/bar|?|a//b|a/./b|c/../d|//|/|!|!/|**/|/**/|**/**/f|c/***/f|**|/**"
    "|c\\/**/f|c/**\\/f|c/**f|c/e**/f|\ufefffoo|y\t|é/|[é]|c/[e/]f|c[/]e|c/**/**/**/f|**/*/f|y\\ |y  "
    "|/*\n!/c/\n/c/*\n!/c/e/|c\n!c/e/f|a/\r\n|d\r\r\n|d\ry|\t\n|x/\n!x/foo|x/*\n!x/foo|x\n!x|!x\nx|[a-c-e]|[a[:digit:]-x]"
)


def test_where_git_is_odd(tmp_path: Path) -> None:
    files = "foo/bar foobar foox/y/bar fooz/bar x/foo x/foot/y x/fo axx/y/bar axx/bar é y a/b d c/e/f c/e/g/f".encode()
    oracle = Oracle(tmp_path, files.split())
    for patterns in ODD.split("|"):
        oracle.check(patterns.encode())


def test_each_byte(tmp_path: Path) -> None:
    oracle = Oracle(tmp_path, [b"c" + bytes([byte]) for byte in range(1, 256) if byte != ord("/")])
    for name in _CLASSES:
        oracle.check(b"c[[:%b:]]" % name)
        oracle.check(b"c[![:%b:]]" % name)
    for pattern in (b"c?", b"c[\x80-\xc0]", b"c[!\x01-z]", b"c\xff", b"c[\xfe\xff]"):
        oracle.check(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "*a" * 200 + "b",
        "/" + "*a" * 200 + "b",
        "**/a*/" * 100 + "b",
        "*" * 200 + "/x",
        "[!b]*" * 200 + "b",
        "*?" * 200 + "b",
    ],
)
@pytest.mark.parametrize("path", ["a" * 4000, "a/" * 2000 + "a"])
def test_hostile_patterns_end(pattern: str, path: str) -> None:
    """A matcher that tries each way there is would not, in the life of the universe."""
    assert not Matcher([pattern]).excludes(path, False)
    assert Matcher([pattern, "*"]).excludes(path, False)


def test_a_pattern_does_not_add_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path costs a step for each of its bytes, however many patterns there are: the proof counts the look-ups."""

    class Counted(List[int]):
        looked_up = 0

        def __getitem__(self, key: Any) -> Any:
            Counted.looked_up += 1
            return super().__getitem__(key)

    matcher = Matcher(["*a" * 200 + "b"] * 100)
    monkeypatch.setattr(matcher, "_takes", Counted(matcher._takes))
    assert not matcher.excludes("a" * 4000, False)
    assert Counted.looked_up == 4000


def test_the_largest_ignore_file(tmp_path: Path) -> None:
    (tmp_path / ".gitignore").write_text(("*a*b*?[!c]\n" * utils.MAX_IGNORE_SIZE)[: utils.MAX_IGNORE_SIZE])
    for name in ("c" * 200, "ab", "xaxbxxx"):
        (tmp_path / name).touch()
    assert {name for name, _ in utils.walk_directory(tmp_path)} == {".gitignore", "ab", "c" * 200}


def test_patterns_of_the_caller(tmp_path: Path) -> None:
    matcher = utils.ignore_matcher(tmp_path, ["a\nb\r\n", "# c", "\udcff", "\\#d"], include_default_ignores=False)
    assert {path for path in ("a", "b", "c", "# c", "\udcff", "#d", "") if matcher.excludes(path, False)} == {
        *("a", "b", "\udcff", "#d")
    }
