"""Policies as values and as files, compared with the command line's reading of the same files."""

from __future__ import annotations

import copy
import itertools
import json
import os
import pickle
import random
import re
import subprocess
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pytest

from agentfense import (
    AsyncSandbox,
    AsyncSandboxClient,
    InvalidConfigurationError,
    PatternType,
    Permission,
    PermissionRule,
    Policy,
    PolicyError,
    RedactFormat,
    RuleOrigin,
    Sandbox,
    SandboxClient,
    extend_preset,
    presets,
)
from agentfense._policyfile import _SPECIAL

AUTO, GLOB, DIRECTORY, FILE = PatternType.AUTO, PatternType.GLOB, PatternType.DIRECTORY, PatternType.FILE

ODD = [
    "*.pem",
    "&a: *b",
    "\\!not",
    "&anchor",
    "%directive",
    "@at",
    "`tick",
    "- item",
    "# comment",
    "key: value",
    "'single' \"double\"",
    "back\\\\slash",
    " leading and trailing ",
    "tab\there",
    "line\nbreak\r\n---\n...",
    "\x01\x1b]31m\x7f\x85\xa0",
    "\u2028\u2029\ufeff\u200b\ue000",
    "ä é e\u0301 日本 😀",
    "null",
    "~",
    "yes",
    "1",
    "0x10",
    "2026-01-01",
    "<<",
    "=",
    "{a,b}",
    "[a-z]*",
    "|",
    ">",
    "?",
]
"""Patterns that YAML would take for something else, or not at all."""


def cli(home: Path, *args: str, cwd: Optional[Path] = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "AGENTFENSE_HOME": str(home)}
    command = [os.environ["AGENTFENSE_BINARY"], "policy", *args]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, timeout=60)


# Policies as values


def test_a_policy_is_built_step_by_step() -> None:
    policy = Policy("development").hide("*.sqlite", "/data/").read("/vendor/**", priority=30).view("x", type=FILE)
    assert policy.preset == "development"
    assert policy.own_rules == [
        PermissionRule("*.sqlite", Permission.NONE, AUTO, 100),
        PermissionRule("/data/", Permission.NONE, AUTO, 100),
        PermissionRule("/vendor/**", Permission.READ, AUTO, 30),
        PermissionRule("x", Permission.VIEW, FILE, 20),
    ]
    assert policy.rules == presets.get_preset("development") + policy.own_rules
    assert policy.rule({"pattern": "/y"}).own_rules[-1] == PermissionRule("/y", Permission.READ, GLOB, 0)
    assert Policy().rules == []
    assert Policy("read-only", [PermissionRule("/y")]) == Policy("read-only").rule(PermissionRule("/y"))


def test_a_policy_is_immutable() -> None:
    policy = Policy("read-only").hide("x")
    policy.rules[0].permission = Permission.WRITE
    policy.own_rules[0].pattern = "y"
    policy.write("y")
    assert policy == Policy("read-only").hide("x") and hash(policy) == hash(Policy("read-only").hide("x"))
    with pytest.raises(FrozenInstanceError):
        policy.preset = "full-access"  # type: ignore[misc]
    assert policy != Policy("read-only") and policy != Policy("view-only").hide("x")
    assert copy.deepcopy(policy) == pickle.loads(pickle.dumps(policy)) == policy
    assert repr(Policy("read-only")) == "Policy('read-only', [])"


def test_policies_are_joined() -> None:
    secrets = Policy().hide("*.key")
    assert Policy("read-only").extend(secrets) == Policy("read-only").hide("*.key")
    assert Policy("read-only").extend(Policy("read-only").hide("x")) == Policy("read-only").hide("x")
    assert Policy().extend(Policy("read-only")) == Policy("read-only")
    joined = secrets.extend(Policy("read-only"))
    assert (joined.preset, joined.rules) == (None, secrets.rules + presets.get_preset("read-only"))
    overrides = extend_preset("agent-safe", overrides=[{"pattern": "/x", "permission": "none"}])
    assert Policy(rules=overrides).rules == overrides


def test_a_preset_that_the_command_line_lacks_becomes_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "PRESETS", dict(presets.PRESETS))
    presets.register_preset("mine", [PermissionRule("/x")])
    presets.PRESETS["read-only"] = [PermissionRule("/y")]
    for name, pattern in (("mine", "/x"), ("read-only", "/y")):
        policy = Policy(name)
        assert (policy.preset, policy.rules) == (None, [PermissionRule(pattern)])
        assert Policy.from_yaml(policy.to_yaml()) == policy
    text = "version: 1\npreset: read-only\n"
    assert Policy.from_yaml(text).hide("z").rules[0] == PermissionRule("**/*", Permission.READ)
    with pytest.raises(PolicyError, match='unknown preset "mine"'):
        Policy.from_yaml("version: 1\npreset: mine\n")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Policy("agent_safe"), "did you mean 'agent-safe'"),
        (lambda: Policy().read(""), "want a pattern that is a non-empty string"),
        (lambda: Policy().read(["a"]), "want a pattern that is a non-empty string"),  # type: ignore[arg-type]
        (lambda: Policy().read("a/../b"), 'name ".." is not allowed'),
        (lambda: Policy().hide("!x"), "cannot be negated"),
        (lambda: Policy().hide("a["), "a class is not closed"),
        (lambda: Policy().hide("a/", type=FILE), "write type directory"),
        (lambda: Policy().hide("\udcff"), "surrogates not allowed"),
        (lambda: Policy().hide("a" * 4097), "longer than 4096 bytes"),
        (lambda: Policy().hide("a", priority=2**31), "priority 2147483648 is not between"),
        (lambda: Policy().hide("a", type="regex"), "not a valid PatternType"),  # type: ignore[arg-type]
        (lambda: Policy().rule({"pattern": "a", "permisson": "none"}), "unknown key 'permisson'"),
        (
            lambda: Policy(rules=[{"pattern": "a", "permission": "none", "origin": "hide"}]),
            "a rule from a flag of the command",
        ),
        (lambda: Policy.load("/nowhere/policy.yaml"), "^/nowhere/policy.yaml: No such file"),
        (lambda: Policy.load("/"), "^/: is a directory: want a regular file$"),
        (lambda: Policy.load("/dev/zero"), "^/dev/zero: is a device: want a regular file$"),
    ],
)
def test_invalid_arguments_are_refused(make: object, says: str) -> None:
    assert callable(make)
    for kind in (PolicyError, InvalidConfigurationError, ValueError):
        with pytest.raises(kind, match=says):
            make()


# Policies as files


def test_the_file_is_what_a_person_would_write(tmp_path: Path) -> None:
    policy = Policy("development").write("/src/").rule(PermissionRule("a b", Permission.VIEW, FILE))
    text = (
        "version: 1\npreset: development\nrules:\n"
        '  - pattern: "/src/"\n    permission: write\n    priority: 20\n'
        '  - pattern: "a b"\n    permission: view\n    type: file\n'
    )
    assert policy.to_yaml() == text
    policy.save(tmp_path / "p.yaml")
    assert (tmp_path / "p.yaml").read_text() == text
    assert Policy.load(tmp_path / "p.yaml") == Policy.load(str(tmp_path / "p.yaml")) == policy
    assert Policy().to_yaml() == "version: 1\nrules: []\n"
    assert Policy("read-only").to_yaml() == "version: 1\npreset: read-only\n"


def test_every_pattern_is_written_safely(home: Path, tmp_path: Path) -> None:
    policy = Policy("full-access").hide(*ODD, type=FILE)
    for kind in PatternType:
        policy = policy.view(*ODD, type=kind, priority=-1)
    assert Policy.from_yaml(policy.to_yaml()) == policy
    assert {c for c in policy.to_yaml() if not c.isprintable()} == {"\n"}
    policy.save(tmp_path / "odd.yaml")
    checked = cli(home, "check", str(tmp_path / "odd.yaml"))
    assert checked.returncode == 0, checked.stderr
    told = explained(home, tmp_path / "odd.yaml", [*ODD, "else"], tmp_path)
    assert told == {**dict.fromkeys(ODD, "none"), "else": "write"}


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\npreset: read-only",
        "# a comment\n---\nversion: '1'\nrules:\n- {permission: view, pattern: !!str 1}\n...\n",
        'version: 1\npreset: "view-only"\nrules: []\n',
        "{version: 1, rules: [{pattern: yes, permission: write, priority: +007}]}",
        'version: 1\nrules:\n  - pattern: "\\u0041\\x2f\\U0001F600"\n    permission: "read"\n    priority: "-3"\n',
        "version: 1\nrules:\n  - pattern: |-\n      a\n    permission: >-\n      view\n    type: directory\n",
        "\ufeffversion: 1\nrules: &a\n  - &b {pattern: 2026-01-01, permission: read}\n",
        "%YAML 1.1\n---\nversion: 1\nrules: [{pattern: <<, permission: read, type: file}]",
    ],
)
def test_policy_files_are_read_as_by_the_command_line(text: str, home: Path, tmp_path: Path) -> None:
    theirs, ours = tmp_path / "theirs.yaml", tmp_path / "ours.yaml"
    theirs.write_text(text)
    policy = Policy.load(theirs)
    policy.save(ours)
    assert Policy.load(ours) == policy
    paths = ["1", "yes", "a", "a/b", "A/😀", "2026-01-01", "<<", "x/y"]
    told = explained(home, theirs, paths, tmp_path)
    assert told == explained(home, ours, paths, tmp_path)
    assert len(told) == len(paths) and set(told.values()) != {"none"}


RULE = "version: 1\nrules:\n  - pattern: x\n    permission: read\n"

WRONG = [
    "",
    "# nothing\n",
    "---\n",
    "- version: 1\n",
    "text\n",
    "version: 1\n",
    "preset: read-only\n",
    "\n\nversion: 2\npreset: read-only\n",
    "version: 1.0\npreset: read-only\n",
    "version:\npreset: read-only\n",
    "version: [1]\npreset: read-only\n",
    "version: 1\nversion: 1\n",
    "version: 1\npreset: readonly\n",
    "version: 1\npreset: zzzzzzzzz\n",
    "version: 1\npreset: null\n",
    "version: 1\nrule: []\n",
    "version: 1\n? [a]\n: b\n",
    "version: 1\n<<: {}\n",
    "version: 1\nrules: {}\n",
    "version: 1\nrules:\n",
    "version: 1\nrules: x\n",
    "version: 1\nrules: [x]\n",
    "version: 1\nrules: [[]]\n",
    "version: 1\nrules:\n  -\n",
    RULE + "    type: regex\n",
    RULE + "    type: auto\n",
    RULE + "    type: dir\n",
    RULE + "    prioritty: 1\n",
    RULE + "    priority: high\n",
    RULE + "    priority: 1.5\n",
    RULE + "    priority: 1_000\n",
    RULE + "    priority: 2147483648\n",
    RULE + "    priority: ''\n",
    RULE + "    permission: read\n",
    RULE + "  - pattern: x\n",
    RULE + "  - permission: none\n",
    RULE + "  - {pattern: x, permission: rwx}\n",
    RULE + "  - {pattern: x, permission: wirte}\n",
    RULE + "  - {pattern: x, permission: Write}\n",
    RULE + "  - {pattern: '', permission: read}\n",
    RULE + "  - {pattern: , permission: read}\n",
    RULE + "  - {pattern: [x], permission: read}\n",
    RULE + "  - {pattern: {x}, permission: read}\n",
    RULE + "  - {pattern: !x y, permission: read}\n",
    RULE + "  - {pattern: &x y, permission: read}\n",
    RULE + "  - {pattern: !!binary eA==, permission: read}\n",
    RULE + "  - {pattern: '!x', permission: read}\n",
    RULE + "  - {pattern: 'a{', permission: read}\n",
    RULE + "  - permission: read\n    pattern:\n      '[z-a]'\n",
    RULE + "  - {pattern: 'a/../b', permission: read}\n",
    RULE + "  - {pattern: 'a/', permission: read, type: file}\n",
    RULE + "---\nversion: 1\n",
]
"""Files that are refused, for one reason each."""

NOT_YAML = [
    RULE + "  - {pattern: *.pem, permission: read}\n",
    RULE + "  - {pattern: @x, permission: read}\n",
    "version: 1\nrules: [\n",
    "version: 'x\n",
    "version: 1\n preset: x\n",
    "a: b: c\n",
    "version: 1\n\x01\n",
    'version: "\\q"\n',
]


@pytest.mark.parametrize("text", WRONG, ids=lambda text: text[-30:].strip())
def test_errors_are_those_of_the_command_line(text: str, home: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(text)
    checked = cli(home, "check", "wrong.yaml", cwd=tmp_path)
    assert checked.returncode == 125, checked
    with pytest.raises(PolicyError) as caught:
        Policy.from_yaml(text, "wrong.yaml")
    assert "agentfense: " + str(caught.value) == checked.stderr.splitlines()[0]
    assert caught.value.file == "wrong.yaml" and f"wrong.yaml:{caught.value.line}:" in checked.stderr


@pytest.mark.parametrize("text", NOT_YAML, ids=lambda text: text[-30:].strip())
def test_malformed_yaml_is_refused(text: str, home: Path, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(text)
    assert cli(home, "check", "wrong.yaml", cwd=tmp_path).returncode == 125
    with pytest.raises(PolicyError, match=r"^p:\d+: not YAML: "):
        Policy.from_yaml(text, "p")


def test_an_error_says_that_a_pattern_must_be_quoted() -> None:
    with pytest.raises(PolicyError, match=r"^p:4: not YAML: .*; quote a value that begins with one of \*"):
        Policy.from_yaml("version: 1\nrules:\n  - permission: read\n    pattern: *.pem\n", "p")
    with pytest.raises(PolicyError, match=r"^p:4: pattern is text, not an alias: quote"):
        Policy.from_yaml("version: 1\nrules:\n  - permission: read\n    pattern: *pem\n", "p")


def test_a_long_line_that_is_not_yaml_is_refused_quickly() -> None:
    """Its time grew with the cube of its length, here to hours."""
    for text in (" " * 100_000 + "]", "rules: [" + "\n" + " " * 100_000 + "- : }", "- " * 90 + " " * 100_000 + "]"):
        with pytest.raises(PolicyError, match=r"^p:\d+: not YAML: "):
            Policy.from_yaml(text, "p")


def test_the_hint_about_quotes_as_on_the_command_line() -> None:
    plain = re.compile(r"^[ \t]*(- )*[ \t]*([a-z]+:)?[ \t]+[*&!{\[@%`|>]")
    for line in map("".join, itertools.product(" \t-a:*", repeat=6)):
        assert bool(_SPECIAL.match(line)) == bool(plain.match(line)), line


def test_files_of_other_kinds_are_refused(tmp_path: Path) -> None:
    for content, says in (
        (b"version: 1\n\xff\n", ":2: not YAML: byte 0xff is no UTF-8"),
        (b"#" * (8 << 20) + b"\n", ":1: the file is longer than 8388608 bytes"),
        (b"[" * 100_000, ":1: the file is nested"),
    ):
        (tmp_path / "p").write_bytes(content)
        with pytest.raises(PolicyError, match=says):
            Policy.load(tmp_path / "p")


# Decisions


def explained(home: Path, file: Path, paths: List[str], cwd: Path) -> Dict[str, str]:
    """Return what the command line makes of paths."""
    told = cli(home, "explain", "--policy", str(file), "--json", "--", *paths, cwd=cwd)
    assert told.returncode == 0, told.stderr
    found = json.loads(told.stdout)["paths"]
    return {path: one["permission"] + " traversable" * one["traversable"] for path, one in zip(paths, found)}


PARTS = ["a", "b", "ab", "*", "**", "a*", "*b", "*.pem", ".env*", "?", "[ab]", "[!a]", "{a,b}", "é", "x y", "\\*"]
NAMES = ["a", "b", "ab", ".env", "x.pem", "é", "x y", "*"]


def random_policy(random: random.Random) -> Policy:
    policy = Policy(random.choice([None, None, "agent-safe", "development", "view-only"]))
    for _ in range(random.randrange(8)):
        kind = random.choice([AUTO, AUTO, GLOB, DIRECTORY, FILE])
        parts = PARTS if kind in (AUTO, GLOB) else NAMES
        pattern = random.choice(["", "", "/", "./"]) + "/".join(random.choices(parts, k=random.randint(1, 3)))
        if kind is not FILE:
            pattern += random.choice(["", "", "/"])
        permission = random.choice([Permission.NONE, *Permission])
        priority = random.choice([0, 0, -1, 1, 20, 100])
        policy = policy.rule(PermissionRule(pattern, permission, kind, priority))
    return policy


@pytest.fixture
def unstarted(home: Path, project: Path) -> Iterator[Sandbox]:
    with Sandbox.from_local(project, auto_start=False) as sandbox:
        yield sandbox


def test_the_command_line_and_the_server_decide_alike(unstarted: Sandbox, home: Path, project: Path) -> None:
    choose = random.Random(5)
    file = project / "p.yaml"
    for _ in range(25):
        policy = random_policy(choose)
        policy.save(file)
        assert Policy.load(file) == policy
        unstarted.set_policy(policy=file)
        assert unstarted.info.permissions == unstarted.policy.rules() == policy.rules
        paths = ["/".join(choose.choices(NAMES, k=choose.randint(1, 4))) for _ in range(20)]
        want = explained(home, file, paths, project)
        for path in paths:
            why = unstarted.policy.explain(path)
            assert why.permission.value + " traversable" * why.traversable == want[path], (policy, path)


def test_each_pattern_is_refused_here_if_the_server_refuses_it(unstarted: Sandbox, client: SandboxClient) -> None:
    choose = random.Random(7)
    alphabet = ["a", "b", "é", "/", "/", "*", "**", "?", "[", "]", "{", "}", ",", "\\", "!", "^", "-", ".", "..", "[:"]
    cases = [
        ("".join(choose.choices(alphabet, k=choose.randint(1, 7))), choose.choice(list(PatternType)))
        for _ in range(600)
    ]
    cases += [("{" * 600 + "a" + "}" * 600, GLOB), ("{a}" * 1300, AUTO), ("{a,b}" * 11, GLOB), ("{a,b}" * 10, GLOB)]
    cases += [("/".join(["**", "a"] * n), GLOB) for n in (15, 16, 17)] + [("a/" * 15 + "**/b/" * 16, GLOB)]
    cases += [("a" * n + star, kind) for n in (255, 256) for star in ("", "*", "?") for kind in (AUTO, FILE)]
    good: List[PermissionRule] = []
    for pattern, kind in cases:
        rule = PermissionRule(pattern, Permission.NONE, kind)
        try:
            Policy(rules=[rule])
            good.append(rule)
        except PolicyError as error:
            with pytest.raises(InvalidConfigurationError) as caught:
                client.set_policy(unstarted.id, [rule])
            assert str(caught.value).endswith(str(error).split(": ", 1)[1]), (pattern, kind)
    client.set_policy(unstarted.id, good)
    assert 50 < len(good) < len(cases) - 50


# Sandboxes


def test_a_sandbox_of_a_policy(home: Path, project: Path, tmp_path: Path) -> None:
    policy = Policy("read-only").write("/src/").hide("*.md")
    policy.save(tmp_path / "p.yaml")
    with Sandbox.from_local(project, policy=policy) as sb:
        assert sb.policy.rules() == policy.rules
        assert sb.run("cat README.md || echo x > src/lib.py && echo y > main.py").exit_code != 0
        assert [change.path for change in sb.diff()] == ["src/lib.py"]
        with Sandbox.from_codebase(sb.codebase_id, policy=str(tmp_path / "p.yaml"), auto_start=False) as other:
            assert other.policy.rules() == policy.rules
        assert sb.set_policy(policy=Policy().read("/main.py")).run("ls -A").stdout == "main.py\n"
        why = sb.policy.explain("README.md")
        assert (why.permission, why.rule) == (Permission.NONE, None)
        assert sb.set_policy([]).run("ls -A").stdout == ""


async def test_an_async_sandbox_of_a_policy(home: Path, project: Path, tmp_path: Path) -> None:
    policy = Policy("read-only").hide("*.md")
    policy.save(tmp_path / "p.yaml")
    async with await AsyncSandbox.from_local(project, policy=tmp_path / "p.yaml") as sb:
        assert await sb.policy.rules() == policy.rules
        assert (await sb.policy.explain("README.md")).permission is Permission.NONE
        await sb.set_policy(policy=Policy("view-only"))
        assert (await sb.policy.explain("README.md")).permission is Permission.VIEW
        async with await AsyncSandbox.from_codebase(sb.codebase_id, policy=policy, auto_start=False) as other:
            assert await other.policy.rules() == policy.rules


def test_paths_that_a_flag_hides_remain_hidden(unstarted: Sandbox) -> None:
    """Rules of a sandbox of the command line mean the same when they are sent back."""
    hidden = PermissionRule("x", Permission.NONE, AUTO, -1, RuleOrigin.HIDE)
    unstarted.set_policy([hidden])
    unstarted.set_policy([*unstarted.policy.rules(), PermissionRule("/x", Permission.WRITE, FILE, 1000)])
    assert unstarted.policy.explain("x").rule == hidden


def test_a_policy_excludes_preset_and_permissions(home: Path, project: Path, unstarted: Sandbox) -> None:
    policy = Policy("read-only")
    alternatives: List[Dict[str, Any]] = [{"preset": "development"}, {"preset": "agent" + "-safe"}, {"permissions": []}]
    for more in alternatives:
        with pytest.raises(ValueError, match="policy excludes preset and permissions"):
            Sandbox.from_local(project, policy=policy, **more)
        with pytest.raises(ValueError, match="policy excludes preset and permissions"):
            unstarted.set_policy(policy=policy, **more)
    with pytest.raises(ValueError, match="pass a Policy as policy="):
        unstarted.set_policy(policy)  # type: ignore[arg-type]
    with pytest.raises(PolicyError, match=r"policy\.yaml: No such file"):
        Sandbox.from_local(project, policy=project / "policy.yaml")


async def test_a_policy_without_rules_is_explicit(unstarted: Sandbox, async_client: AsyncSandboxClient) -> None:
    """It would hide everything."""
    before = unstarted.policy.rules()
    says = "^no rules: give permissions"
    for call in (unstarted.set_policy, lambda: unstarted.client.set_policy(unstarted.id, None)):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=says):
            call()
    with pytest.raises(ValueError, match=says):
        await async_client.set_policy(unstarted.id, None)  # type: ignore[arg-type]
    again = await AsyncSandbox.connect(unstarted.id)
    with pytest.raises(ValueError, match=says):
        await again.set_policy()
    await again.close()
    assert before and unstarted.policy.rules() == before


def test_the_policy_file_of_a_project_grants_nothing(home: Path, project: Path) -> None:
    """It came with the project: who wants it names it."""
    file = project / ".agentfense.yaml"
    Policy("full-access").save(file)
    with Sandbox.from_local(project) as sb:
        assert sb.policy.rules() == presets.get_preset("agent-safe")
        assert sb.run("echo x > main.py").exit_code != 0
    with Sandbox.from_local(project, policy=file) as sb:
        assert sb.run("echo x > main.py").exit_code == 0
        assert sb.run("echo x > .agentfense.yaml").exit_code != 0


def test_reading_a_policy_file_does_not_block(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(PolicyError, match=r"fifo: is a FIFO: want a regular file$"):
        Policy.load(fifo)
    huge = tmp_path / "huge"
    huge.touch()
    os.truncate(huge, 1 << 42)
    with pytest.raises(PolicyError, match="the file is longer than 8388608 bytes"):
        Policy.load(huge)


def test_a_policy_is_read_from_a_pipe_of_this_process() -> None:
    read, write = os.pipe()
    try:
        os.write(write, b"version: 1\npreset: read-only\n")
        os.close(write)
        assert Policy.load(f"/dev/fd/{read}") == Policy("read-only")
    finally:
        os.close(read)


def test_a_policy_file_with_hosts_is_refused() -> None:
    says = "3: network: a policy has no hosts: leave it out, and name them with allow_net="
    with pytest.raises(PolicyError, match=re.escape(says)):
        Policy.from_yaml("version: 1\npreset: read-only\nnetwork: {allow: [a.example]}\n")


def test_a_policy_file_can_show_other_contents() -> None:
    policy = Policy.from_yaml("version: 1\nrules:\n  - {pattern: .env, redact: env}\n  - {pattern: a, substitute: b}\n")
    assert [(rule.permission, rule.redact, rule.substitute) for rule in policy.own_rules] == [
        (Permission.READ, RedactFormat.ENV, ""),
        (Permission.READ, None, "b"),
    ]
    assert Policy.from_yaml(policy.to_yaml()) == policy


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ("redact: other", '3: unknown format "other": it is one of env, json, yaml, toml'),
        ("redact: jsn", '3: unknown format "jsn": did you mean "json"?'),
        ('substitute: ""', "3: substitute is empty: name a file of the workspace"),
        ("permission: write, redact: env", "3: redact: env goes with permission read, not write"),
        ("redact: env, substitute: b", "redact and substitute exclude each other"),
    ],
)
def test_a_policy_file_with_a_malformed_content_is_refused(rule: str, says: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(says)):
        Policy.from_yaml("version: 1\nrules:\n  - {pattern: a, " + rule + "}\n")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("scratch: [a]", "3: scratch: a policy has no scratch directories: leave it out, and name them with scratch="),
        ("rules:\n  - {pattern: a, permission: write, apply: keep}", "4: apply: keep: a policy keeps no state"),
        ("rules:\n  - {pattern: a, permission: write, keys: [a]}", "4: keys go with apply: keep"),
        ("rules:\n  - {pattern: a, permission: write, apply: kep}", '4: unknown apply "kep": did you mean "keep"?'),
    ],
)
def test_a_policy_file_with_what_only_the_command_line_knows_is_refused(text: str, says: str) -> None:
    with pytest.raises(PolicyError, match=re.escape(says)):
        Policy.from_yaml("version: 1\npreset: read-only\n" + text + "\n")


def test_changes_that_a_policy_file_lets_wait_do() -> None:
    text = "version: 1\nrules:\n  - {pattern: a, permission: write, apply: review}\n"
    assert Policy.from_yaml(text) == Policy.from_yaml(text.replace(", apply: review", ""))


def test_the_marks_of_a_policy_file_are_checked() -> None:
    text = "version: 1\npreset: read-only\nmarks:\n"
    assert Policy.from_yaml(text + "  - {pattern: /ops/, reason: the deployer runs it}\n") == Policy("read-only")
    for line, says in (
        ("  - {pattern: x}", '4: mark "x": reason is missing: say what runs or obeys the file'),
        ("  - {reason: x}", "4: pattern is missing in the mark"),
        ("  - {pattern: x, reason: y, risk: none}", '4: unknown key "risk": it is one of pattern, reason'),
        ("  x", "4: marks is a list, not a single value"),
    ):
        with pytest.raises(PolicyError, match=re.escape(says)):
            Policy.from_yaml(text + line + "\n")
