"""The control surface over HTTP: ``POST /_sandbox/<method>`` with the method's arguments as a JSON object.

Answers ``{"result": …}``; 400 where the arguments do not fit. ``GET /_sandbox/stats`` is there for convenience, and
``GET /_sandbox`` lists every method with its arguments. Argument names ending in ``_`` go without it.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

import msgspec
from aiohttp import web

from sandbox.control import ASKING, Control
from sandbox.http import CONTROL_PREFIX
from sandbox.wire import Refused, answer, json_object

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


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


def add_routes(app: web.Application, control: Control) -> None:
    """Put the control surface on an application."""
    methods = methods_of(control)
    for name, method in methods.items():
        app.router.add_post(f"{CONTROL_PREFIX}/{name}", _handler(method))

    async def stats(_: web.Request) -> web.Response:
        return answer({"result": control.stats()})

    async def index(_: web.Request) -> web.Response:
        return answer({name: _described(method) for name, method in methods.items()})

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
            raise Refused(400, str(error)) from None
        except KeyError as error:
            raise Refused(404, f"unknown: {error.args[0]!r}") from None
        finally:
            ASKING.reset(token)
        return answer({"result": result})

    return handle


def _described(method: Callable[..., Any]) -> dict[str, str]:
    what = (inspect.getdoc(method) or "").partition("\n")[0]
    return {"does": what, "arguments": str(inspect.signature(method)).partition(" -> ")[0]}
