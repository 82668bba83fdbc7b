"""The work that `make bench BENCHFLAGS=python` measures: bench.py WORK DIRECTORY [ARGUMENT].

After its preparation it prints "ready". For each line of its input it does the work once, and
prints a JSON object with times in nanoseconds and counts. When the input ends, it removes
everything that it created.
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
"""A generator: its first value means ready, each later one is the result of one repetition."""

RUNS = 20
"""The number of commands in each of many sandboxes."""

LIMIT = 600.0
"""The most seconds for a gigabyte of output, and for the end of a server."""


def took(call: Callable[[], Any]) -> int:
    """Return the time that a call takes."""
    begun = time.perf_counter_ns()
    call()
    return time.perf_counter_ns() - begun


def sandbox_of(directory: str) -> Sandbox:
    """Return a sandbox that may write everything."""
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
    """Create a sandbox from a directory, and run a first command in it."""
    yield {}
    while True:
        begun = time.perf_counter_ns()
        with sandbox_of(directory) as sb:
            ready = time.perf_counter_ns()
            first = took(lambda: sb.run("true", raise_on_error=True))
        yield {"ns": ready - begun, "first_run": first}


def first_from_local(directory: str) -> Work:
    """Create a sandbox from a directory when no server runs."""
    yield {}
    while True:
        with TemporaryDirectory(prefix="af-") as home:
            os.environ["AGENTFENSE_HOME"] = home
            try:
                yield next(filter(None, from_local(directory)))
            finally:
                end_server(Path(home))


def end_server(home: Path) -> None:
    """End the server of a state directory, and wait for its end."""
    state = home / "server.json"
    limit = time.monotonic() + LIMIT
    if state.exists():
        os.kill(json.loads(state.read_text())["pid"], signal.SIGTERM)
    while state.exists():
        if time.monotonic() > limit:
            raise TimeoutError(f"{state}: the server does not end")
        time.sleep(0.01)


def stream(directory: str, size: str) -> Work:
    """Read a number of bytes of a command's output as it comes."""
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
    """Create a number of sandboxes in one event loop, run commands in all of them at once, and destroy them."""
    yield {}
    while True:
        yield asyncio.run(drive(directory, int(count)))


async def drive(directory: str, count: int) -> Said:
    """Do the work of ``many`` once. Counts failures, and prints the first."""
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
