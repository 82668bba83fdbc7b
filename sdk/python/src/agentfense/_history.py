# Made from _async_history.py by make gen: do not edit.

"""The calls about what was applied, for threads."""

from __future__ import annotations

from typing import Any, List

from . import _requests as requests
from . import types as t
from ._arguments import id_of
from ._codebases import Calls
from ._connection import WORK
from ._errors import Call, next_page
from ._gen.sandbox.v1 import history_pb2
from ._wire import reversal_of, transaction_of


class HistoryCalls(Calls):
    """The calls about what was applied to linked directories and to the sources of mounts."""

    def list_transactions(self, *, sandbox_id: str = "", codebase_id: str = "") -> List[t.Transaction]:
        """Return the transactions of a sandbox, or of a linked codebase, the latest first.

        Those of a codebase include those of destroyed sandboxes. Give one of the ids.
        """
        request = history_pb2.ListTransactionsRequest(
            sandbox_id=id_of(sandbox_id, "sandbox_id"), codebase_id=id_of(codebase_id, "codebase_id")
        )
        found: List[t.Transaction] = []
        while True:
            about = Call("history", sandbox_id, codebase_id=codebase_id)
            page = self._connection.call("ListTransactions", request, about)
            found += map(transaction_of, page.transactions)
            request.page_token = next_page(request.page_token, page.next_page_token)
            if not request.page_token:
                return found

    def undo(self, sandbox_id: str, *, dry_run: bool = False) -> t.Reversal:
        """Take the last apply of a sandbox back: the source gets what it had before.

        The sandbox has the changes again, if it does not run. With ``dry_run`` nothing changes.
        Raises ConflictError if a path has changed since, and SandboxError if nothing was applied,
        or if the files were uploaded.
        """
        return self._reverse("Undo", requests.undo(sandbox_id, "", dry_run), Call("undo", sandbox_id))

    def redo(self, sandbox_id: str, *, dry_run: bool = False) -> t.Reversal:
        """Take the last undo of a sandbox back; see ``undo``."""
        return self._reverse("Redo", requests.undo(sandbox_id, "", dry_run), Call("redo", sandbox_id))

    def undo_transaction(self, transaction_id: str, *, dry_run: bool = False) -> t.Reversal:
        """Take an apply back, also one of a destroyed sandbox of a linked codebase; see ``undo``."""
        return self._reverse("Undo", requests.undo("", transaction_id, dry_run), Call("undo"))

    def redo_transaction(self, transaction_id: str, *, dry_run: bool = False) -> t.Reversal:
        """Take the undo of a transaction back; see ``undo``."""
        return self._reverse("Redo", requests.undo("", transaction_id, dry_run), Call("redo"))

    def _reverse(self, method: str, request: Any, about: Call) -> t.Reversal:
        return reversal_of(self._connection.call(method, request, about, WORK))
