"""`fmsg-mcpd connect`: what to paste into an agent host so that it finds this server, or the same written for you."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import sys
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

SERVER_NAME = "fmsg"
"""The name under which hosts show the server."""

KEY_PLACEHOLDER = "fmsgk_…"
"""Stands for the API key in what is printed: terminals are shared and scrolled back through."""

API_URL_PLACEHOLDER = "https://fmsgapi.example.com"

LONGEST_WAIT_S = 240
"""A wait may last 230 s. Hosts whose limit can be set get a little more."""

ClientName = Literal[
    "claude-code", "claude-desktop", "cursor", "vscode", "codex", "gemini", "windsurf", "inspector"
]  # fmt: skip


class ConnectError(Exception):
    """A file that cannot be changed, or a client that has none. The text says which, why, and what to do."""


class ServerTarget(msgspec.Struct, frozen=True, kw_only=True):
    """What a host is to connect to: a process of its own (``url`` None), or a hosted server."""

    url: str | None = None
    api_url: str = API_URL_PLACEHOLDER
    key: str = KEY_PLACEHOLDER
    command: str = "fmsg-mcpd"
    name: str = SERVER_NAME


class Snippet(msgspec.Struct, frozen=True, kw_only=True):
    """What a person pastes.

    ``where`` says into what; ``language`` is that of ``text`` (``sh``, ``json``, ``toml``); ``then`` is the next step.
    """

    client: ClientName
    title: str
    where: str
    language: Literal["sh", "json", "toml"]
    text: str
    then: str


class AgentHost(msgspec.Struct, frozen=True, kw_only=True):
    """An agent host: how its entry looks, and the file that holds it."""

    title: str
    entry: Callable[[ServerTarget], dict[str, Any]]
    file: Callable[[Mapping[str, str]], Path] | None = None
    container: str = "mcpServers"
    shell: Callable[[ServerTarget], str] | None = None
    """The line that adds the server, where the host has a command for it."""
    then: str = "Restart it, then ask it: who am I on fmsg?"
    beside: Callable[[ServerTarget], dict[str, Any]] | None = None
    """What belongs into the file beside the entry."""


def _process(target: ServerTarget, *, key: str | None = None) -> dict[str, Any]:
    return {
        "command": target.command,
        "args": ["stdio"],
        "env": {"FMSG_API_URL": target.api_url, "FMSG_API_KEY": key or target.key},
    }


def _headers(target: ServerTarget, *, key: str | None = None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key or target.key}"}


def _claude_code(target: ServerTarget) -> dict[str, Any]:
    # A project's .mcp.json is committed, and the host fills variables in: no key belongs into it.
    if target.url:
        return {"type": "http", "url": target.url, "headers": _headers(target, key="${FMSG_API_KEY}")}
    return _process(target, key="${FMSG_API_KEY}")


def _claude_code_line(target: ServerTarget) -> str:
    if target.url:
        header = f"Authorization: Bearer {target.key}"
        words = ["claude", "mcp", "add", "--transport", "http", target.name, target.url, "--header", header]
    else:
        words = ["claude", "mcp", "add", target.name, "--env", f"FMSG_API_URL={target.api_url}"]
        words += ["--env", f"FMSG_API_KEY={target.key}", "--", target.command, "stdio"]
    return _line(words)


def _claude_desktop(target: ServerTarget) -> dict[str, Any]:
    if not target.url:
        return _process(target)
    # Its file knows processes only. mcp-remote splits arguments at blanks, so the header's value comes by variable.
    return {
        "command": "npx",
        "args": ["-y", "mcp-remote", target.url, "--header", "Authorization:${FMSG_AUTHORIZATION}"],
        "env": {"FMSG_AUTHORIZATION": f"Bearer {target.key}"},
    }


def _url_and_headers(field: str) -> Callable[[ServerTarget], dict[str, Any]]:
    def entry(target: ServerTarget) -> dict[str, Any]:
        return {field: target.url, "headers": _headers(target)} if target.url else _process(target)

    return entry


def _vscode(target: ServerTarget) -> dict[str, Any]:
    # The editor asks for the key once and keeps it in the system's own store.
    if target.url:
        return {"type": "http", "url": target.url, "headers": _headers(target, key="${input:fmsg-key}")}
    return {"type": "stdio", **_process(target, key="${input:fmsg-key}")}


def _vscode_inputs(_target: ServerTarget) -> dict[str, Any]:
    asked = {"type": "promptString", "id": "fmsg-key", "description": "fmsg API key (fmsgk_…)", "password": True}
    return {"inputs": [asked]}


def _codex(target: ServerTarget) -> dict[str, Any]:
    if target.url:
        return {
            "url": target.url,
            "bearer_token_env_var": "FMSG_API_KEY",
            "tool_timeout_sec": LONGEST_WAIT_S,
        }
    return {**_process(target), "tool_timeout_sec": LONGEST_WAIT_S}


def _gemini(target: ServerTarget) -> dict[str, Any]:
    entry = _url_and_headers("httpUrl")(target)
    return {**entry, "timeout": LONGEST_WAIT_S * 1000}


def _inspector_line(target: ServerTarget) -> str:
    words = ["npx", "@modelcontextprotocol/inspector", "--cli"]
    if target.url:
        words += [target.url, "--transport", "http", "--header", f"Authorization: Bearer {target.key}"]
    else:
        words += [target.command, "stdio", "-e", f"FMSG_API_URL={target.api_url}", "-e", f"FMSG_API_KEY={target.key}"]
    return _line([*words, "--method", "tools/call", "--tool-name", "whoami"])


def _home(*parts: str) -> Callable[[Mapping[str, str]], Path]:
    def find(_env: Mapping[str, str]) -> Path:
        return Path.home().joinpath(*parts)

    return find


def _application(*parts: str) -> Callable[[Mapping[str, str]], Path]:
    def find(env: Mapping[str, str]) -> Path:
        if sys.platform == "darwin":
            return Path.home().joinpath("Library", "Application Support", *parts)
        if sys.platform == "win32":
            return Path(env.get("APPDATA") or Path.home() / "AppData" / "Roaming").joinpath(*parts)
        return Path(env.get("XDG_CONFIG_HOME") or Path.home() / ".config").joinpath(*parts)

    return find


CLIENTS: dict[ClientName, AgentHost] = {
    "claude-code": AgentHost(
        title="Claude Code",
        entry=_claude_code,
        file=lambda _env: Path(".mcp.json"),
        shell=_claude_code_line,
        then="Start claude here and ask it: who am I on fmsg?",
    ),
    "claude-desktop": AgentHost(
        title="Claude Desktop", entry=_claude_desktop, file=_application("Claude", "claude_desktop_config.json")
    ),
    "cursor": AgentHost(title="Cursor", entry=_url_and_headers("url"), file=_home(".cursor", "mcp.json")),
    "vscode": AgentHost(
        title="VS Code",
        entry=_vscode,
        file=_application("Code", "User", "mcp.json"),
        container="servers",
        beside=_vscode_inputs,
        then="Run “MCP: List Servers”, start fmsg, and enter the API key when asked.",
    ),
    "codex": AgentHost(
        title="Codex",
        entry=_codex,
        file=_home(".codex", "config.toml"),
        container="mcp_servers",
        then="Start codex and ask it: who am I on fmsg?",
    ),
    "gemini": AgentHost(title="Gemini CLI", entry=_gemini, file=_home(".gemini", "settings.json")),
    "windsurf": AgentHost(
        title="Windsurf",
        entry=_url_and_headers("serverUrl"),
        file=_home(".codeium", "windsurf", "mcp_config.json"),
        then="Press refresh in the list of MCP servers, then ask: who am I on fmsg?",
    ),
    "inspector": AgentHost(
        title="MCP Inspector",
        entry=_process,
        shell=_inspector_line,
        then="It prints the address that the key stands for.",
    ),
}
"""Formats as the clients' own documentation gives them."""


def snippet(name: ClientName, target: ServerTarget, *, env: Mapping[str, str] = os.environ) -> Snippet:
    """What to paste into one client."""
    client = CLIENTS[name]
    language: Literal["sh", "json", "toml"] = "sh" if client.shell else "toml" if name == "codex" else "json"
    text = client.shell(target) if client.shell else _rendered(name, target)
    return Snippet(
        client=name,
        title=client.title,
        where=_shown(client.file(env)) if client.file and not client.shell else "a terminal",
        language=language,
        text=text,
        then=_then(client, text),
    )


def snippets(target: ServerTarget) -> tuple[Snippet, ...]:
    """What to paste, for every client."""
    return tuple(snippet(name, target) for name in CLIENTS)


def write(name: ClientName, target: ServerTarget, *, env: Mapping[str, str] = os.environ) -> tuple[Path, Path | None]:
    """Put the entry into the client's own file; returns the file, and the copy of what it held before.

    Other entries stay as they are; an entry of the same name is replaced. The file is readable by its owner only where
    it holds the key. Raises `ConnectError`.
    """
    client = CLIENTS[name]
    if client.file is None:
        raise ConnectError(f"{client.title} has no file to write to. Leave out --write and run the line that is shown.")
    path = client.file(env).resolve()  # a link stays one: settings are often kept elsewhere
    try:
        before = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        before = ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConnectError(f"{path} cannot be read: {error}. Leave out --write and paste what is shown.") from error
    after = _with_toml(path, before, name, target) if name == "codex" else _with_json(path, before, name, target)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        copy = _copy_of(path) if before else None
        _replace(path, after, private=target.key in after)
    except OSError as error:
        raise ConnectError(f"{path} cannot be written: {error}. Leave out --write and paste what is shown.") from error
    return path, copy


def connect(name: ClientName, *, url: str | None, api_url: str | None, into_file: bool) -> int:
    """The command: print what to paste, or write it. Returns the exit status."""
    key = os.environ.get("FMSG_API_KEY", "")
    target = ServerTarget(
        url=url,
        api_url=api_url or os.environ.get("FMSG_API_URL") or API_URL_PLACEHOLDER,
        command=_own_command(brief=CLIENTS[name].shell is not None),
    )
    if not into_file:
        shown = snippet(name, target)
        print(f"{shown.title}: paste this into {shown.where}.\n\n{shown.text}\n\n{shown.then}")
        return 0
    needs = [] if url or target.api_url != API_URL_PLACEHOLDER else ["FMSG_API_URL (or --api-url)"]
    if KEY_PLACEHOLDER in json.dumps(CLIENTS[name].entry(target), ensure_ascii=False) and not key:
        needs.append("FMSG_API_KEY")
    if needs:
        print(f"fmsg-mcpd connect: set {' and '.join(needs)} in the environment, then run it again.", file=sys.stderr)
        return 2
    try:
        path, copy = write(name, msgspec.structs.replace(target, key=key or KEY_PLACEHOLDER))
    except ConnectError as error:
        print(f"fmsg-mcpd connect: {error}", file=sys.stderr)
        return 1
    print(f"Wrote the entry {target.name!r} to {path}.")
    if copy:
        print(f"What it held before is in {copy}.")
    print(_then(CLIENTS[name], _rendered(name, target)))
    return 0


def _then(client: AgentHost, text: str) -> str:
    # Hosts that fill a variable in have to find it in the environment in which they are started.
    by_variable = "${FMSG_API_KEY}" in text or "bearer_token_env_var" in text
    return client.then + (" It takes the key from FMSG_API_KEY in its environment." if by_variable else "")


def _own_command(*, brief: bool) -> str:
    """This program as an agent host finds it: by its name where PATH has it, and else by its path."""
    if found := shutil.which("fmsg-mcpd"):
        return "fmsg-mcpd" if brief else found
    started = Path(sys.argv[0]).resolve()
    return str(started) if started.name == "fmsg-mcpd" else "fmsg-mcpd"


def _line(words: list[str]) -> str:
    # A placeholder needs no quotes: it is replaced before anything runs.
    return " ".join(word if KEY_PLACEHOLDER in word and " " not in word else shlex.quote(word) for word in words)


def _rendered(name: ClientName, target: ServerTarget) -> str:
    client = CLIENTS[name]
    entry = client.entry(target)
    if name == "codex":
        return _toml(client.container, target.name, entry)
    beside = client.beside(target) if client.beside else {}
    return json.dumps({**beside, client.container: {target.name: entry}}, indent=2, ensure_ascii=False)


def _toml(container: str, name: str, entry: Mapping[str, Any]) -> str:
    lines = [f"[{container}.{name}]"]
    for field, value in entry.items():
        # JSON's strings, numbers and arrays are TOML's as well; its objects are not.
        shown = json.dumps(value, ensure_ascii=False)
        if isinstance(value, dict):
            pairs = (f"{key} = {json.dumps(item, ensure_ascii=False)}" for key, item in value.items())
            shown = f"{{ {', '.join(pairs)} }}"
        lines.append(f"{field} = {shown}")
    return "\n".join(lines)


def _with_json(path: Path, before: str, name: ClientName, target: ServerTarget) -> str:
    client = CLIENTS[name]
    try:
        settings = json.loads(before) if before.strip() else {}
    except ValueError as error:
        raise ConnectError(
            f"{path} is not plain JSON ({error}); comments would be lost. Leave out --write and paste what is shown."
        ) from error
    servers = settings.setdefault(client.container, {}) if isinstance(settings, dict) else None
    if not isinstance(servers, dict):
        raise ConnectError(f"{path} has no object {client.container!r}. Mend it, or leave out --write and paste.")
    servers[target.name] = client.entry(target)
    for field, wanted in (client.beside(target) if client.beside else {}).items():
        held = settings.setdefault(field, [])
        if not isinstance(held, list):
            raise ConnectError(f"{path} has no array {field!r}. Mend it, or leave out --write and paste.")
        known = {item.get("id") for item in held if isinstance(item, dict)}
        held.extend(item for item in wanted if item["id"] not in known)
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def _with_toml(path: Path, before: str, name: ClientName, target: ServerTarget) -> str:
    client = CLIENTS[name]
    try:
        servers = tomllib.loads(before).get(client.container, {})
    except tomllib.TOMLDecodeError as error:
        raise ConnectError(f"{path} is not TOML: {error}. Mend it, or leave out --write and paste.") from error
    if target.name in servers:
        raise ConnectError(
            f"{path} has an entry [{client.container}.{target.name}] already. Remove it, then run this again."
        )
    apart = "" if not before else "\n" if before.endswith("\n") else "\n\n"
    return f"{before}{apart}{_toml(client.container, target.name, client.entry(target))}\n"


def _copy_of(path: Path) -> Path:
    for number in range(1, 1000):
        copy = path.with_name(f"{path.name}.before-fmsg-{number}")
        with contextlib.suppress(FileExistsError):
            # It may hold a key: closed to others from the first byte on.
            with open(os.open(copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as sink:
                sink.write(path.read_bytes())
            copy.chmod(path.stat().st_mode & 0o777)
            return copy
    raise OSError(f"there are a thousand copies of {path.name} already; remove some")


def _replace(path: Path, text: str, *, private: bool) -> None:
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
    new = path.with_name(f"{path.name}.new-{os.getpid()}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as sink:
            sink.write(text)
        new.chmod(0o600 if private else mode)
        os.replace(new, path)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _shown(path: Path) -> str:
    with contextlib.suppress(ValueError):
        return f"~/{path.relative_to(Path.home()).as_posix()}"
    return str(path)
