# Made from async_sandbox.py by make gen: do not edit.

"""Sandbox: a sandbox and its codebase as one object, for threads."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime
from types import TracebackType
from typing import List, Mapping, Optional, Sequence, Type, Union

from . import types as t
from ._arguments import id_of_sandbox
from ._cleanup import clean_up, give_up, remove
from ._errors import MAX_READ
from ._execs import SandboxExecs
from ._interrupts import complete
from ._local import Local
from ._output import AuditStream, ExecStream, LogStream
from ._requests import Hosts, Names, Paths, Resources, Timeout, chosen
from ._requests import apply as apply_request
from ._snapshots import SandboxSnapshots
from ._uploads import bring_back, forget, is_remembered, remember_fork, set_rules
from ._uploads import git_user as git_user_of
from ._warnings import warn_of_lost, warn_of_rest, warn_of_upload
from ._wire import Seconds, inside_path
from .client import SandboxClient, SessionWrapper
from .exceptions import ChangesLostWarning, InvalidConfigurationError, PermissionDeniedError, SandboxError
from .files import SandboxFiles
from .policy import DEFAULT_PRESET, PolicyLike, rules_of
from .sandbox_board import SandboxBoard
from .sandbox_policy import SandboxPolicy
from .utils import PathLike, user_name


class Sandbox(SandboxExecs, SandboxSnapshots):
    """A sandbox. Leaving its ``with`` block destroys it, and the codebase that ``from_local`` made.

    Without a ``with`` block, call ``destroy``: a sandbox outlives the program that created it.

    Threads may share it; a forked process cannot use it. Methods raise the errors of
    ``agentfense.exceptions``.
    """

    def __init__(
        self, client: SandboxClient, info: t.Sandbox, codebase: t.Codebase, *, owns_codebase: bool = False
    ) -> None:
        self._client = client
        self._info = info
        self._codebase = codebase
        self._owns_codebase = owns_codebase
        self._destroyed = False
        self._left = False
        self._unnoted = ""  # why the upload could not be recorded
        self.files = SandboxFiles(client, info.id)
        """The sandbox's files as a command inside sees them."""
        self.policy = SandboxPolicy(client, info.id)
        """The sandbox's rules, and which of them decides about a path."""
        self.board = SandboxBoard(client, info.id)
        """Locks of paths, and messages, of the codebase's sandboxes."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.status.value}>"

    @classmethod
    def from_local(
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
        allow_net: Hosts = (),
        net_limits: Names = (),
        publish: Names = (),
        ask_timeout: Timeout = None,
        board: bool = False,
        git: str = "",
        mounts: Sequence[t.MountLike] = (),
        scratch: Names = (),
        secrets: Names = (),
        token: Optional[str] = None,
    ) -> Sandbox:
        """Create a sandbox from a directory of this host, and start it. If anything fails, nothing remains.

        Your own server on this host links the directory, without copying it. The sandbox then shows
        what the command line shows: everything that the policy allows, at the directory's own path
        and at /workspace. Any other server gets an upload, shown at /workspace, and so does your
        own server with ``ignore_patterns``. An upload leaves out what the default patterns,
        .gitignore and .sandboxignore name, but not .git.

        Only ``apply`` changes the directory. It brings changes of an uploaded directory back if the
        directory still holds what was uploaded, and also changes the server's copy.

        - ``path``: the directory. Its ``.agentfense.yaml`` has no effect unless you pass it as
          ``policy``.
        - ``preset``, ``permissions``: the rules of the preset, followed by these: PermissionRule
          objects, or mappings with ``pattern`` and optionally ``permission``, ``type`` and
          ``priority``.
        - ``policy``: instead of ``preset`` and ``permissions``, a Policy or the path of a policy
          file.
        - ``runtime``: what confines the processes; None means the server's default.
        - ``image``: the image of the docker runtime; None means the server's default.
        - ``resources``: ResourceLimits, or a mapping of their names to values; None means no
          limits.
        - ``endpoint``, ``secure``, ``token``: as for SandboxClient.
        - ``owner_id``: the owner of the codebase; None means the token's owner, or your user name
          if the token has no owner.
        - ``codebase_name``: None means the directory's name and 8 hexadecimal digits.
        - ``ignore_patterns``: more patterns that an upload leaves out, in the syntax of .gitignore.
        - ``labels``: keys and values by which ``list_sandboxes`` finds the sandbox.
        - ``auto_start``: False means that you call ``start`` yourself.
        - ``name``: the sandbox's name on the command line; None means its id.
        - ``expires_in``: seconds, or a timedelta, after which the server stops the sandbox, and
          removes it unless it has changes that were not applied; None means the server's default,
          which is never unless configured.
        - ``link``: True requires a link, and False an upload. None decides as described above, and
          uploads with a warning if the token has an owner and so may not link.
        - ``ignore_files``: whether a linked directory hides what an upload would leave out.
        - ``user``: the numeric user id of commands, such as 0 for root; None means an ordinary user
          (see docs/server.md).
        - ``home``: "keep" keeps the home directory, with the caches of pip, npm and others, until
          the sandbox is destroyed; None or "private" makes an empty one at each start.
        - ``env``: variables of all commands and sessions, unless these set their own. The server
          stores the values and returns only the names.
        - ``git_user``: ``user.name`` and ``user.email`` of git in the sandbox; None takes yours,
          and ``GitUser()`` sets none.
        - ``allow_net``: hosts that commands may reach, such as "api.example.com" or "@pypi", as
          the command line's --allow-net takes them. The server's configuration must include them
          (network.allow). Without any there is no network.
        - ``net_limits``: limits of this network, such as "connections=100" or "out=50M", as the
          command line's --net-limit takes them. A lower limit of the server's configuration
          (network.limits) counts.
        - ``publish``: ports inside to show at an address 127.0.0.N of the server's host, such as
          "3000", or "8080:3000" with another port of the host. The server's configuration must allow
          it (network.publish).
        - ``ask_timeout``: how long an open or a change of a listed file, or the name of a host, waits
          for an answer (``policy.asks``) before it is refused; None refuses it at once.
        - ``board``: whether programs inside may lock paths for the sandbox, and exchange messages
          with the other sandboxes of the codebase (see docs/many-agents.md).
        - ``git``: "clean", "clean:DEPTH" or "clean:all" gives commands a git repository without
          anything that the policy hides (see docs/git.md), in place of the directory's. It needs a
          linked directory, and no limit of the disk.
        - ``mounts``: directories of the server's host to show besides the workspace: Mount objects,
          or mappings with ``source`` and optionally ``place``, ``name``, ``mode`` and ``rules``. The
          server's configuration must list a directory above each (mounts.roots).
        - ``scratch``: directories of the workspace, such as "node_modules", with contents that stay
          with the sandbox and are neither reviewed nor applied. The rules must let everything in
          them be written.
        - ``secrets``: names of secrets of the server's configuration, which commands use and do not
          know: the variables with these names have placeholders.

        Raises ValueError if ``path`` is not a directory, the preset is unknown, or a rule or the
        policy is malformed; for ``policy`` together with ``preset`` or ``permissions``,
        ``ignore_patterns`` together with ``link=True``, and an ``expires_in`` of 0 or less. Raises
        InvalidConfigurationError for what the server's host does not support.
        """
        local = Local(path, preset, permissions, policy, link, ignore_patterns, codebase_name)
        client = SandboxClient(endpoint, secure, token=token)
        made: Optional[t.Codebase] = None
        try:
            if local.links(client.same_host):
                try:
                    owner = owner_id or user_name()
                    made = client.link_codebase(local.called, owner, str(local.directory), ignore_files=ignore_files)
                except PermissionDeniedError:  # a token that has an owner may not link
                    if local.has_to_link:
                        raise
                    warn_of_upload(str(local.directory))
            if made is None:
                made = client._create_owned(local.called, owner_id)
                client._upload_tree(made.id, local.directory, ignore_patterns, local.note().add)
                made = client.get_codebase(made.id)
            settings = local.settings(made, git_user)
            info = client.create_sandbox(
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
                allow_net=allow_net,
                net_limits=net_limits,
                publish=publish,
                ask_timeout=ask_timeout,
                board=board,
                git=git,
                mounts=mounts,
                scratch=scratch,
                secrets=secrets,
                **settings,
            )
            sandbox = cls._begin(client, info, made, auto_start, owns_codebase=True)
            sandbox._unnoted = local.remember(info.id, made)
            return sandbox
        except BaseException:
            give_up(client, None, made)
            raise

    @classmethod
    def from_codebase(
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
        allow_net: Hosts = (),
        net_limits: Names = (),
        publish: Names = (),
        ask_timeout: Timeout = None,
        board: bool = False,
        git: str = "",
        mounts: Sequence[t.MountLike] = (),
        scratch: Names = (),
        secrets: Names = (),
        token: Optional[str] = None,
    ) -> Sandbox:
        """Create a sandbox from an existing codebase, and start it. For the parameters see ``from_local``.

        Destroying the sandbox keeps the codebase.
        """
        rules = rules_of(policy, preset, permissions)
        client = SandboxClient(endpoint, secure, token=token)
        info: Optional[t.Sandbox] = None
        try:
            codebase = client.get_codebase(codebase_id)
            info = client.create_sandbox(
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
                allow_net=allow_net,
                net_limits=net_limits,
                publish=publish,
                ask_timeout=ask_timeout,
                board=board,
                git=git,
                mounts=mounts,
                scratch=scratch,
                secrets=secrets,
            )
            return cls._begin(client, info, codebase, auto_start)
        except BaseException:
            give_up(client, info, None)
            raise

    @classmethod
    def connect(
        cls, sandbox_id: str, endpoint: Optional[str] = None, secure: bool = False, *, token: Optional[str] = None
    ) -> Sandbox:
        """Return an existing sandbox. Raises SandboxNotFoundError for an unknown id.

        Leaving its ``with`` block destroys it, unless you called ``close``.
        """
        client = SandboxClient(endpoint, secure, token=token)
        try:
            info = client.get_sandbox(sandbox_id)
            return cls(client, info, client.get_codebase(info.codebase_id))
        except BaseException:
            give_up(client, None, None)
            raise

    @classmethod
    def _begin(
        cls,
        client: SandboxClient,
        info: t.Sandbox,
        codebase: t.Codebase,
        auto_start: bool,
        *,
        owns_codebase: bool = False,
    ) -> Sandbox:
        sandbox = cls(client, info, codebase, owns_codebase=owns_codebase)
        return sandbox.start() if auto_start else sandbox

    @property
    def id(self) -> str:
        """The sandbox's id."""
        return self._info.id

    @property
    def codebase_id(self) -> str:
        """The id of the sandbox's codebase."""
        return self._info.codebase_id

    @property
    def status(self) -> t.SandboxStatus:
        """The status at the last request; ``refresh`` asks the server again."""
        return self._info.status

    @property
    def runtime(self) -> t.RuntimeType:
        """What confines the sandbox's processes."""
        return self._info.runtime

    @property
    def info(self) -> t.Sandbox:
        """The server's description of the sandbox at the last request."""
        return self._info

    @property
    def codebase(self) -> t.Codebase:
        """The server's description of the codebase at the last request."""
        return self._codebase

    @property
    def _waits(self) -> bool:
        return self._codebase.linked or self._info.sync is t.SyncMode.MANUAL

    @property
    def client(self) -> SandboxClient:
        """The client that the sandbox uses."""
        return self._client

    def start(self) -> Sandbox:
        """Start the sandbox, and return it."""
        self._info = self._client.start_sandbox(self.id)
        return self

    def stop(self) -> Sandbox:
        """Stop the sandbox and everything that runs in it, and return it. Its changes remain."""
        self._info = self._client.stop_sandbox(self.id)
        return self

    def update(
        self,
        *,
        resources: Resources = None,
        scratch: Optional[Names] = None,
        secrets: Optional[Names] = None,
        net_limits: Optional[Names] = None,
        publish: Optional[Names] = None,
        ask_timeout: Timeout = None,
    ) -> Sandbox:
        """Change what the stopped sandbox has from its next start on, and return it; see ``update_sandbox``."""
        self._info = self._client.update_sandbox(
            self.id,
            resources=resources,
            scratch=scratch,
            secrets=secrets,
            net_limits=net_limits,
            publish=publish,
            ask_timeout=ask_timeout,
        )
        return self

    def restore(self, snapshot: str) -> t.Restored:
        """Bring the stopped sandbox back to a snapshot; see SandboxClient.restore_snapshot."""
        return self._client.restore_snapshot(self.id, snapshot)

    def merge(
        self,
        fork: Union[Sandbox, t.Sandbox, str],
        *,
        snapshot: str = "",
        paths: Paths = None,
        on_conflict: Union[t.ConflictResolution, str, None] = None,
        dry_run: bool = False,
    ) -> t.Merged:
        """Bring what another sandbox, such as a fork, has changed into the changes of this one, which is stopped.

        ``fork`` is that sandbox, its info or its id. See SandboxClient.merge_sandbox. ``restore("@{1}")``
        takes the merge back. Look at ``diff`` before ``apply``.
        """
        return self._client.merge_sandbox(
            self.id,
            id_of_sandbox(fork, "fork"),
            snapshot=snapshot,
            paths=paths,
            on_conflict=on_conflict,
            dry_run=dry_run,
        )

    def fork(
        self,
        *names: str,
        snapshot: str = "",
        permissions: Optional[Sequence[t.RuleLike]] = None,
        allow_wider: bool = False,
        expires_in: Timeout = None,
    ) -> List[Sandbox]:
        """Make sandboxes with these names that begin with a state of this one; see SandboxClient.fork_sandbox.

        Each has a connection of its own, and is to be destroyed like any other. They are not started.
        Destroy forks of ``from_local`` before this sandbox, whose codebase they use.
        """
        made = self._client.fork_sandbox(
            self.id,
            names,
            snapshot=snapshot,
            permissions=permissions,
            allow_wider=allow_wider,
            expires_in=expires_in,
        )
        endpoint, secure, token = self._client._connection.asked
        forks = []
        for info in made:
            fork = type(self)(SandboxClient(endpoint, secure, token=token), info, self._codebase)
            fork._unnoted = self._unnoted or remember_fork(self.id, info)
            forks.append(fork)
        return forks

    def refresh(self) -> Sandbox:
        """Ask the server for ``info`` and ``codebase``, and return the sandbox."""
        self._info = self._client.get_sandbox(self.id)
        self._codebase = self._client.get_codebase(self.codebase_id)
        return self

    def destroy(self, delete_codebase: Optional[bool] = None) -> None:
        """Destroy the sandbox. A second call does nothing.

        ``delete_codebase`` says whether to delete its codebase too; None means only a codebase that
        ``from_local`` made. Of a linked directory this deletes the link alone. Changes that were
        neither applied nor synchronized are lost, and a ChangesLostWarning counts them.

        An interrupt or a cancellation waits until the sandbox is destroyed; a second interrupt does
        not wait. If your own server died meanwhile, its successor destroys the sandbox; the package
        starts one if necessary.
        """
        warn_of_lost(self.id, self._destroy(delete_codebase))

    def _destroy(self, delete_codebase: Optional[bool] = None) -> int:
        """Do the work of ``destroy``, and return the number of lost changes."""
        if self._destroyed:
            return 0
        owned = self._owns_codebase if delete_codebase is None else delete_codebase
        codebase_id = self.codebase_id if owned else None
        lost = 0

        def work(server: SandboxClient) -> None:
            nonlocal lost
            lost = remove(server, self.id, codebase_id)

        def end() -> None:
            clean_up(self._client, work)
            if not self._unnoted:  # else a record with this id belongs to another sandbox
                forget(self.id)
            self._destroyed = True
            self._client.close()

        complete(end)
        return lost

    def close(self) -> None:
        """Close the connection, and keep the sandbox and its codebase: a ``with`` block does not destroy it then.

        This ends commands that run over the connection, unless they are detached. A second call
        does nothing.
        """
        self._left = True
        self._client.close()

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._left:
            return
        try:
            lost = self._destroy()
        except SandboxError as why:
            if kind is None:
                raise
            warn_of_rest(self.id, why)
            return
        with suppress(
            *(() if kind is None else (ChangesLostWarning,))
        ):  # an error made from the warning would hide the exception
            warn_of_lost(self.id, lost)

    # Commands

    def run(
        self,
        command: str,
        timeout: Optional[Seconds] = 60,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[PathLike] = None,
        raise_on_error: bool = False,
        *,
        checkpoint: bool = False,
    ) -> t.ExecResult:
        """Run ``/bin/sh -c COMMAND`` in the workspace, and wait for its end.

        After ``timeout`` seconds the command is killed, and CommandTimeoutError is raised. With
        ``raise_on_error``, an exit code other than 0 raises CommandExecutionError. ``checkpoint``
        takes a snapshot first: ``@{1}`` names that state until the next such command.
        """
        result = self.exec(command, None, env, workdir, timeout, checkpoint=checkpoint)
        return result.raise_on_error() if raise_on_error else result

    def exec(
        self,
        command: str,
        stdin: Union[str, bytes, None] = None,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[PathLike] = None,
        timeout: Timeout = None,
        *,
        checkpoint: bool = False,
    ) -> t.ExecResult:
        """Run a command, and wait for its end; see SandboxClient.exec."""
        return self._client.exec(self.id, command, stdin, env, workdir, timeout, checkpoint=checkpoint)

    def exec_stream(
        self,
        command: str,
        stdin: Union[str, bytes, None] = None,
        env: Optional[Mapping[str, str]] = None,
        workdir: Optional[PathLike] = None,
        timeout: Timeout = None,
        *,
        checkpoint: bool = False,
    ) -> ExecStream:
        """Run a command, and return its output as an iterator of bytes."""
        return self._client.exec_stream(self.id, command, stdin, env, workdir, timeout, checkpoint=checkpoint)

    def session(self, shell: str = "/bin/sh", env: Optional[Mapping[str, str]] = None) -> SessionWrapper:
        """Start a shell that keeps its state between commands."""
        return self._client.create_session(self.id, shell, env)

    # Files

    def read_file(self, path: PathLike, *, max_bytes: Optional[int] = MAX_READ) -> str:
        """Return the text of a file in UTF-8; see read_file_bytes."""
        content = self.read_file_bytes(path, max_bytes=max_bytes)
        return content.decode("utf-8", "replace")

    def read_file_bytes(self, path: PathLike, *, max_bytes: Optional[int] = MAX_READ) -> bytes:
        """Return the content of a file: of the sandbox's view if changes wait for ``apply``, else of the codebase.

        Raises ResourceLimitExceededError for more than ``max_bytes``; None means no bound.
        """
        if self._waits:
            return self.files.read_bytes(path, max_bytes=max_bytes)
        return self._client.download_file(self.codebase_id, inside_path(path), max_bytes=max_bytes)

    def write_file(self, path: PathLike, content: Union[str, bytes]) -> None:
        """Write a file, in the same place in which ``read_file`` reads.

        In the sandbox's view the policy applies; the codebase has none.
        """
        if self._waits:
            self.files.write(path, content)
        else:
            self._client.upload_file(self.codebase_id, inside_path(path), content)

    def list_files(self, path: PathLike = "", recursive: bool = False) -> List[str]:
        """Return the paths in a directory, with ``recursive`` all below it, from where ``read_file`` reads."""
        if self._waits:
            return [entry.path for entry in self.files.list(path, recursive)]
        return [file.path for file in self._client.list_files(self.codebase_id, inside_path(path), recursive)]

    # Changes

    def diff(
        self,
        paths: Paths = None,
        *,
        names_only: bool = False,
        shown: t.Reviewed = None,
        mount: Optional[str] = None,
    ) -> t.Diff:
        """Return the sandbox's changes against its source; see SandboxClient.diff."""
        return self._client.diff(self.id, paths, names_only=names_only, shown=shown, mount=mount)

    def apply(
        self,
        paths: Paths = None,
        *,
        dry_run: bool = False,
        reviewed: t.Reviewed = None,
        mount: Optional[str] = None,
        hunks: Optional[Sequence[str]] = None,
        on_conflict: Union[t.ConflictResolution, str, None] = None,
        to_branch: Optional[str] = None,
        message: str = "",
        git_user: Optional[t.GitUser] = None,
        attest: bool = False,
    ) -> t.ApplyResult:
        """Apply changes to the source, all if ``paths`` is None; see SandboxClient.apply.

        The source is the linked directory, or the directory of this host that ``from_local``
        uploaded. The program ``agentfense`` brings changes back into an uploaded directory if it
        still holds what was uploaded, and then the server changes its copy. For any other codebase
        the source is the server's copy; that of a mount is on the server's host. Raises
        InvalidConfigurationError if the package could not record the upload, and for ``hunks``,
        ``on_conflict``, ``to_branch`` and ``attest`` of an uploaded directory; the program
        ``agentfense`` and the Go client make a statement about one. For ``to_branch``, ``git_user``
        is by default this user, as git's configuration says.
        """
        if mount is None and self._unnoted:
            raise InvalidConfigurationError(self._unnoted)
        if mount is not None or not is_remembered(self.id):
            if to_branch is not None and git_user is None:
                git_user = git_user_of(None)
            return self._client.apply(
                self.id,
                paths,
                dry_run=dry_run,
                reviewed=reviewed,
                mount=mount,
                hunks=hunks,
                on_conflict=on_conflict,
                to_branch=to_branch,
                message=message,
                git_user=git_user,
                attest=attest,
            )
        if attest:
            raise InvalidConfigurationError(
                "apply: attest is not possible here for a directory that was uploaded; make the statement with "
                "`agentfense apply NAME --attest FILE`, or with ApplyAttested of the Go client"
            )
        if hunks is not None or to_branch is not None:
            raise InvalidConfigurationError(
                "apply: not for a directory that was uploaded: hunks, to_branch; apply whole files"
            )
        if on_conflict is not None:
            raise InvalidConfigurationError(
                "apply: texts of a directory that was uploaded are not merged; apply the other paths, "
                "and discard those in conflict"
            )
        wanted = chosen(paths)
        if wanted == []:
            return t.ApplyResult([], 0, 0)
        request = apply_request(self.id, wanted, dry_run, reviewed)
        return bring_back(self._client._connection, request, reviewed)

    def commits(self) -> t.Commits:
        """Return what commands committed in the clean repository; see SandboxClient.list_commits."""
        return self._client.list_commits(self.id)

    def apply_commits(
        self,
        to_branch: Optional[str] = None,
        *,
        from_branch: Optional[str] = None,
        at_base: bool = False,
        reviewed: Optional[str] = None,
        dry_run: bool = False,
        git_user: Optional[t.GitUser] = None,
    ) -> t.AppliedCommits:
        """Make the commits anew in the source; see SandboxClient.apply_commits."""
        return self._client.apply_commits(
            self.id,
            to_branch,
            from_branch=from_branch,
            at_base=at_base,
            reviewed=reviewed,
            dry_run=dry_run,
            git_user=git_user,
        )

    def undo(self, *, dry_run: bool = False) -> t.Reversal:
        """Take the last apply back: the source gets what it had before; see SandboxClient.undo."""
        return self._client.undo(self.id, dry_run=dry_run)

    def redo(self, *, dry_run: bool = False) -> t.Reversal:
        """Take the last undo back; see SandboxClient.redo."""
        return self._client.redo(self.id, dry_run=dry_run)

    def history(self) -> List[t.Transaction]:
        """Return what was applied and undone, the latest first; see SandboxClient.list_transactions."""
        return self._client.list_transactions(sandbox_id=self.id)

    def export(
        self,
        path: PathLike,
        format: Union[t.ExportFormat, str] = t.ExportFormat.AGENTFS,
        *,
        mount: Optional[str] = None,
    ) -> t.Exported:
        """Write what the sandbox changed to a new file; see SandboxClient.export."""
        return self._client.export(self.id, path, format, mount=mount)

    def sql(self, statement: str, *, max_rows: int = 10_000, timeout: Timeout = None) -> t.QueryResult:
        """Answer one SELECT statement about the sandbox; see SandboxClient.sql."""
        return self._client.sql(self.id, statement, max_rows=max_rows, timeout=timeout)

    def discard(self, paths: Paths = None, *, dry_run: bool = False, mount: Optional[str] = None) -> t.DiscardResult:
        """Discard changes, all if ``paths`` is None; see SandboxClient.discard."""
        return self._client.discard(self.id, paths, dry_run=dry_run, mount=mount)

    # Policy, audit and use

    def set_policy(
        self,
        permissions: Optional[Sequence[t.RuleLike]] = None,
        *,
        preset: Optional[str] = None,
        policy: Optional[PolicyLike] = None,
    ) -> Sandbox:
        """Replace the rules, also for running commands, and return the sandbox.

        The new rules are those of ``preset``, followed by ``permissions``; or those of ``policy``.
        """
        rules = rules_of(policy, preset, permissions)
        self._info = self._client.set_policy(self.id, rules)
        set_rules(self.id, rules)
        return self

    def audit(
        self,
        *,
        follow: bool = False,
        events: Union[str, Sequence[str], None] = None,
        after_seq: int = 0,
        since: Optional[datetime] = None,
    ) -> AuditStream:
        """Return the sandbox's audit events; with ``follow`` also future ones."""
        return self._client.audit(self.id, follow=follow, events=events, after_seq=after_seq, since=since)

    def logs(self, *, follow: bool = False) -> LogStream:
        """Return the output of the detached commands; with ``follow`` until the last of them has ended."""
        return self._client.logs(self.id, follow=follow)

    def stats(self) -> t.Stats:
        """Return what the sandbox uses."""
        return self._client.get_stats(self.id)
