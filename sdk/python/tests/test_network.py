"""The hosts that a sandbox may reach."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from conftest import on_both

from agentfense import AsyncSandbox, InvalidConfigurationError, PermissionDeniedError, RuntimeType, Sandbox

pytestmark = pytest.mark.usefixtures("home")


@on_both
def test_hosts_are_granted_and_revoked(project: Path, runtime: RuntimeType) -> None:
    def resolves(name: str) -> bool:
        return sandbox.exec(f"getent hosts {name} || nslookup {name}").exit_code == 0

    with Sandbox.from_local(project, allow_net="example.com", net_limits="out=50M", runtime=runtime) as sandbox:
        assert sandbox.info.net_limits == ["out=50M"]
        assert resolves("example.com")
        assert not resolves("a.example.org")
        first, second = sandbox.policy.grant(["a.example.org"], grant_for=timedelta(hours=1))
        assert (first.host, first.until) == ("example.com:443", None)
        assert second.host == "a.example.org:443"
        assert second.until is not None
        assert second.until.replace(tzinfo=timezone.utc) > datetime.now(timezone.utc) + timedelta(minutes=50)
        assert resolves("a.example.org")
        assert [host.host for host in sandbox.policy.revoke("example.com")] == ["a.example.org:443"]
        assert not resolves("example.com")
        assert sandbox.policy.hosts() == [second]
        with pytest.raises(PermissionDeniedError, match=r"example\.net:443: not among the hosts"):
            sandbox.policy.grant("example.net")


def test_hosts_on_an_event_loop(project: Path) -> None:
    async def main() -> None:
        async with await AsyncSandbox.from_local(
            project, allow_net=["example.com"], net_limits=["out=1M", "new=1/s"]
        ) as sandbox:
            assert sandbox.info.net_limits == ["new=1/s", "out=1M"]
            await sandbox.policy.grant("a.example.org")
            assert [host.host for host in await sandbox.policy.hosts()] == ["example.com:443", "a.example.org:443"]
            assert await sandbox.policy.revoke(["example.com", "a.example.org"]) == []

    asyncio.run(main())


def test_malformed_limits_are_refused(project: Path) -> None:
    with pytest.raises(InvalidConfigurationError, match='net_limits: "out=much": want a number of bytes'):
        Sandbox.from_local(project, net_limits=["out=much"])
    with pytest.raises(TypeError, match="net_limits: want a string, not int"):
        Sandbox.from_local(project, net_limits=[5])  # type: ignore[list-item]


def test_a_port_inside_is_published(project: Path) -> None:
    with Sandbox.from_local(project, publish="3457") as sandbox:
        assert sandbox.info.publish == ["3457:3457"]
        with suppress(ConnectionResetError):  # nothing listens inside
            socket.create_connection((sandbox.info.publish_address, 3457), timeout=10).close()
    with pytest.raises(InvalidConfigurationError, match=r"publish: .*cannot listen at ports below 1024"):
        Sandbox.from_local(project, publish=["80"])


def test_without_hosts_there_is_no_network(project: Path) -> None:
    with Sandbox.from_local(project) as sandbox:
        assert sandbox.policy.hosts() == []
        assert "eth" not in sandbox.run("cat /proc/net/dev").stdout
