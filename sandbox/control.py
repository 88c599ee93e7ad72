"""The control surface of a host, as methods and over HTTP: addresses, keys, faults, arrivals, links, counts."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Any, get_type_hints

import msgspec
from aiohttp import web

from fmsg.address import is_address, parse_address
from sandbox.accounts import key_id_of
from sandbox.core import Core
from sandbox.events import ANYBODY
from sandbox.faults import ANY, Failure
from sandbox.federation import arrive, retry_now
from sandbox.listening import Listening
from sandbox.records import DELIVERED, Recipient, Record, compressed_bytes, lowered, message_hash
from sandbox.routes import CONTROL_PREFIX
from sandbox.sockets import Socket
from sandbox.switches import PRESETS, Switches
from sandbox.wire import RouteRefused, answer, encode, json_object

ASKING: ContextVar[asyncio.Transport | None] = ContextVar("asking", default=None)
"""The connection a control request came in by: it survives what it asks for, so that it can be answered."""


class Control:
    """Steers one host from outside. Every method works at once and without a token.

    ``address`` None means every address, ``route`` is a name of `sandbox.faults` (``*`` is any route).
    """

    def __init__(self, core: Core) -> None:
        self.core = core
        """The host steered."""
        self.listening: Listening | None = None
        """Its port, while it is served."""

    def create_address(self, address: str, *, owner: str | None = None) -> str:
        """An account for the address, which makes it a known recipient. Returns the address."""
        self._check_local(address)
        return self.core.accounts.create(address, owner=owner).addr

    def addresses(self) -> list[str]:
        """The addresses that this host knows."""
        return sorted(account.addr for account in self.core.accounts.accounts.values() if account.known)

    def owner_of(self, key: str) -> str:
        """The address that a key (or key id) belongs to."""
        return self.core.accounts.keys[key_id_of(key)].addr

    def received(self, address: str) -> int:
        """How many messages of others the address received, reactions and those that want no reply left out."""
        state = self.core.state
        return sum(
            record.reaction is None and not record.no_reply and lowered(record.from_) != lowered(address)
            for record in map(state.messages.__getitem__, state.mailbox(address).received)
        )

    def create_key(self, address: str, *, life_s: float | None = None, cidrs: Sequence[str] | None = None) -> str:
        """A new API key of the address (made where unknown). Returns the key."""
        self._check_local(address)
        expires_at_s = None if life_s is None else self.core.clock() + life_s
        limits = None if cidrs is None else tuple(cidrs)
        return self.core.accounts.create_key(address, expires_at_s=expires_at_s, cidrs=limits)

    def rotate_key(self, key: str) -> str:
        """Replace a key (or key id): the old one is revoked. Returns the new key."""
        fresh = self.core.accounts.rotate(key)
        self._close_revoked()
        return fresh

    def revoke_key(self, key: str) -> None:
        """Refuse a key (or key id) and every token that came from it."""
        self.core.accounts.revoke(key)
        self._close_revoked()

    def expire_tokens(self, address: str | None = None) -> None:
        """Take the tokens issued so far as expired."""
        self.core.accounts.expire_tokens(address)
        if not self.core.switches.sockets_outlive_tokens:
            self.drop_sockets(address, close_frame=True)

    def set_token_life(self, life_s: float) -> None:
        """Life of the tokens issued from now on."""
        self.core.token_life_s = life_s

    def set_address(
        self, address: str, *, known: bool = True, may_send: bool = True, delivery_code: int | None = None
    ) -> None:
        """Make an account unknown, unable to send, or refusing deliveries with a code."""
        self._check_local(address)
        account = self.core.accounts.create(address)
        account.known, account.may_send, account.delivery_code = known, may_send, delivery_code
        self.core.accounts.save(account)

    def set_identity_service(self, *, up: bool) -> None:
        """Without it every request is answered 503."""
        self.core.accounts.identity_service_down = not up

    def set_database(self, *, up: bool) -> None:
        """Without it every request is answered 500."""
        self.core.accounts.database_down = not up

    def deliver(
        self,
        from_: str,
        to: Sequence[str],
        *,
        topic: str = "",
        body: str = "",
        data: bytes | None = None,
        type_: str = "text/plain;charset=UTF-8",
        pid: int | None = None,
        important: bool = False,
        no_reply: bool = False,
        terminal: bool = False,
        time_s: float | None = None,
    ) -> int:
        """Let a message arrive as if another host had brought it: the fast path for load. Returns its id."""
        core = self.core
        parent = core.state.messages[pid] if pid is not None else None
        content = body.encode() if data is None else data
        record = Record(
            id=core.state.take_id(),
            from_=from_,
            to=[Recipient(addr=address) for address in to],
            type=type_,
            data=content,
            wire_bytes=compressed_bytes(type_, content),
            pid=pid,
            pid_hash=parent.sha256 if parent is not None else None,
            topic=topic,
            important=important,
            no_reply=no_reply,
            terminal=terminal,
            time_s=core.state.stamp(after=parent) if time_s is None else time_s,
        )
        record.sha256 = message_hash(record)
        arrive(core, record, {lowered(address): DELIVERED for address in to if core.is_local(address)})
        return record.id

    def deliver_each(self, from_: str, to: Sequence[str], *, topic: str = "", body: str = "") -> list[int]:
        """Let one message arrive for each of the addresses, all at the same moment. Returns the ids."""
        return [self.deliver(from_, [address], topic=topic, body=body) for address in to]

    def set_next_id(self, next_id: int, *, next_batch_id: int | None = None) -> None:
        """The id of the next draft or arrival, up to 2^63-1."""
        self.core.state.set_next_id(next_id)
        if next_batch_id is not None:
            self.core.state.set_next_batch_id(next_batch_id)

    def drop_sockets(self, address: str | None = None, *, close_frame: bool = False, code: int = 1000) -> int:
        """End sockets with or without a close frame. Returns how many."""
        sockets = self._sockets(address)
        for socket in sockets:
            if close_frame:
                socket.close(code)
            else:
                socket.drop()
        return len(sockets)

    def deafen(self) -> None:
        """Lose every event silently while the sockets stay open."""
        self.core.listener.deaf = True

    def undeafen(self) -> None:
        """Push events again. What was lost stays lost."""
        self.core.listener.deaf = False

    def lose_events(self, times: int = 1, *, address: str | None = None) -> None:
        """Lose the next events that would have reached an open socket; one per recipient counts."""
        self.core.listener.lose_next[ANYBODY if address is None else lowered(address)] += times

    def reject_upgrades(self, times: int = 1, *, status: int = 503, text: str = "try again later") -> None:
        """Refuse the next WebSocket upgrades."""
        self.core.faults.failures["ws"].extend([Failure(status=status, text=text)] * times)

    def delay(self, delay_s: float, *, route: str = ANY) -> None:
        """Hold every request of the route for this long. 0 ends it."""
        if delay_s > 0:
            self.core.faults.delays_s[route] = delay_s
        else:
            self.core.faults.delays_s.pop(route, None)

    def fail_next(
        self,
        route: str = ANY,
        *,
        times: int = 1,
        status: int = 500,
        text: str = "internal server error",
        code: str | None = None,
        html: bool = False,
        cut: bool = False,
        retry_after_s: int | None = None,
    ) -> None:
        """Answer the next requests of the route with an error, or cut them, without doing anything."""
        failure = Failure(status=status, text=text, code=code, html=html, cut=cut, retry_after_s=retry_after_s)
        self.core.faults.failures[route].extend([failure] * times)

    def hang_next(self, route: str = ANY, *, times: int = 1) -> None:
        """Never answer the next requests of the route, until `release` or `clear_faults`."""
        self.core.faults.hangs_left[route] += times

    def release(self) -> None:
        """Cut the connections of hanging requests."""
        self.core.faults.release()

    def lose_answers(self, route: str = "send", *, times: int = 1) -> None:
        """Do what the next requests of the route ask, then cut the connection instead of answering."""
        self.core.faults.lost_answers_left[route] += times

    def clear_faults(self) -> None:
        """End every delay, failure, hang, lost answer and lost event, and mend all links."""
        self.core.faults.clear()
        self.core.listener.deaf = False
        self.core.listener.lose_next.clear()
        self.core.accounts.identity_service_down = False
        self.core.accounts.database_down = False
        self.core.links.cut.clear()
        self.core.links.refusal = None

    async def refuse_connections(self) -> None:
        """Refuse new connections and abort the open ones, until `accept_connections`."""
        await self._port().refuse(spare=ASKING.get())

    async def accept_connections(self) -> None:
        """Listen again, on the same port."""
        await self._port().accept()

    def restart(self, down_s: float = 0.5) -> None:
        """Imitate a restart: abort all connections, refuse new ones for a while, then accept again."""
        self._port().restart(down_s, spare=ASKING.get())

    def cut_link(self, domain: str) -> None:
        """Stop deliveries between this host and the domain, both ways."""
        self.core.links.cut.add(check_domain(domain))

    def mend_link(self, domain: str) -> None:
        """Deliver again. What waited on this side goes out now."""
        self.core.links.cut.discard(check_domain(domain))
        retry_now(self.core)

    def refuse_deliveries(self, code: int | None) -> None:
        """Refuse what other hosts bring with this delivery code; None takes it again."""
        self.core.links.refusal = code

    def set_switches(self, changes: dict[str, Any] | None = None, *, preset: str | None = None) -> dict[str, Any]:
        """Replace the switches by a preset, then change single ones. Returns all of them."""
        base = self.core.switches if preset is None else PRESETS[preset]
        fields = msgspec.structs.asdict(base)
        unknown = sorted(set(changes or ()) - set(fields))
        if unknown:
            raise ValueError(f"switches: there is no {', '.join(unknown)}; known are {', '.join(fields)}")
        self.core.switches = msgspec.convert({**fields, **(changes or {})}, Switches)
        return msgspec.structs.asdict(self.core.switches)

    def stats(self) -> dict[str, Any]:
        """Open sockets per identity, connects and their peak per second, requests per route, events, ids."""
        core = self.core
        sockets = core.listener.counts()
        return {
            "domain": core.domain,
            "sockets": sockets,
            "open_sockets": sum(sockets.values()),
            "connects": core.faults.connects,
            "peak_connects_per_s": core.faults.peak_connects_per_s(),
            "requests": dict(core.faults.requests),
            "statuses": dict(core.faults.statuses),
            "frames": core.listener.frames,
            "events_lost": core.listener.lost,
            "sockets_overrun": core.faults.cut_bursts,
            "messages": len(core.state.messages),
            "next_id": core.state.next_id,
            "undelivered": sum(map(len, core.links.stalled.values())),
        }

    def reset_stats(self) -> None:
        """Set all counters to 0. Open sockets stay counted."""
        self.core.faults.reset_counters()
        self.core.listener.frames = self.core.listener.lost = 0

    def _check_local(self, address: str) -> None:
        if not self.core.is_local(parse_address(address)):
            raise ValueError(f"address: {address} does not belong to {self.core.domain}; ask the host of its domain")

    def _port(self) -> Listening:
        if self.listening is None:
            raise RuntimeError(f"host {self.core.domain} is not served; use sandbox.host.serve first")
        return self.listening

    def _sockets(self, address: str | None) -> list[Socket]:
        return [ear for ear in self.core.listener.ears(address) if isinstance(ear, Socket)]

    def _close_revoked(self) -> None:
        if not self.core.switches.sockets_outlive_tokens:
            for socket in self._sockets(None):
                if self.core.accounts.keys[socket.key_id].revoked:
                    socket.close()


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def check_domain(domain: str) -> str:
    """The domain in lower case. Raises `ValueError` for what cannot be one."""
    if "@" in domain or not is_address(f"@user@{domain}"):
        raise ValueError(f"domain: {domain!r} cannot be a domain; name one such as here.test")
    return lowered(domain)


def methods_of(control: Control) -> dict[str, Callable[..., Any]]:
    """Every public method by name."""
    return {name: method for name, method in inspect.getmembers(control, inspect.ismethod) if name[0] != "_"}


def arguments_of(method: Callable[..., Any]) -> type[msgspec.Struct]:
    """The struct a method's JSON arguments are read into."""
    hints = get_type_hints(method)
    fields: list[Any] = []
    for name, parameter in inspect.signature(method).parameters.items():
        default = {} if parameter.default is inspect.Parameter.empty else {"default": parameter.default}
        fields.append((name, hints[name], msgspec.field(name=name.rstrip("_"), **default)))
    # Named after the method, because the name is part of what a wrong argument is answered with.
    return msgspec.defstruct(method.__name__, fields, kw_only=True, forbid_unknown_fields=True)


def add_control(app: web.Application, control: Control) -> None:
    """Put the control surface on an application."""
    methods = methods_of(control)
    for name, method in methods.items():
        app.router.add_post(f"{CONTROL_PREFIX}/{name}", _handler(method))

    async def stats(_: web.Request) -> web.Response:
        return answer({"result": control.stats()})

    async def index(_: web.Request) -> web.Response:
        listing = encode({name: _described(method) for name, method in methods.items()})
        return web.Response(body=msgspec.json.format(listing) + b"\n", content_type="application/json")

    app.router.add_get(f"{CONTROL_PREFIX}/stats", stats)
    app.router.add_get(CONTROL_PREFIX, index)


def _handler(method: Callable[..., Any]) -> Handler:
    arguments = arguments_of(method)

    async def handle(request: web.Request) -> web.StreamResponse:
        fields = await json_object(request, optional=True)
        token = ASKING.set(request.transport)
        try:
            given = msgspec.convert(fields, arguments)
            result = method(**msgspec.structs.asdict(given))
            if inspect.isawaitable(result):
                result = await result
        except (msgspec.ValidationError, ValueError) as error:
            raise RouteRefused(400, str(error)) from None
        except KeyError as error:
            raise RouteRefused(404, f"unknown: {error.args[0]!r}") from None
        finally:
            ASKING.reset(token)
        return answer({"result": result})

    return handle


def _described(method: Callable[..., Any]) -> dict[str, Any]:
    """What a method does, and its arguments by the names that it takes: type, and default where it has one."""
    what = (inspect.getdoc(method) or "").partition("\n")[0]
    arguments = {
        name.rstrip("_"): parameter.annotation
        + ("" if parameter.default is inspect.Parameter.empty else f" = {parameter.default!r}")
        for name, parameter in inspect.signature(method).parameters.items()
    }
    return {"does": what, "arguments": arguments}
