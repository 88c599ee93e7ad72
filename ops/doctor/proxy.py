"""The way from an agent to the front: hold a wait through it as an agent would, and count the signs of life.

The wait is for a sender that there is not, so it returns nothing and acknowledges nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Mapping
from typing import Any

import aiohttp
import msgspec

from ops.doctor.findings import Finding, Level

PING_EVERY_S = 15.0
"""How often a front sends a ping on a held answer (`mcp_front.settings.HttpSettings.ping_s`)."""

LATE_S = 10.0
"""A ping that comes this much late was held back by something in the way."""

EARLY_S = 2.0
"""An answer this much before the time is over was not held that long."""

SILENCE_S = 4.0
"""A cut after so much silence is an idle timeout. Shorter ones do not exist in practice."""

SPARE_S = 20.0
"""How long beyond the held time the answer may take before it is given up."""

MAX_ANSWER_BYTES = 256 * 1024
"""The answer of a wait that timed out is below a kilobyte. A longer one is no such answer."""

NOBODY = "@nobody@doctor.invalid"
"""The sender waited for: the top-level domain is reserved for names that do not exist (RFC 2606)."""

PROTOCOL = "2025-06-18"
"""A version that needs no more than a header."""


class HeldWait(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a held wait. Times in seconds since it was sent.

    ``signs_s`` are the moments at which anything of the answer came, ``ended_s`` when it ended. ``cut`` says how it
    broke off, None where the answer is whole; ``text`` is the body, at most `MAX_ANSWER_BYTES` of it.
    """

    status: int
    streamed: bool
    signs_s: tuple[float, ...]
    ended_s: float
    text: str
    cut: str | None = None


async def hold(url: str, api_key: str, hold_s: float) -> HeldWait:
    """Hold a wait. Raises `aiohttp.ClientError` and `OSError` where there was no answer at all, `TimeoutError`."""
    loop = asyncio.get_running_loop()
    request = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": "wait_for_message", "arguments": {"from": NOBODY, "timeout_seconds": hold_s}},
    }
    headers = {
        "Authorization": f"Bearer {api_key}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": PROTOCOL,
    }
    timeout = aiohttp.ClientTimeout(total=hold_s + SPARE_S, sock_connect=10.0)
    async with aiohttp.ClientSession(timeout=timeout, trust_env=False) as session:
        began_s = loop.time()
        async with session.post(url, json=request, headers=headers, allow_redirects=False) as answer:
            signs: list[float] = []
            data = bytearray()
            cut: str | None = None
            try:
                async for chunk in answer.content.iter_any():
                    signs.append(loop.time() - began_s)
                    data += chunk[: MAX_ANSWER_BYTES - len(data)]
            except TimeoutError:
                cut = "it did not end"
            except aiohttp.ClientPayloadError:
                cut = "the connection was closed in the middle of the answer"
            except (aiohttp.ClientError, OSError) as error:
                cut = str(error) or type(error).__name__
            return HeldWait(
                status=answer.status,
                streamed=answer.content_type == "text/event-stream",
                signs_s=tuple(signs),
                ended_s=loop.time() - began_s,
                text=data.decode("utf-8", "replace"),
                cut=cut,
            )


async def check_proxy(url: str, api_key: str, hold_s: float) -> Finding:
    """The line about the way through ``url``."""
    tried = f"hold a wait of {hold_s:g} s through {url}"
    try:
        held = await hold(url, api_key, hold_s)
    except TimeoutError:
        do = "Something accepts connections and passes nothing on: look at the proxy and at the front behind it."
        return _line("failure", tried, f"nothing within {hold_s + SPARE_S:g} s", do, outage=True)
    except (aiohttp.ClientError, OSError) as error:
        do = "Check the URL, and that proxy and front run."
        return _line("failure", tried, f"no answer ({type(error).__name__}: {error})", do, outage=True)
    return judge(held, tried=tried, hold_s=hold_s)


def judge(held: HeldWait, *, tried: str, hold_s: float) -> Finding:
    """What a held wait tells of the way."""
    if held.status != 200:
        return _refused(held, tried)
    widest_s = _widest(held)
    pings = held.text.count(": ping")
    if held.cut is not None or (_answer(held.text) is None and held.streamed):
        how = f"cut after {held.ended_s:.0f} s ({held.cut or 'the stream ended without an answer'})"
        return _line("failure", tried, f"{how}, {_signs(pings)} had come", _cut_advice(held))
    answer = _answer(held.text)
    problem = _problem(answer)
    if problem is not None:
        do = "The way is open; what the front says is about the call itself."
        return _line("failure", tried, f"the front answered: {problem}", do)
    if held.ended_s + EARLY_S < hold_s:
        came = f"it returned after {held.ended_s:.0f} s already, {_signs(pings)} had come"
        do = "A front holds no longer than FMSG_MCP_WAIT_MAX_SECONDS and ends waits when it stops: repeat it."
        return _line("warning", tried, came, do)
    if hold_s > PING_EVERY_S + LATE_S and (not held.streamed or widest_s > PING_EVERY_S + LATE_S):
        came = f"it returned, but nothing came for {widest_s:.0f} s of it: signs of life are held back"
        do = "Turn buffering and compression off for /mcp (nginx: proxy_buffering off; gzip off)."
        return _line("failure", tried, came, do)
    return _line("ok", tried, f"held {held.ended_s:.0f} s, {_signs(pings)}, at most {widest_s:.0f} s apart")


def _signs(count: int) -> str:
    return "1 sign of life" if count == 1 else f"{count} signs of life"


def _widest(held: HeldWait) -> float:
    """The longest time without a sign."""
    moments = (0.0, *held.signs_s, held.ended_s)
    return max(after - before for before, after in itertools.pairwise(moments))


def _cut_advice(held: HeldWait) -> str:
    """Whether silence or time was too long for what is in the way."""
    silent_s = held.ended_s - max(held.signs_s, default=0.0)
    if silent_s >= SILENCE_S:
        return (
            f"Something in the way gives up after {silent_s:.0f} s of silence, and a front shows life each "
            f"{PING_EVERY_S:g} s: raise its idle timeout to 60 s or more (nginx: proxy_read_timeout; HAProxy: timeout "
            "server and timeout client), and let it pass the stream on unbuffered."
        )
    return (
        "Signs of life came until then, so either something in the way limits how long a whole request may take "
        "(raise that above 240 s), or a front or proxy was restarted (repeat it)."
    )


def _refused(held: HeldWait, tried: str) -> Finding:
    advice: Mapping[int, str] = {
        401: "The front does not accept the key, or the proxy takes the Authorization header away.",
        403: "The front refuses the Origin, or the proxy refuses the request.",
        404: "The path is wrong: the MCP endpoint is /mcp.",
        405: "The proxy does not pass POST on, or the path is wrong: the MCP endpoint is /mcp.",
        421: "Add the public host name to FMSG_MCP_ALLOWED_HOSTS of the front.",
        502: "The proxy finds no front: look whether it runs, and where the proxy looks for it.",
        503: "No front is ready, or the host cannot be asked about the key: look at /readyz and at the host.",
        504: "The proxy gave up waiting: raise its timeout for answers above 240 s, and turn buffering off for /mcp.",
    }
    told = _told(held.text)
    came = f"{held.status} after {held.ended_s:.0f} s" + (f" ({told})" if told else "")
    if 300 <= held.status < 400:
        do = "A redirect: give the final URL to clients."
    else:
        do = advice.get(held.status, "Look at the log of the proxy and of the front.")
    return _line("failure", tried, came, do, outage=held.status in (502, 503))


def _told(text: str) -> str:
    """The front's words in a refusal, or the beginning of what a proxy wrote."""
    with contextlib.suppress(msgspec.DecodeError, KeyError, TypeError):
        return str(msgspec.json.decode(text)["error"]["message"])[:200]
    return "" if "<" in text else text.strip()[:100]


def _answer(text: str) -> Any | None:
    """The JSON-RPC answer in a body, a stream or not; None where there is none."""
    candidates = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
    for candidate in (*candidates, text):
        with contextlib.suppress(msgspec.DecodeError):
            message = msgspec.json.decode(candidate)
            if isinstance(message, dict) and ("result" in message or "error" in message):
                return message
    return None


def _problem(answer: Any | None) -> str | None:
    """What an answer complains of."""
    if answer is None:
        return "something that is no answer to a call"
    with contextlib.suppress(KeyError, TypeError):
        return str(answer["error"]["message"])[:200]
    with contextlib.suppress(KeyError, TypeError, IndexError, AttributeError):
        if answer["result"].get("isError"):
            return str(answer["result"]["content"][0]["text"])[:200]
    return None


def _line(level: Level, tried: str, came: str, do: str = "", *, outage: bool = False) -> Finding:
    return Finding(check="proxy", level=level, tried=tried, came=came, do=do, outage=outage)
