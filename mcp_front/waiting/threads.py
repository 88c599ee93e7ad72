"""The thread that any of its messages names, one that the caller may not read included."""

from __future__ import annotations

from fmsg.errors import FmsgError, Forbidden, HostRefused, HostUnreachable, NotFound
from fmsg.message import Message
from ledger.port import Ledger, NoLedger
from ledger.thread_roots import resolve_roots
from ledger.values import CallerKey, Seen
from mcp_front.waiting.backlog import WaitApi
from mcp_front.waiting.decide import thread_of
from mcp_front.waiting.request import TRANSIENT, UnknownThread

LOOK_BACK = 300
"""Recent entries looked through for one that replies to a message nobody may read."""


async def root_named_by(api: WaitApi, ledger: Ledger, caller: CallerKey, message_id: int) -> int:
    """The root of the thread of a message: from the ledger, else from the host.

    A message the caller cannot read is looked for as what others reply to; if nobody does it is taken for a root, as
    results name invisible roots too. Raises `UnknownThread`, what the host raises in trouble, what the ledger raises.
    """
    root = await held_root(ledger, caller, message_id)
    if root:
        return root
    try:
        message = await api.message(message_id)
    except (Forbidden, NotFound) as error:
        return await _of_unreadable(api, ledger, caller, message_id, error)
    return await _of_readable(api, ledger, caller, message)


async def held_root(ledger: Ledger, caller: CallerKey, message_id: int) -> int:
    """The root as the ledger knows it; 0 where it does not. Raises what the ledger raises."""
    try:
        entry = (await ledger.find(caller, [message_id])).entries.get(message_id)
    except NoLedger:
        return 0
    return 0 if entry is None else thread_of(entry)


async def _of_readable(api: WaitApi, ledger: Ledger, caller: CallerKey, message: Message) -> int:
    if not message.pid:
        return message.id
    seen = Seen(id=message.id, pid=message.pid, root=0, from_=message.from_)
    try:
        roots = await resolve_roots(api, ledger, caller, [seen], last_try=True)
    except NoLedger:
        return (await api.thread(message.id)).root_id
    root = roots[message.id]
    if not root:
        raise HostUnreachable(f"the host did not say which thread message {message.id} belongs to")
    return root


async def _of_unreadable(api: WaitApi, ledger: Ledger, caller: CallerKey, message_id: int, error: HostRefused) -> int:
    try:
        return (await api.thread(message_id)).root_id
    except TRANSIENT:
        raise
    except FmsgError:
        pass
    try:
        recent = (await ledger.read_back(caller, LOOK_BACK)).entries
    except NoLedger:
        recent = ()
    for entry in reversed(recent):
        if message_id in (entry.root, entry.pid) and entry.root:
            return entry.root
    if isinstance(error, Forbidden):
        return message_id
    raise UnknownThread(
        f"thread_of: the host knows no message {message_id} (it answers {error.status}). "
        "Pass the id of any message of the thread."
    ) from error
