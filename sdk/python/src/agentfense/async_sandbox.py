"""AsyncSandbox: one object for a sandbox and what it is made of, for an event loop."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import List, Mapping, Optional, Sequence, Type, Union

from . import types as t
from ._async_cleanup import clean_up_async, give_up_async, remove_async
from ._async_execs import AsyncSandboxExecs
from ._async_output import AsyncAuditStream, AsyncExecStream, AsyncLogStream
from ._errors import MAX_READ
from ._interrupts import complete_async
from ._local import Local
from ._requests import Paths, Resources, Timeout, chosen
from ._requests import apply as apply_request
from ._uploads import bring_back, forget, is_remembered, set_rules
from ._warnings import warn_of_lost, warn_of_rest, warn_of_upload
from ._wire import Seconds, inside_path
from .async_client import AsyncSandboxClient, Opening
from .async_files import AsyncSandboxFiles
from .async_sandbox_policy import AsyncSandboxPolicy
from .exceptions import ChangesLostWarning, InvalidConfigurationError, PermissionDeniedError, SandboxError
from .policy import DEFAULT_PRESET, PolicyLike, rules_of
from .utils import PathLike, user_name


class AsyncSandbox(AsyncSandboxExecs):
    """A sandbox. Leaving its ``with`` block destroys it, and the codebase that ``from_local`` made.

    Tasks of one event loop may share it; a process that was forked cannot use it. Each method raises the errors of
    ``agentfense.exceptions``.
    """

    def __init__(
        self, client: AsyncSandboxClient, info: t.Sandbox, codebase: t.Codebase, *, owns_codebase: bool = False
    ) -> None:
        self._client = client
        self._info = info
        self._codebase = codebase
        self._owns_codebase = owns_codebase
        self._destroyed = False
        self._left = False
        self._unnoted = ""  # why it is not known what was uploaded
        self.files = AsyncSandboxFiles(client, info.id)
        """The files as a command inside sees them."""
        self.policy = AsyncSandboxPolicy(client, info.id)
        """What it may do, and why."""

    @classmethod
    async def from_local(
        cls,
        path: PathLike,
        preset: str = DEFAULT_PRESET,
        permissions: Optional[Sequence[t.RuleLike]] = None,
        runtime: Optional[t.RuntimeType] = t.RuntimeType.BWRAP,
        image: Optional[str] = None,
        resources: Resources = None,
        endpoint: Optional[str] = None,
        secure: bool = False,
        owner_id: Optional[str] = None,
        codebase_name: Optional[str] = None,
        ignore_patterns: Optional[Sequence[str]] = None,
        labels: Optional[Mapping[str, str]] = None,
        auto_start: bool = True,
        *,
        policy: Optional[PolicyLike] = None,
        name: Optional[str] = None,
        expires_in: Timeout = None,
        link: Optional[bool] = None,
        ignore_files: bool = False,
        user: Optional[int] = None,
        home: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        git_user: Optional[t.GitUser] = None,
        token: Optional[str] = None,
    ) -> AsyncSandbox:
        """Make a sandbox of a directory of this host, and start it. On any failure nothing stays behind.

        Where the server is this user's own, on this host, the directory is linked, not copied: it is never changed
        except by ``apply``, whatever its size, and it shows what the command line shows: all that the policy lets,
        at the directory's own path, and at /workspace too.
        Elsewhere, or with ``ignore_patterns``, it is uploaded, to /workspace, but for what the default patterns,
        .gitignore and .sandboxignore leave out; .git is uploaded. Either way the changes wait for ``apply``, which
        brings those of an uploaded directory back into it where it still holds what was uploaded, and into the
        server's copy.

        - ``path``: the directory. What ``.agentfense.yaml`` in it grants counts only where that is named as ``policy``.
        - ``preset``, ``permissions``: the rules are the preset's, and then these: PermissionRule, or mappings with
          ``pattern`` and, if wanted, ``permission``, ``type`` and ``priority``.
        - ``policy``: in the place of both, a Policy, or the path of a policy file.
        - ``runtime``: what confines its processes; None is the server's default.
        - ``image``: of the docker runtime; None is the server's default.
        - ``resources``: ResourceLimits, or a mapping with their names; None is no limit.
        - ``endpoint``, ``secure``, ``token``: the server, and what is shown to it; see SandboxClient.
        - ``owner_id``: the owner of the codebase; None is the token's owner, or this user if the token has none.
        - ``codebase_name``: None is the directory's name and 8 hexadecimal digits.
        - ``ignore_patterns``: further patterns that an upload leaves out, each as a line of a .gitignore.
        - ``labels``: words of the caller's own, by which ``list_sandboxes`` finds it.
        - ``auto_start``: False leaves it to ``start``.
        - ``name``: what the command line calls it; None is its id.
        - ``expires_in``: seconds, or a timedelta, after which it is stopped, and removed unless it has changes that
          were not applied; None is the server's default, which is never unless configured.
        - ``link``: whether the directory has to be linked, or uploaded; None is as said above, and uploads, with a
          warning, where the token may not link, as one that has an owner.
        - ``ignore_files``: whether a linked directory hides what an upload would leave out.
        - ``user``: who commands are inside, by number, such as 0; None is an ordinary user (see docs/server.md).
        - ``home``: "keep" for a home directory, with what pip, npm and others cache there, that stays until the sandbox
          is destroyed; None, or "private", for one that is new and empty with each start.
        - ``env``: variables that all its commands and sessions have, unless they are given others. The server keeps
          them, and returns their names, never their values.
        - ``git_user``: ``user.name`` and ``user.email`` of git inside; None takes this user's git configuration,
          ``GitUser()`` sets none.

        Raises ValueError where ``path`` is no directory, for an unknown preset, a malformed rule or policy, for a
        policy beside a preset or permissions, for ``ignore_patterns`` beside ``link=True``, and for an ``expires_in``
        of 0 or less; InvalidConfigurationError for what the server's host cannot do.
        """
        local = Local(path, preset, permissions, policy, link, ignore_patterns, codebase_name)
        client = AsyncSandboxClient(endpoint, secure, token=token)
        made: Optional[t.Codebase] = None
        try:
            await client.open()  # async only
            if local.links(client.same_host):
                try:
                    owner = owner_id or user_name()
                    made = await client.link_codebase(
                        local.called, owner, str(local.directory), ignore_files=ignore_files
                    )
                except PermissionDeniedError:  # a token that has an owner may not link
                    if local.has_to_link:
                        raise
                    warn_of_upload(str(local.directory))
            if made is None:
                made = await client._create_owned(local.called, owner_id)
                await client._upload_tree(made.id, local.directory, ignore_patterns, local.note().add)
                made = await client.get_codebase(made.id)
            settings = await asyncio.to_thread(local.settings, made, git_user)
            info = await client.create_sandbox(
                made.id,
                local.rules,
                labels,
                expires_in,
                runtime,
                image,
                resources,
                name=name,
                user=user,
                home=home,
                env=env,
                **settings,
            )
            sandbox = await cls._begin(client, info, made, auto_start, owns_codebase=True)
            sandbox._unnoted = await asyncio.to_thread(local.remember, info.id, made)
            return sandbox
        except BaseException:
            await give_up_async(client, None, made)
            raise

    @classmethod
    async def from_codebase(
        cls,
        codebase_id: str,
        preset: str = DEFAULT_PRESET,
        permissions: Optional[Sequence[t.RuleLike]] = None,
        runtime: Optional[t.RuntimeType] = t.RuntimeType.BWRAP,
        image: Optional[str] = None,
        resources: Resources = None,
        endpoint: Optional[str] = None,
        secure: bool = False,
        labels: Optional[Mapping[str, str]] = None,
        auto_start: bool = True,
        *,
        policy: Optional[PolicyLike] = None,
        name: Optional[str] = None,
        expires_in: Timeout = None,
        user: Optional[int] = None,
        home: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        git_user: Optional[t.GitUser] = None,
        token: Optional[str] = None,
    ) -> AsyncSandbox:
        """Make a sandbox of a codebase that is there, which stays; the parameters are those of from_local."""
        rules = rules_of(policy, preset, permissions)
        client = AsyncSandboxClient(endpoint, secure, token=token)
        info: Optional[t.Sandbox] = None
        try:
            codebase = await client.get_codebase(codebase_id)
            info = await client.create_sandbox(
                codebase_id,
                rules,
                labels,
                expires_in,
                runtime,
                image,
                resources,
                name=name,
                user=user,
                home=home,
                env=env,
                git_user=git_user,
            )
            return await cls._begin(client, info, codebase, auto_start)
        except BaseException:
            await give_up_async(client, info, None)
            raise

    @classmethod
    async def connect(
        cls, sandbox_id: str, endpoint: Optional[str] = None, secure: bool = False, *, token: Optional[str] = None
    ) -> AsyncSandbox:
        """Return an existing sandbox. SandboxNotFoundError if no sandbox has that id.

        Leaving its ``with`` block destroys it, unless ``close`` has been called, which leaves it as it is.
        """
        client = AsyncSandboxClient(endpoint, secure, token=token)
        try:
            info = await client.get_sandbox(sandbox_id)
            return cls(client, info, await client.get_codebase(info.codebase_id))
        except BaseException:
            await give_up_async(client, None, None)
            raise

    @classmethod
    async def _begin(
        cls,
        client: AsyncSandboxClient,
        info: t.Sandbox,
        codebase: t.Codebase,
        auto_start: bool,
        *,
        owns_codebase: bool = False,
    ) -> AsyncSandbox:
        sandbox = cls(client, info, codebase, owns_codebase=owns_codebase)
        return await sandbox.start() if auto_start else sandbox

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self._info.id

    @property
    def codebase_id(self) -> str:
        """The id of the codebase that it is made of."""
        return self._info.codebase_id

    @property
    def status(self) -> t.SandboxStatus:
        """The status when the server was last asked; ``refresh`` asks again."""
        return self._info.status

    @property
    def runtime(self) -> t.RuntimeType:
        """What confines its processes."""
        return self._info.runtime

    @property
    def info(self) -> t.Sandbox:
        """What the server said of it when it was last asked."""
        return self._info

    @property
    def codebase(self) -> t.Codebase:
        """What the server said of its codebase when it was last asked."""
        return self._codebase

    @property
    def _waits(self) -> bool:
        return self._codebase.linked or self._info.sync is t.SyncMode.MANUAL

    @property
    def client(self) -> AsyncSandboxClient:
        """The API under it."""
        return self._client

    async def start(self) -> AsyncSandbox:
        """Start it, and return it."""
        self._info = await self._client.start_sandbox(self.id)
        return self

    async def stop(self) -> AsyncSandbox:
        """End all that runs in it, and return it; what it changed stays."""
        self._info = await self._client.stop_sandbox(self.id)
        return self

    async def refresh(self) -> AsyncSandbox:
        """Ask the server again what it is, and return it."""
        self._info = await self._client.get_sandbox(self.id)
        self._codebase = await self._client.get_codebase(self.codebase_id)
        return self

    async def destroy(self, delete_codebase: Optional[bool] = None) -> None:
        """End and forget it, and with ``delete_codebase`` its codebase; a second time does nothing.

        None deletes the codebase if ``from_local`` made it. Changes that were neither applied nor carried over are
        lost: a ChangesLostWarning counts them. A linked directory stays as it is.

        An interrupt or a cancellation waits for its end; a second interrupt does not. Where this user's own server was
        lost, the one in its place does it, which is started if need be.
        """
        warn_of_lost(self.id, await self._destroy(delete_codebase))

    async def _destroy(self, delete_codebase: Optional[bool] = None) -> int:
        """Do what ``destroy`` does, and return how many changes were lost."""
        if self._destroyed:
            return 0
        owned = self._owns_codebase if delete_codebase is None else delete_codebase
        codebase_id = self.codebase_id if owned else None
        lost = 0

        async def work(server: AsyncSandboxClient) -> None:
            nonlocal lost
            lost = await remove_async(server, self.id, codebase_id)

        async def end() -> None:
            await clean_up_async(self._client, work)
            if not self._unnoted:  # else the note of that id is another sandbox's
                await asyncio.to_thread(forget, self.id)
            self._destroyed = True
            await self._client.close()

        await complete_async(end)
        return lost

    async def close(self) -> None:
        """Close its connection and leave it as it is, with its codebase: a ``with`` block does not destroy it then.

        What still runs over the connection is ended, unless it is detached. A second time does nothing.
        """
        self._left = True
        await self._client.close()

    async def __aenter__(self) -> AsyncSandbox:
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._left:
            return
        try:
            lost = await self._destroy()
        except SandboxError as why:
            if kind is None:
                raise
            warn_of_rest(self.id, why)
            return
        with suppress(*(() if kind is None else (ChangesLostWarning,))):  # it would hide the exception
            warn_of_lost(self.id, lost)

    # Commands

    async def run(
        self,
        command: str,
        timeout: Optional[Seconds] = 60,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[PathLike] = None,
        raise_on_error: bool = False,
    ) -> t.ExecResult:
        """Run ``/bin/sh -c COMMAND`` in the workspace and wait for it, at most ``timeout`` seconds.

        Raises CommandTimeoutError after them, when the command has been ended, and with ``raise_on_error``
        CommandExecutionError unless the exit code is 0.
        """
        result = await self.exec(command, None, env, workdir, timeout)
        return result.raise_on_error() if raise_on_error else result

    async def exec(
        self,
        command: str,
        stdin: Union[str, bytes, None] = None,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[PathLike] = None,
        timeout: Timeout = None,
    ) -> t.ExecResult:
        """Run a command and wait for it; see AsyncSandboxClient.exec."""
        return await self._client.exec(self.id, command, stdin, env, workdir, timeout)

    def exec_stream(
        self,
        command: str,
        stdin: Union[str, bytes, None] = None,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[PathLike] = None,
        timeout: Timeout = None,
    ) -> AsyncExecStream:
        """Run a command and return its output as it comes: an iterator of bytes; with ``await`` or without."""
        return self._client.exec_stream(self.id, command, stdin, env, workdir, timeout)

    def session(self, shell: str = "/bin/sh", env: Optional[Mapping[str, str]] = None) -> Opening:
        """Start a shell that stays; awaited or with ``async with``."""
        return self._client.create_session(self.id, shell, env)

    # Files

    async def read_file(self, path: PathLike, *, max_bytes: Optional[int] = MAX_READ) -> str:
        """Return a file's text, UTF-8; see read_file_bytes."""
        content = await self.read_file_bytes(path, max_bytes=max_bytes)
        return content.decode("utf-8", "replace")

    async def read_file_bytes(self, path: PathLike, *, max_bytes: Optional[int] = MAX_READ) -> bytes:
        """Return a file's content: of the sandbox's view if its changes wait for ``apply``, else of the codebase.

        ResourceLimitExceededError where that is more than ``max_bytes``, None for any.
        """
        if self._waits:
            return await self.files.read_bytes(path, max_bytes=max_bytes)
        return await self._client.download_file(self.codebase_id, inside_path(path), max_bytes=max_bytes)

    async def write_file(self, path: PathLike, content: Union[str, bytes]) -> None:
        """Store a file: in the sandbox's view, by its policy, if changes wait for ``apply``; else in the codebase."""
        if self._waits:
            await self.files.write(path, content)
        else:
            await self._client.upload_file(self.codebase_id, inside_path(path), content)

    async def list_files(self, path: PathLike = "", recursive: bool = False) -> List[str]:
        """Return the paths in a directory, or of all below it: where ``read_file`` reads."""
        if self._waits:
            return [entry.path for entry in await self.files.list(path, recursive)]
        return [file.path for file in await self._client.list_files(self.codebase_id, inside_path(path), recursive)]

    # Changes

    async def diff(self, paths: Paths = None, *, names_only: bool = False, shown: t.Reviewed = None) -> t.Diff:
        """Return what it changed against its source; see AsyncSandboxClient.diff."""
        return await self._client.diff(self.id, paths, names_only=names_only, shown=shown)

    async def apply(self, paths: Paths = None, *, dry_run: bool = False, reviewed: t.Reviewed = None) -> t.ApplyResult:
        """Apply changes, all if ``paths`` is None, to the source; see AsyncSandboxClient.apply.

        The source is the linked directory, or the one of this host that ``from_local`` uploaded: ``agentfense`` brings
        the changes back into that, where it still holds what was uploaded, and then into the server's copy. Of another
        codebase it is the server's copy. InvalidConfigurationError where it could not be noted what was uploaded.
        """
        if self._unnoted:
            raise InvalidConfigurationError(self._unnoted)
        if not is_remembered(self.id):
            return await self._client.apply(self.id, paths, dry_run=dry_run, reviewed=reviewed)
        wanted = chosen(paths)
        if wanted == []:
            return t.ApplyResult([], 0, 0)
        request = apply_request(self.id, wanted, dry_run, reviewed)
        await self._client.open()  # async only
        return await asyncio.to_thread(bring_back, self._client._connection, request, reviewed)

    async def discard(self, paths: Paths = None, *, dry_run: bool = False) -> t.DiscardResult:
        """Discard changes, all if ``paths`` is None; see AsyncSandboxClient.discard."""
        return await self._client.discard(self.id, paths, dry_run=dry_run)

    # Policy, audit and use

    async def set_policy(
        self,
        permissions: Optional[Sequence[t.RuleLike]] = None,
        *,
        preset: Optional[str] = None,
        policy: Optional[PolicyLike] = None,
    ) -> AsyncSandbox:
        """Replace the rules, at once, by those of a preset, and then ``permissions``, or by a policy; return it."""
        rules = rules_of(policy, preset, permissions)
        self._info = await self._client.set_policy(self.id, rules)
        await asyncio.to_thread(set_rules, self.id, rules)
        return self

    def audit(
        self,
        *,
        follow: bool = False,
        events: Union[str, Sequence[str], None] = None,
        after_seq: int = 0,
        since: Optional[datetime] = None,
    ) -> AsyncAuditStream:
        """Return its audit events; with ``follow`` also those to come."""
        return self._client.audit(self.id, follow=follow, events=events, after_seq=after_seq, since=since)

    def logs(self, *, follow: bool = False) -> AsyncLogStream:
        """Return what its detached commands wrote; with ``follow`` until the last of them has ended."""
        return self._client.logs(self.id, follow=follow)

    async def stats(self) -> t.Stats:
        """Return what it uses."""
        return await self._client.get_stats(self.id)
