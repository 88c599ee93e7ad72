"""`docs/configuration.md`, made from the settings themselves: ``python -m ops.configuration_doc``."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import Any, Literal

from ops.settings import Variable, variables

PATH = Path(__file__).parent.parent / "docs" / "configuration.md"

HEAD = """\
# Configuration

Everything is set through environment variables. An empty variable counts as unset. A variable that begins with `FMSG_`
and is not listed here is ignored with a warning that names the nearest one. Traces are asked for with OpenTelemetry's
own variables ([hosting.md](hosting.md#traces)). Requests to the fmsg host go through the proxy that `HTTPS_PROXY`
(for a cleartext URL `HTTP_PROXY`, for both `ALL_PROXY`) names, but not to this machine or what `NO_PROXY` lists.
`status`, `caller` and `doctor` want the environment of what they look at. Made by `python -m ops.configuration_doc`.

| Variable | Read by | Default | Meaning |
|---|---|---|---|
"""


def render() -> str:
    """The whole page."""
    return HEAD + "".join(_row(variable, kind, default) for _, variable, kind, default in variables())


def _row(variable: Variable, kind: Any, default: Any) -> str:
    meaning = variable.meaning
    if typing.get_origin(kind) is Literal and "`" not in meaning:
        meaning += f" One of {', '.join(typing.get_args(kind))}."
    if variable.secret:
        meaning += " Secret."
    return f"| `{variable.name}` | {', '.join(variable.roles)} | {_shown(default)} | {meaning} |\n"


def _shown(default: Any) -> str:
    if default is None or default == ():
        return ""
    if isinstance(default, bool):
        return "1" if default else "0"
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return str(int(default)) if isinstance(default, float) and default.is_integer() else str(default)


if __name__ == "__main__":
    PATH.write_text(render())
