"""What `make bench BENCHFLAGS=python` has this package do: bench.py WORK DIRECTORY [ARGUMENT].

It makes ready, says "ready", and then, for each line that it reads, does the work once and prints what that took: a
JSON object of times in nanoseconds and of counts. At the end of its input everything that it made is gone.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Callable, Coroutine, Dict, Generator, List

from agentfense import AsyncSandbox, Sandbox

Said = Dict[str, Any]
Work = Generator[Said, None, None]
"""A generator: the first value means ready, each later one is said of one time."""

RUNS = 20
"""Commands that each of many sandboxes runs."""

LIMIT = 600.0
"""Seconds that a gigabyte may take, and a server to end."""


def took(call: Callable[[], Any]) -> int:
    """Return what a call takes."""
    begun = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - begun


def sandbox_of(directory: str) -> Sandbox:
    """Return a sandbox in which everything may be written."""
    return Sandbox.from_local(directory, preset="full-access")


def run(directory: str) -> Work:
    """Run a command in a sandbox."""
    with sandbox_of(directory) as sb:
        yield {}
        while True:
            yield {"ns": took(lambda: sb.run("true", raise_on_error=True))}


def session(directory: str) -> Work:
    """Run a command in a session."""
    with sandbox_of(directory) as sb, sb.session() as shell:
        yield {}
        while True:
            yield {"ns": took(lambda: shell.exec("true").raise_on_error())}


def from_local(directory: str) -> Work:
    """Make a sandbox of a directory, and run a first command in it."""
    yield {}
    while True:
        begun = time.perf_counter_ns()
        with sandbox_of(directory) as sb:
            ready = time.perf_counter_ns()
            first = took(lambda: sb.run("true", raise_on_error=True))
        yield {"ns": ready - begun, "first_run": first}


def first_from_local(directory: str) -> Work:
    """Make a sandbox of a directory where no server runs yet."""
    yield {}
    while True:
        with TemporaryDirectory(prefix="af-") as home:
            os.environ["AGENTFENSE_HOME"] = home
            try:
                yield next(filter(None, from_local(directory)))
            finally:
                end_server(Path(home))


def end_server(home: Path) -> None:
    """End the server of a state directory, and wait until it has."""
    state = home / "server.json"
    limit = time.monotonic() + LIMIT
    if state.exists():
        os.kill(json.loads(state.read_text())["pid"], signal.SIGTERM)
    while state.exists():
        if time.monotonic() > limit:
            raise TimeoutError(f"{state}: the server does not end")
        time.sleep(0.01)


def stream(directory: str, size: str) -> Work:
    """Read a command's output, so many bytes, as it comes."""
    with sandbox_of(directory) as sb:
        yield {}
        while True:
            begun, got = time.perf_counter_ns(), 0
            with sb.exec_stream(f"yes | head -c {size}", timeout=LIMIT) as output:
                for data in output:
                    got += len(data)
            yield {"ns": time.perf_counter_ns() - begun, "bytes": got}


def stream_async(directory: str, size: str) -> Work:
    """Do the same in an event loop."""

    async def read(sb: AsyncSandbox) -> int:
        got = 0
        async with sb.exec_stream(f"yes | head -c {size}", timeout=LIMIT) as output:
            async for data in output:
                got += len(data)
        return got

    loop = asyncio.new_event_loop()
    sb = loop.run_until_complete(AsyncSandbox.from_local(directory, preset="full-access"))
    try:
        yield {}
        while True:
            begun = time.perf_counter_ns()
            got = loop.run_until_complete(read(sb))
            yield {"ns": time.perf_counter_ns() - begun, "bytes": got}
    finally:
        loop.run_until_complete(sb.destroy())
        loop.close()


def many(directory: str, count: str) -> Work:
    """Make so many sandboxes in one event loop, have each run commands while all others do, and end them."""
    yield {}
    while True:
        yield asyncio.run(drive(directory, int(count)))


async def drive(directory: str, count: int) -> Said:
    """Do what ``many`` does once. What fails is counted, and the first failure said."""
    errors: List[str] = []

    async def all_of(calls: List[Coroutine[Any, Any, Any]]) -> List[Any]:
        done = await asyncio.gather(*calls, return_exceptions=True)
        errors.extend(repr(error) for error in done if isinstance(error, BaseException))
        return [value for value in done if not isinstance(value, BaseException)]

    async def run_often(sb: AsyncSandbox) -> int:
        for n in range(RUNS):
            result = await sb.run(f"echo {n}", raise_on_error=True)
            assert result.stdout == f"{n}\n", result
        return RUNS

    begun = time.perf_counter_ns()
    sandboxes = await all_of([AsyncSandbox.from_local(directory, preset="full-access") for _ in range(count)])
    made = time.perf_counter_ns()
    commands = sum(await all_of([run_often(sb) for sb in sandboxes]))
    driven = time.perf_counter_ns()
    await all_of([sb.destroy() for sb in sandboxes])
    return {
        "ns": time.perf_counter_ns() - begun,
        "made": made - begun,
        "driven": driven - made,
        "commands": commands,
        "errors": len(errors),
        "said": errors[:1],
    }


WORKS: Dict[str, Callable[..., Work]] = {
    "run": run,
    "session": session,
    "from-local": from_local,
    "first-from-local": first_from_local,
    "stream": stream,
    "stream-async": stream_async,
    "many": many,
}


def main() -> None:
    """Do the work that the arguments name."""
    work = WORKS[sys.argv[1]](*sys.argv[2:])
    with closing(work):
        next(work)
        print("ready", flush=True)
        for _ in sys.stdin:
            print(json.dumps(next(work)), flush=True)


if __name__ == "__main__":
    main()
