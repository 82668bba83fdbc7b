"""A docker daemon for the tests, with an image that has busybox, like internal/lib/testenv for the Go tests."""

from __future__ import annotations

import io
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import IO, Any, List, Optional, Type

from leaks import mounts_of, wait_until

IMAGE = "agentfense-test:latest"
_PROGRAMS = ("dockerd", "docker", "busybox", "ldd")


def why_not() -> str:
    """Say why there can be no daemon here, "" if there can."""
    missing = [name for name in _PROGRAMS if not shutil.which(name)]
    if missing:
        return f"no {', '.join(missing)} on the PATH"
    return "" if os.geteuid() == 0 else "not run as root"


class Daemon:
    """A daemon in a directory. Its host is unix://DIRECTORY/socket."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.host = f"unix://{directory}/socket"
        self._process: Optional[subprocess.Popen[bytes]] = None
        self._log: Optional[IO[bytes]] = None

    def __enter__(self) -> Daemon:
        self.directory.mkdir()
        at = str(self.directory)
        self._log = open(f"{at}/log", "wb")
        command = ["dockerd", "--host", self.host, "--data-root", f"{at}/data", "--exec-root", f"{at}/exec"]
        command += ["--pidfile", f"{at}/pid", "--bridge=none", "--iptables=false", "--ip6tables=false"]
        command += ["--ip-forward=false", "--ip-masq=false", "--shutdown-timeout=2"]
        # It goes with us, whatever becomes of us.
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *command],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={**os.environ, "TMPDIR": at},
        )
        try:
            wait_until("dockerd answers", self._answers)
            self.docker("import", "-", IMAGE, stdin=_image())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.directory / "log").read_text()
        return subprocess.run(["docker", "--host", self.host, "version"], capture_output=True).returncode == 0

    def docker(self, *arguments: str, stdin: bytes = b"") -> str:
        """Run the client, and return what it says."""
        done = subprocess.run(
            ["docker", "--host", self.host, *arguments], input=stdin, capture_output=True, timeout=60, check=True
        )
        return done.stdout.decode()

    def containers(self) -> List[str]:
        """Return the containers of sandboxes."""
        return self.docker("ps", "--all", "--quiet", "--filter", "label=agentfense.sandbox").split()

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Any) -> None:
        assert self._process is not None and self._log is not None
        self._process.terminate()
        self._process.wait(60)
        self._log.close()
        for line in mounts_of(self.directory):
            subprocess.run(["umount", "--lazy", line.split()[4]], check=False)
        shutil.rmtree(self.directory)


_GETENT = b"""#!/bin/sh
case $1 in
hosts) grep -w -- "$2" /etc/hosts ;;
*) grep "^$2:" "/etc/$1" ;;
esac
"""


def _image() -> bytes:
    """Return the archive of a system that has busybox, what that is linked with, and getent."""
    archive = io.BytesIO()
    busybox = shutil.which("busybox")
    assert busybox
    with tarfile.open(fileobj=archive, mode="w") as tar:

        def add(name: str, kind: bytes, content: bytes = b"", target: str = "") -> None:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.size, entry.linkname = kind, 0o755, len(content), target
            tar.addfile(entry, io.BytesIO(content))

        for name in ("bin", "etc", "usr", "usr/share", "lib64"):
            add(name, tarfile.DIRTYPE)
        add("lib", tarfile.SYMTYPE, target="lib64")
        add("usr/bin", tarfile.SYMTYPE, target="../bin")
        add("bin/getent", tarfile.REGTYPE, _GETENT)
        add("bin/busybox", tarfile.REGTYPE, Path(busybox).read_bytes())
        for name in subprocess.run([busybox, "--list"], capture_output=True, check=True, text=True).stdout.split():
            if name != "busybox":
                add(f"bin/{name}", tarfile.SYMTYPE, target="busybox")
        linked = subprocess.run(["ldd", busybox], capture_output=True, text=True).stdout
        for path in re.findall(r"(/\S+) \(0x", linked):
            add(f"lib64/{os.path.basename(path)}", tarfile.REGTYPE, Path(path).read_bytes())
    return archive.getvalue()
