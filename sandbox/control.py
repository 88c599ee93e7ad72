"""The control surface of a host, as methods: people, keys, faults, arrivals, what was counted."""

from __future__ import annotations

from collections.abc import Sequence

from sandbox.core import Core
from sandbox.courier import arrive
from sandbox.records import DELIVERED, Recipient, Record, message_hash
from sandbox.sockets import Socket


class Control:
    """Steers one host from outside; every method works at once and without a token."""

    def __init__(self, core: Core) -> None:
        self.core = core
        """The host steered."""

    def create_address(self, address: str, *, owner: str | None = None) -> str:
        """An account for the address; it is then a known recipient."""
        return self.core.accounts.create(address, owner=owner).addr

    def create_key(self, address: str, *, life_s: float | None = None, cidrs: Sequence[str] | None = None) -> str:
        """A new API key of the address (made where unknown)."""
        expires_at_s = None if life_s is None else self.core.clock() + life_s
        return self.core.accounts.create_key(
            address, expires_at_s=expires_at_s, cidrs=None if cidrs is None else tuple(cidrs)
        )

    def deliver(
        self,
        from_: str,
        to: Sequence[str],
        *,
        topic: str = "",
        body: str | bytes = "",
        type_: str = "text/plain;charset=UTF-8",
        pid: int | None = None,
        important: bool = False,
        no_reply: bool = False,
        terminal: bool = False,
        time_s: float | None = None,
    ) -> int:
        """Let a message arrive, as if another host had brought it; the fast path for load. Returns its id."""
        core = self.core
        parent = core.state.messages[pid] if pid is not None else None
        data = body.encode() if isinstance(body, str) else body
        record = Record(
            id=core.state.take_id(),
            from_=from_,
            to=[Recipient(addr=address) for address in to],
            type=type_,
            data=data,
            declared_size=len(data),
            pid=pid,
            pid_hash=parent.sha256 if parent is not None else None,
            topic=topic,
            important=important,
            no_reply=no_reply,
            terminal=terminal,
            time_s=core.state.stamp() if time_s is None else time_s,
        )
        record.sha256 = message_hash(record)
        arrive(core, record, {recipient.addr.casefold(): DELIVERED for recipient in record.to})
        return record.id

    def drop_sockets(self, address: str | None = None, *, close_frame: bool = False, code: int = 1000) -> int:
        """End the sockets of one address or of all, with or without a close frame; how many."""
        ears = self.core.listener.ears(address)
        for ear in ears:
            if isinstance(ear, Socket):
                if close_frame:
                    ear.close(code)
                else:
                    ear.drop()
        return len(ears)
