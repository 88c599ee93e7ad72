"""One host without HTTP: what its routes, its federation and its control surface work on."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Callable
from pathlib import Path

from sandbox.accounts import Accounts
from sandbox.events import Event, Listener
from sandbox.faults import Faults
from sandbox.records import Account, ApiKey, Record, domain_of, lowered
from sandbox.render import Renderer
from sandbox.store import MAX_ID, HostRecords, Journal
from sandbox.switches import Limits, Switches
from sandbox.wire import MAX_ID_DIGITS, RouteRefused, encode, is_hash


class Links:
    """How a host stands with other hosts."""

    def __init__(self) -> None:
        self.peers: dict[str, Core] = {}
        """Hosts that can be reached, by domain in lower case."""
        self.cut: set[str] = set()
        """Domains that cannot be reached for now, peers or not."""
        self.answering = True
        """Whether this host answers other hosts."""
        self.refusal: int | None = None
        """Code for every message another host brings. None takes them."""
        self.stalled: dict[str, list[Callable[[], None]]] = {}
        """Deliveries waiting for a domain that does not answer."""


class Core:
    """The parts of a host."""

    def __init__(
        self,
        domain: str,
        *,
        switches: Switches,
        limits: Limits,
        store: str | Path,
        clock: Callable[[], float],
        rng: random.Random,
    ) -> None:
        self.domain = lowered(domain)
        """The domain whose addresses live here, in lower case."""
        self.limits = limits
        self.clock = clock
        journal = Journal(None if store == "memory" else store)
        facts = journal.load("fact", str)
        signing_key = bytes.fromhex(facts.get("signing_key", "")) or secrets.token_bytes(32)
        self.state = HostRecords(clock=clock, journal=journal)
        self.accounts = Accounts(self.domain, clock=clock, journal=journal, signing_key=signing_key)
        self.renderer = Renderer(self.domain, switches)
        self.listener = Listener(self._frame, shuffle=self._shuffles, rng=rng)
        self.links = Links()
        """How the host stands with other hosts."""
        self.faults = Faults()
        self.token_life_s = switches.token_life_s
        """Life of the tokens issued from now on."""
        self.unlisted: set[int] = set()
        """Ids of messages whose event went out before they can be read."""
        self._timers: set[asyncio.TimerHandle] = set()
        for account in journal.load("account", Account).values():
            self.accounts.accounts[lowered(account.addr)] = account
        self.accounts.keys.update(journal.load("key", ApiKey))
        self.state.load(journal.load("message", Record).values(), facts)
        journal.save("fact", "signing_key", signing_key.hex())

    @property
    def switches(self) -> Switches:
        """The behaviour in force. It may be replaced at any time."""
        return self.renderer.switches

    @switches.setter
    def switches(self, switches: Switches) -> None:
        self.renderer.switches = switches

    def is_local(self, address: str) -> bool:
        """Whether the address belongs to this host's domain."""
        return domain_of(address) == self.domain

    def resolve(self, text: str) -> Record:
        """The message that a path's ``{id}`` names. 400 for nonsense, 404 ``message not found``."""
        if is_hash(text) and self.switches.hash_ids and self.switches.hashes:
            message_id = self.state.by_hash.get(text.lower(), 0)
        elif text.isascii() and text.isdigit() and len(text) <= MAX_ID_DIGITS and 0 < int(text) <= MAX_ID:
            message_id = int(text)
        else:
            raise RouteRefused(400, "invalid message id")
        record = self.state.messages.get(message_id)
        if record is None:
            raise RouteRefused(404, "message not found")
        return record

    def readable(self, text: str, viewer: str) -> Record:
        """The message that a path names, if the viewer may read it. 403 ``access denied`` for others."""
        record = self.resolve(text)
        if not self.sees(record, viewer):
            if record.is_participant(lowered(viewer)):
                raise RouteRefused(404, "message not found")
            raise RouteRefused(403, "access denied")
        return record

    def sees(self, record: Record, viewer: str) -> bool:
        """Whether the viewer may read the message now."""
        lower = lowered(viewer)
        if lowered(record.from_) == lower:
            return True
        if record.id in self.unlisted or (record.is_draft and not self.switches.drafts_shown):
            return False
        return record.is_participant(lower) and lower not in record.refused()

    def announce(self, kind: str, record: Record, to: list[str]) -> None:
        """Push an event to the addresses of ``to`` that live here and were not refused."""
        refused = record.refused()
        local = [address for address in to if self.is_local(address) and lowered(address) not in refused]
        self.listener.notify(kind, record.id, local)

    def lead(self, record: Record) -> None:
        """Keep the message unreadable for a while after its event, if the switches say so."""
        lead_s = self.switches.event_lead_s
        if lead_s > 0:
            self.unlisted.add(record.id)
            self.later(lead_s, lambda: self.unlisted.discard(record.id))

    def peer(self, domain: str) -> Core | None:
        """The host of a domain if it answers now."""
        found = self.links.peers.get(domain)
        if found is None or domain in self.links.cut or self.domain in found.links.cut:
            return None
        return found if found.links.answering else None

    def later(self, delay_s: float, job: Callable[[], None]) -> None:
        """Run the job after the delay, unless the host is closed first."""

        def run() -> None:
            self._timers.discard(timer)
            job()

        timer = asyncio.get_running_loop().call_later(delay_s, run)
        self._timers.add(timer)

    def close(self) -> None:
        """Stop timers and close the journal."""
        self.links.answering = False
        self.links.stalled.clear()
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        self.listener.close()
        self.state.journal.close()

    def _frame(self, event: Event, viewer: str) -> bytes | None:
        record = self.state.messages.get(event.message_id)
        if record is None:
            return None
        return encode({"type": event.kind, "data": self.renderer.message(record, viewer)})

    def _shuffles(self) -> bool:
        return self.switches.frames_out_of_order
