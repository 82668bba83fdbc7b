"""The pytest plugin, in separate test runs, with real sandboxes."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import wait_until

import agentfense
from agentfense import SandboxClient
from agentfense.integrations.pytest import _settings

pytest_plugins = ["pytester"]


@pytest.fixture
def tests(home: Path, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A directory of tests that use the plugin."""
    monkeypatch.setenv("PYTHONPATH", str(Path(agentfense.__file__).parents[1]))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # of other tools: they take their time
    pytester.makeconftest('pytest_plugins = ["agentfense.integrations.pytest"]')
    return pytester


def check_none_left(client: SandboxClient) -> None:
    assert client.list_sandboxes() == []
    assert client.list_codebases() == []


def test_a_sandbox_of_tmp_path(tests: pytest.Pytester, client: SandboxClient) -> None:
    tests.makepyfile(
        """
        def test_it(sandbox, tmp_path):
            (tmp_path / "a").write_text("one")
            assert sandbox.run("cat a; mkdir output && echo two > output/b").stdout == "one"
            assert sandbox.run("echo x > a").exit_code != 0, "agent-safe"
            assert sandbox.info.labels == {"test": "test_a_sandbox_of_tmp_path.py::test_it"}
            assert not (tmp_path / "output").exists()
            sandbox.apply()
            assert (tmp_path / "output/b").read_text() == "two\\n"
        """
    )
    tests.runpytest_subprocess().assert_outcomes(passed=1)
    check_none_left(client)


def test_markers_and_settings(tests: pytest.Pytester, client: SandboxClient) -> None:
    example = tests.mkdir("example")
    (example / "a").write_text("example")
    tests.makeini("[pytest]\nsandbox_preset = view-only\nsandbox_path = example\n")
    tests.makepyfile(
        """
        import pytest

        def test_settings(sandbox):
            assert sandbox.run("ls").stdout == "a\\n"
            assert sandbox.run("cat a").exit_code != 0

        @pytest.mark.sandbox(preset="read-only", labels={"more": "1"})
        class TestMarked:
            def test_class(self, sandbox):
                assert sandbox.run("cat a").stdout == "example"
                assert sandbox.info.labels["more"] == "1"

            @pytest.mark.sandbox("example", preset="development", link=False)
            def test_nearest(self, sandbox):
                assert sandbox.run("echo x > a; cat a").stdout == "x\\n"
                assert not sandbox.codebase.linked

        def test_factory(make_sandbox, tmp_path):
            one, two = make_sandbox(tmp_path, preset="full-access"), make_sandbox()
            assert one.run("echo > made; ls").stdout == "made\\n"
            assert two.run("ls").stdout == "a\\n"
        """
    )
    tests.runpytest_subprocess("--strict-markers").assert_outcomes(passed=4)
    check_none_left(client)


def test_policies(tests: pytest.Pytester, client: SandboxClient) -> None:
    for name, permission in (("read", "read"), ("write", "write")):
        rules = f"version: 1\nrules: [{{pattern: '**', permission: {permission}}}]\n"
        (tests.path / f"{name}.yaml").write_text(rules)
    tests.makeini("[pytest]\nsandbox_policy = read.yaml\n")
    tests.makepyfile(
        """
        import pytest
        from agentfense import Policy

        def test_settings(sandbox):
            assert [r.permission.value for r in sandbox.policy.rules()] == ["read"]

        @pytest.mark.sandbox(policy="write.yaml")
        def test_file(sandbox):
            assert [r.permission.value for r in sandbox.policy.rules()] == ["write"]

        @pytest.mark.sandbox(policy="write.yaml")
        class TestNearest:
            @pytest.mark.sandbox(preset="view-only")
            def test_preset(self, sandbox, make_sandbox):
                assert [r.permission.value for r in sandbox.policy.rules()] == ["view"]
                hidden = make_sandbox(policy=Policy().hide("a"))
                assert [r.permission.value for r in hidden.policy.rules()] == ["none"]
        """
    )
    tests.runpytest_subprocess().assert_outcomes(passed=3)
    check_none_left(client)


def test_a_test_s_sandbox_expires(tests: pytest.Pytester, client: SandboxClient) -> None:
    tests.makeini("[pytest]\nsandbox_expires_in = 7200\n")
    tests.makepyfile(
        """
        import pytest

        def seconds(sandbox):
            return (sandbox.info.expires_at - sandbox.info.created_at).total_seconds()

        def test_setting(sandbox):
            assert seconds(sandbox) == pytest.approx(7200, abs=60)

        @pytest.mark.sandbox(expires_in=1800)
        def test_marker(sandbox, make_sandbox):
            assert seconds(sandbox) == pytest.approx(1800, abs=60)
            assert make_sandbox(expires_in=None).info.expires_at is None
        """
    )
    tests.runpytest_subprocess().assert_outcomes(passed=2)
    check_none_left(client)
    with pytest.raises(pytest.UsageError, match="sandbox_expires_in: 'a day' is not a number of seconds"):
        _settings(tests.parseconfig("-o", "sandbox_expires_in=a day"))


def test_sandboxes_of_a_killed_run_expire(tests: pytest.Pytester, client: SandboxClient) -> None:
    tests.makepyfile("import os, signal\n\ndef test_it(sandbox):\n    os.kill(os.getpid(), signal.SIGKILL)\n")
    assert tests.runpytest_subprocess().ret == -signal.SIGKILL
    (left,) = client.list_sandboxes()
    assert left.expires_at is not None and left.created_at is not None
    assert (left.expires_at - left.created_at).total_seconds() == pytest.approx(24 * 3600)
    client.destroy_sandbox(left.id)
    client.delete_codebase(left.codebase_id)
    check_none_left(client)


def test_invalid_markers(tests: pytest.Pytester, client: SandboxClient) -> None:
    says = {
        '"one", "two"': "marker sandbox: only the path may be a positional",
        'preset="agent-save"': "did you mean 'agent-safe'",
        '"absent"': "absent",
        "colour=1": "colour",
    }
    marked = [f"@pytest.mark.sandbox({marker})\ndef test_{n}(sandbox): pass\n" for n, marker in enumerate(says)]
    tests.makepyfile("import pytest\n" + "".join(marked))
    result = tests.runpytest_subprocess()
    result.assert_outcomes(errors=len(says))
    result.stdout.fnmatch_lines([f"E *{text}*" for text in says.values()])
    check_none_left(client)


FAILING = """
    import pytest

    @pytest.fixture
    def broken(sandbox):
        sandbox.run("echo in a fixture")
        raise RuntimeError

    def test_failing(sandbox, tmp_path):
        (tmp_path / "a").write_text("one")
        sandbox.run("echo x > a; cat .env; mkdir -p output; echo y > $(printf 'output/b\\\\033'); exit 3")
        assert False

    def test_in_a_fixture(broken):
        pass

    def test_passing(sandbox):
        sandbox.run("echo not to be shown")
"""


def test_a_failure_shows_what_happened(tests: pytest.Pytester, client: SandboxClient) -> None:
    tests.makepyfile(FAILING)
    result = tests.runpytest_subprocess()
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "*- sandbox sb_* of */test_in_a_fixture0 -*",
            "command_executed * echo in a fixture",
            "*- sandbox sb_* of */test_failing0 -*",
            'permission_denied open /a: read by "*"',
            'permission_denied open /.env: none by "[*][*]/.env*"',
            "command_executed [[]exit code 3] echo x > a; *",
            "changed A output/b\\u{1b}",
        ]
    )
    result.stdout.no_fnmatch_line("*not to be shown*")
    check_none_left(client)


def test_the_first_failure_ends_the_run_and_leaves_nothing(tests: pytest.Pytester, client: SandboxClient) -> None:
    tests.makepyfile(FAILING)
    tests.runpytest_subprocess("-x").assert_outcomes(failed=1)
    check_none_left(client)


def test_a_sandbox_that_is_gone_is_reported(tests: pytest.Pytester) -> None:
    tests.makepyfile("def test_it(sandbox):\n    sandbox.client.destroy_sandbox(sandbox.id)\n    assert False")
    result = tests.runpytest_subprocess()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["what happened in it cannot be told: *"])


def test_a_reason_and_a_directory_are_shown_escaped(tests: pytest.Pytester) -> None:
    tests.makepyfile(
        """
        from agentfense import SandboxError

        def test_it(make_sandbox, tmp_path):
            (tmp_path / "a\\x1b[2J").mkdir()
            sandbox = make_sandbox(tmp_path / "a\\x1b[2J")
            def fail(**options):
                raise SandboxError("audit: /b\\x1b[2J")
            sandbox.audit = fail
            assert 0
        """
    )
    result = tests.runpytest_subprocess()
    result.stdout.fnmatch_lines(
        ["*- sandbox sb_* of */a\\u{1b}[[]2J -*", "what happened in it cannot be told: audit: /b\\u{1b}[[]2J"]
    )


SLEEPING = """
    def test_it(make_sandbox, tmp_path):
        make_sandbox(preset="full-access")
        make_sandbox(preset="full-access").run("touch running; exec sleep 1000", timeout=600)
"""


@pytest.mark.parametrize("options", [[], ["-pxdist", "-n1"]], ids=["alone", "xdist"])
def test_an_interrupt_leaves_nothing(tests: pytest.Pytester, client: SandboxClient, options: list[str]) -> None:
    tests.makepyfile(SLEEPING)
    command = [sys.executable, "-m", "pytest", *options]
    with subprocess.Popen(command, cwd=tests.path, stdout=subprocess.PIPE, text=True) as run:
        wait_until(lambda: any(is_running(client, s.id) for s in client.list_sandboxes()))
        run.send_signal(signal.SIGINT)
        said, _ = run.communicate(timeout=60)
    assert run.returncode == pytest.ExitCode.INTERRUPTED, said
    wait_until(lambda: not client.list_sandboxes())
    check_none_left(client)


def is_running(client: SandboxClient, sandbox_id: str) -> bool:
    return any(entry.name == "running" for entry in client.list_view(sandbox_id, ""))


def test_with_xdist(tests: pytest.Pytester, client: SandboxClient) -> None:
    tests.makepyfile(
        """
        import pytest

        @pytest.mark.parametrize("n", range(4))
        def test_it(sandbox, tmp_path, n):
            (tmp_path / "n").write_text(str(n))
            assert sandbox.run("cat n").stdout == str(n)
            assert n != 3
        """
    )
    result = tests.runpytest_subprocess("-pxdist", "-n2")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*- sandbox sb_* of *", "command_executed * cat n"])
    check_none_left(client)


def test_other_runs_are_not_slowed_down(tests: pytest.Pytester) -> None:
    tests.makepyfile(
        """
        import sys

        def test_it():
            assert not {"grpc", "google.protobuf"} & set(sys.modules)
        """
    )
    tests.runpytest_subprocess().assert_outcomes(passed=1)


def test_the_documents_example(tests: pytest.Pytester, client: SandboxClient) -> None:
    text = (Path(__file__).parents[4] / "docs/integrations.md").read_text()
    section = re.split(r"^## ", text, flags=re.MULTILINE)
    (chapter,) = [part for part in section if part.startswith("pytest\n")]
    conftest, *test_files = re.findall(r"^```python\n(.*?)^```$", chapter, re.MULTILINE | re.DOTALL)
    tests.makeconftest(conftest)
    tests.makepyfile(*test_files)
    tests.runpytest_subprocess("--strict-markers").assert_outcomes(passed=3)
    check_none_left(client)
