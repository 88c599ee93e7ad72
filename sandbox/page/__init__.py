"""A page to try the host with: a person's inbox, and a look at what an agent sees.

The page uses the public routes of the Web API and the control surface. What neither knows comes from an `Insight`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any, Protocol

from aiohttp import web

from fmsg.delivery import CODES
from pages import HEADERS, STYLE
from sandbox.control import Control
from sandbox.routes import CONTROL_PREFIX
from sandbox.wire import RouteRefused, answer, json_object

PREFIX = f"{CONTROL_PREFIX}/page"
"""Below it is what the page itself is made of."""

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "txt": "text/plain"}

_ASSETS = ("app.js", "api.js", "parts.js", "text.js", "vendor/preact.js", "vendor/htm.js", "vendor/LICENSES.txt")


class Insight(Protocol):
    """What the host does not know of the agents that use it: how to connect them, and what they see."""

    faults: Mapping[str, str]
    """What can be made to fail besides the host: title by name."""

    def snippets(self, address: str, key: str, *, api_url: str) -> Sequence[Mapping[str, str]]:
        """What to paste into agent hosts: ``title``, ``where``, ``text`` and ``then`` of each."""

    async def look(self, address: str) -> Mapping[str, Any] | None:
        """What the agent sees now: ``feed``, ``entries``, ``waits``, ``counts``. None where nobody can see."""

    async def strike(self, name: str) -> None:
        """Let one of ``faults`` happen. Raises `KeyError` for a name that is none."""


class NoInsight:
    """A host by itself: nothing to connect to, and nothing to see."""

    faults: Mapping[str, str] = {}

    def snippets(self, address: str, key: str, *, api_url: str) -> Sequence[Mapping[str, str]]:
        """None."""
        return ()

    async def look(self, address: str) -> Mapping[str, Any] | None:
        """Nothing."""
        return None

    async def strike(self, name: str) -> None:
        """There is no fault to choose."""
        raise KeyError(name)


def add_page(app: web.Application, control: Control, insight: Insight | None = None) -> None:
    """Put the page on an application."""
    source = insight or NoInsight()
    static = files(__name__) / "static"
    assets = {path: (static / path).read_bytes() for path in _ASSETS} | {"style.css": STYLE}
    shell = (static / "index.html").read_bytes()

    async def index(_: web.Request) -> web.Response:
        return _page(shell, "html")

    async def asset(request: web.Request) -> web.Response:
        path = request.match_info["path"]
        if path not in assets:
            raise RouteRefused(404, "there is no such part of the page")
        return _page(assets[path], path.rpartition(".")[2])

    async def about(_: web.Request) -> web.Response:
        return answer(
            {
                "domain": control.core.domain,
                "codes": {str(code): known.name for code, known in CODES.items()},
                "faults": [{"name": name, "title": title} for name, title in source.faults.items()],
            }
        )

    async def snippets(request: web.Request) -> web.Response:
        fields = await json_object(request)
        address, key = str(fields.get("address")), str(fields.get("key"))
        return answer(list(source.snippets(address, key, api_url=str(request.url.origin()))))

    async def look(request: web.Request) -> web.Response:
        return answer(await source.look(request.query.get("address", "")))

    async def strike(request: web.Request) -> web.Response:
        name = str((await json_object(request)).get("name"))
        try:
            await source.strike(name)
        except KeyError:
            raise RouteRefused(404, f"unknown: {name!r}") from None
        return answer({"result": None})

    add = app.router
    add.add_get("/", index)
    add.add_get(f"{PREFIX}/about", about)
    add.add_post(f"{PREFIX}/snippets", snippets)
    add.add_get(f"{PREFIX}/look", look)
    add.add_post(f"{PREFIX}/strike", strike)
    add.add_get(f"{PREFIX}/{{path:.+}}", asset)


def _page(body: bytes, kind: str) -> web.Response:
    return web.Response(body=body, content_type=_TYPES[kind], charset="utf-8", headers=HEADERS)
