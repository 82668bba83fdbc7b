from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Optional

import pytest

from agentfense import InvalidConfigurationError, _endpoint, _server
from agentfense._endpoint import Endpoint, find_token, parse_endpoint

LOCAL = Endpoint("here", "dns:///localhost:9000", local=True)


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AGENTFENSE_TOKEN", "AGENTFENSE_TOKEN_FILE", "AGENTFENSE_TLS_CA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENTFENSE_HOME", str(tmp_path))


@pytest.mark.parametrize(
    ("text", "target", "secure", "local"),
    [
        ("localhost:9000", "dns:///localhost:9000", False, True),
        ("localhost", "dns:///localhost:9000", False, True),
        ("127.0.0.1:1234", "dns:///127.0.0.1:1234", False, True),
        ("http://127.0.0.1:1/", "dns:///127.0.0.1:1", False, True),
        ("[::1]:9000", "ipv6:[::1]:9000", False, True),
        ("https://localhost", "dns:///localhost:9000", True, True),
        ("example.org:9000", "dns:///example.org:9000", True, False),
        ("https://example.org", "dns:///example.org:9000", True, False),
        ("unix:///run/af.sock", "unix:/run/af.sock", False, True),
    ],
)
def test_forms(text: str, target: str, secure: bool, local: bool) -> None:
    got = parse_endpoint(text)
    assert (got.text, got.target, got.secure, got.local) == (text, target, secure, local)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("http://example.org:9000", "anybody on the way could read the token"),
        ("ftp://localhost", "want HOST:PORT"),
        ("localhost:port", "want HOST:PORT"),
        ("localhost:99999", "want HOST:PORT"),
        ("a b", "want HOST:PORT"),
        ("unix://af.sock", "absolute path"),
        ("unix:///a\0b", "absolute path"),
    ],
)
def test_invalid_endpoints(text: str, says: str) -> None:
    with pytest.raises(InvalidConfigurationError, match=says):
        parse_endpoint(text)


def test_secure_asks_for_tls() -> None:
    assert parse_endpoint("localhost:9000", secure=True).secure
    with pytest.raises(InvalidConfigurationError, match="is without TLS"):
        parse_endpoint("http://localhost:9000", secure=True)


def test_the_token_of_the_state_directory_is_sent_only_to_its_server(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("afs_home\n")
    assert find_token(LOCAL, None) is None
    assert (
        find_token(Endpoint("own", "dns:///127.0.0.1:9000", local=True, token_file=tmp_path / "token"), None)
        == "afs_home"
    )


@pytest.mark.parametrize(
    ("own", "tls", "named", "dialled"),
    [
        ("127.0.0.1:9000", False, "127.0.0.1:9000", "dns:///127.0.0.1:9000"),
        ("127.0.0.1:9000", False, "localhost:9000", "dns:///127.0.0.1:9000"),
        ("127.0.0.1:9000", False, "localhost:9001", None),
        ("127.0.0.1:9000", False, "[::1]:9000", None),
        ("127.0.0.1:9000", False, "127.0.0.2:9000", None),
        ("127.0.0.1:9000", False, "https://localhost:9000", None),
        ("127.0.0.1:9000", True, "https://localhost:9000", "dns:///localhost:9000"),
        ("0.0.0.0:9000", True, "https://localhost:9000", "dns:///localhost:9000"),
        ("unix:///run/a", False, "unix:///run/a", "unix:/run/a"),
        ("unix:///run/a", False, "unix:///run/b", None),
    ],
)
def test_the_own_server_is_not_mistaken_for_another(
    own: str, tls: bool, named: str, dialled: Optional[str], tmp_path: Path
) -> None:
    token = tmp_path / "token"
    met = _server._matched(replace(parse_endpoint(own, tls), token_file=token), parse_endpoint(named))
    assert (met.target, met.token_file) == ((dialled, token) if dialled else (parse_endpoint(named).target, None))


def test_the_precedence_of_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "token").write_text("afs_home\n")
    (tmp_path / "other").write_text("afs_file\n")
    monkeypatch.setenv("AGENTFENSE_TOKEN_FILE", str(tmp_path / "other"))
    assert find_token(LOCAL, None) == "afs_file"
    monkeypatch.setenv("AGENTFENSE_TOKEN", "afs_variable")
    assert find_token(LOCAL, None) == "afs_variable"
    assert find_token(LOCAL, "afs_given") == "afs_given"


def test_invalid_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidConfigurationError, match="the token is malformed"):
        find_token(LOCAL, "a b")
    monkeypatch.setenv("AGENTFENSE_TOKEN_FILE", str(tmp_path / "absent"))
    with pytest.raises(InvalidConfigurationError, match="absent: No such file"):
        find_token(LOCAL, None)


def test_files_for_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTFENSE_TLS_CERT", str(tmp_path / "cert"))
    with pytest.raises(InvalidConfigurationError, match="needs its key"):
        _endpoint.credentials(parse_endpoint("https://localhost"))
    monkeypatch.delenv("AGENTFENSE_TLS_CERT")
    monkeypatch.setenv("AGENTFENSE_TLS_CA", str(tmp_path / "ca"))
    assert parse_endpoint("localhost").secure
    with pytest.raises(InvalidConfigurationError, match="ca: No such file"):
        _endpoint.credentials(parse_endpoint("localhost"))


def test_the_state_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _endpoint.state_directory() == Path(os.environ["AGENTFENSE_HOME"])
    monkeypatch.delenv("AGENTFENSE_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", "/data")
    assert _endpoint.state_directory() == Path("/data/agentfense")
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/u")
    assert _endpoint.state_directory() == Path("/home/u/.local/share/agentfense")
    monkeypatch.delenv("HOME")
    assert _endpoint.state_directory() is None


def test_a_socket_with_a_long_path(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    target = parse_endpoint(f"unix://{deep}/server.sock").target
    assert target.startswith("unix:/proc/self/fd/") and len(target) < 100
    assert os.path.samefile(os.path.dirname(target[len("unix:") :]), deep)
    with pytest.raises(InvalidConfigurationError, match="No such file"):
        parse_endpoint(f"unix://{deep}/absent/server.sock")


@pytest.mark.parametrize("name", ["a,b", "100%", "%41", "a#b", "a?b", "a@b", "ä", "latin\udce4"])
def test_a_socket_whose_path_has_characters_with_a_meaning_in_grpc(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    target = parse_endpoint(f"unix://{tmp_path / name}/server.sock").target
    assert target.startswith("unix:/proc/self/fd/") and target.endswith("/server.sock")
    assert os.path.samefile(os.path.dirname(target[len("unix:") :]), tmp_path / name)
    with pytest.raises(InvalidConfigurationError, match=r"the name of a socket has at most 85 characters from A-Z"):
        parse_endpoint(f"unix://{tmp_path}/{name}")


def test_the_longest_name_of_a_socket(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 120)
    deep.mkdir()
    assert len(parse_endpoint(f"unix://{deep}/{'s' * 85}").target) <= len("unix:") + 107
    with pytest.raises(InvalidConfigurationError, match=r"the name of a socket has at most 85 characters"):
        parse_endpoint(f"unix://{deep}/{'s' * 86}")
