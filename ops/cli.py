"""The command line, `fmsg-mcpd`. A command imports what it needs when it runs: `stdio` has a second to answer."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ops.version import version

if TYPE_CHECKING:
    import msgspec

Run = Callable[[argparse.Namespace], int]

Options = TypeVar("Options", bound="msgspec.Struct")

STDIO_HELP = """\
Serve one fmsg address to one agent over standard input and output.

It needs two variables:
  FMSG_API_URL           base URL of your fmsg host's Web API
  FMSG_API_KEY           API key of the address to act as, fmsgk_…
and takes others, of which these are useful to most:
  FMSG_DEFAULT_DOMAIN    domain that completes a bare name: bob -> @bob@<domain>
  FMSG_DIRECTORY         path of a JSON object, short name -> full address
  FMSG_MCP_DOWNLOAD_DIR  directory below which the agent may save attachments (save_to)
  FMSG_MCP_UPLOAD_DIR    directory below which it may send files by their path
  FMSG_REDIS_URL         a Redis that keeps positions and subscriptions across restarts
docs/configuration.md lists them all.

Without the first two it starts all the same and lists its tools; each call then says what is missing.
Cleartext http:// is allowed to loopback only, or with FMSG_ALLOW_INSECURE_HTTP=1.
`fmsg-mcpd doctor` checks all of it and tells what to do."""

SANDBOX_HELP = """\
Run one or more fmsg hosts that federate with each other, in one process. They stand in for the real thing in tests;
they are no place for mail. Prints for each host the URLs of its page, of its Web API (an FMSG_API_URL) and of its
control surface, and the keys asked for:
  fmsg-mcpd sandbox --domain a.test --address @ann@a.test --address @ben@a.test
A GET of the control URL lists what a test can do to the host. docs/sandbox.md says more."""

DOCTOR_HELP = """\
Try everything that has to work, one line each: what was tried, what came, what to do. Sends no message.

Looks at the variables, the file limits and the allowed hosts; at the fmsg host (name, TLS, Web API, clock, API key,
event socket); at Redis (version, eviction, persistence, rights, clock, seal key, job queue); and with --mcp-url at
what is between your agents and a front. Secrets are not shown.

Exit status 0: nothing failed, though there may be warnings; 1: a setting, a key or a right is wrong; 75: something is
away, try again. In a systemd unit, so that a wrong setting keeps the service from starting and an outage does not:
  ExecStartPre=fmsg-mcpd doctor --for front --only configuration"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if parent := os.environ.pop("_FMSG_MCPD_PARENT", None):
        from ops.processes import end_with_parent

        end_with_parent(int(parent))
    if arguments == ["stdio"]:
        # The commonest start by far, and an agent's host waits for it: no parser, no other command.
        from ops.stdio import run

        return run()
    from ops.readers import unless_unread

    def run_command() -> int:
        options = parser().parse_args(arguments)
        command: Run = options.run
        from ledger.embedded import NoServer

        try:
            return command(options)
        except NoServer as error:
            print(f"fmsg-mcpd {options.command}: {error}", file=sys.stderr)
            return 2

    return unless_unread(run_command)


def parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    root = argparse.ArgumentParser(
        prog="fmsg-mcpd",
        description="MCP server that gives AI agents an fmsg address and lets thousands of them wait at once.",
        epilog="Settings come from the environment; docs/configuration.md lists them all.",
    )
    root.add_argument("--version", action="version", version=f"fmsg-mcpd {version()}")
    commands = root.add_subparsers(title="commands", required=True, metavar="COMMAND")

    _add(commands, "stdio", "serve one address to one agent over stdin and stdout", STDIO_HELP, _stdio)

    front = _add(
        commands,
        "front",
        "serve MCP over Streamable HTTP to everybody",
        "Serve MCP at /mcp over stateless Streamable HTTP. Needs FMSG_API_URL, FMSG_REDIS_URL and FMSG_SEAL_KEY; "
        "callers bring their own API key as a bearer token. Without a daemon waits poll: slower, and nothing is lost.",
        _front,
    )
    _add_bind(front)
    front.add_argument("--workers", type=int, help="front processes on the one port (FMSG_MCP_WORKERS, default 1)")
    front.add_argument("--fd", type=int, help=argparse.SUPPRESS)

    _add(
        commands,
        "daemon",
        "hold the callers' event sockets and fill their ledgers",
        "Hold one event socket per active caller and write what arrives to Redis. Needs FMSG_API_URL, FMSG_REDIS_URL "
        "and FMSG_SEAL_KEY. Run as many as you like: they share the callers out among themselves.",
        _daemon,
    )
    _add(
        commands,
        "worker",
        "run the background jobs of a fleet",
        "Run the background jobs: deep reconcile sweeps, orphaned drafts, unknown send outcomes, retention. "
        "Needs FMSG_API_URL, FMSG_REDIS_URL and FMSG_SEAL_KEY.",
        _worker,
    )
    up = _add(
        commands,
        "up",
        "everything in one: front, daemon, jobs and a Redis of its own",
        "Run a front, a daemon and the jobs in one process against FMSG_API_URL, with a redis-server of its own unless "
        "FMSG_REDIS_URL names one. For one machine, or to try it.",
        _up,
    )
    _add_bind(up)
    up.add_argument("--data-dir", metavar="DIR", help="keep the Redis data here; without it nothing survives a stop")

    sandbox = _add(
        commands,
        "sandbox",
        "run fmsg hosts for trying and testing",
        SANDBOX_HELP,
        _sandbox,
    )
    sandbox.add_argument(
        "--domain", action="append", default=[], metavar="DOMAIN", help="a host; may be repeated (default: here.test)"
    )
    sandbox.add_argument(
        "--address", action="append", default=[], metavar="@USER@DOMAIN", help="print an API key of it; may be repeated"
    )
    sandbox.add_argument(
        "--port", type=_port, default=0, help="port of the first host, the next ones follow; 0: free ones"
    )
    sandbox.add_argument(
        "--bind", default="127.0.0.1", metavar="ADDRESS", help="address to bind (default: %(default)s)"
    )
    sandbox.add_argument("--sqlite-dir", metavar="DIR", help="keep the messages in SQLite files here")
    sandbox.add_argument(
        "--page-anywhere", action="store_true", help="serve the page also where --bind is not this machine alone"
    )
    sandbox.add_argument("--json", dest="as_json", action="store_true", help="print a line of JSON for each host")

    demo = _add(
        commands,
        "demo",
        "watch two agents converse through a real fleet",
        "Start two federated sandbox hosts, a Redis, and a daemon and a front for each; connect two MCP clients and "
        "walk through the minimum interoperability test of FMSG-007. Exit status 0 if every step held.",
        _demo,
    )
    demo.add_argument("--keep", action="store_true", help="stay up afterwards and print how to connect an agent")
    demo.add_argument("--page", action="store_true", help="let two scripted agents talk, and open a page to watch them")
    demo.add_argument("--verbose", action="store_true", help="show the logs of the processes when something fails")

    connect = _add(
        commands,
        "connect",
        "print what to paste into an agent host, or write it there",
        "Print the line or block that connects an agent host to this server: to a process of its own, or with --url to "
        "a hosted one. With --write it goes into the host's own file; what that held before is kept in a copy, and the "
        "key is taken from FMSG_API_KEY.",
        _connect,
    )
    connect.add_argument(
        "--client",
        required=True,
        choices=(
            "claude-code",
            "claude-desktop",
            "cursor",
            "vscode",
            "codex",
            "gemini",
            "windsurf",
            "inspector",
        ),
        help="the agent host",
    )
    connect.add_argument("--url", metavar="URL", help="a hosted server's /mcp URL")
    connect.add_argument("--api-url", metavar="URL", help="the fmsg host's Web API (default: FMSG_API_URL)")
    connect.add_argument("--write", action="store_true", help="write it into the host's own file")

    _add(
        commands,
        "keygen",
        "make a key for FMSG_SEAL_KEY",
        "Print a new random key for FMSG_SEAL_KEY. To rotate: add it at the end, separated by a comma, and restart all "
        "processes;\nput it in front, and restart them; two days later remove the old one.",
        _keygen,
    )
    completion = _add(
        commands,
        "completion",
        "print completions for your shell",
        "Print a script that completes commands and options. For bash:\n"
        "  fmsg-mcpd completion bash > ~/.local/share/bash-completion/completions/fmsg-mcpd\n"
        "For zsh, in a directory of $fpath, as the file _fmsg-mcpd.",
        _completion,
    )
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    doctor = _add(
        commands,
        "doctor",
        "try everything that has to work and say what to do",
        DOCTOR_HELP,
        _doctor,
    )
    doctor.add_argument(
        "--for",
        dest="role",
        choices=("stdio", "fleet", "front", "daemon", "worker", "up"),
        help="what this environment is meant for (default: fleet where FMSG_REDIS_URL is set and no FMSG_API_KEY)",
    )
    doctor.add_argument("--key-file", metavar="FILE", help="an API key to check with, - for standard input")
    doctor.add_argument("--mcp-url", metavar="URL", help="a front's public /mcp URL: hold a wait through it")
    doctor.add_argument(
        "--hold",
        dest="hold_s",
        type=float,
        default=75.0,
        metavar="SECONDS",
        help="how long that is held (default: %(default)g)",
    )
    doctor.add_argument(
        "--only",
        action="append",
        default=[],
        choices=("configuration", "host", "redis", "sign-in", "proxy"),
        help="make these checks alone; may be repeated",
    )
    doctor.add_argument("--data-dir", metavar="DIR", help="with an `up`: look at the Redis in this directory of its")
    doctor.add_argument("--json", dest="as_json", action="store_true", help="print JSON")

    status = _add(
        commands,
        "status",
        "show the whole deployment, problems first",
        "Show what is wrong and what to do, then daemons and their share of the callers, fronts, waits, workers, queue "
        "and Redis. It reads Redis alone: FMSG_REDIS_URL, or --data-dir for an `up` with a Redis of its own. With "
        "FMSG_SEAL_KEY it also shows why feeds are not live. Exit status 0: all is well; 1: there is a problem; 2: it "
        "cannot tell.",
        _status,
    )
    status.add_argument("--data-dir", metavar="DIR", help="the directory that `fmsg-mcpd up` was given")
    status.add_argument(
        "--forget-silent", action="store_true", help="forget the processes that ended without saying so"
    )
    status.add_argument("--watch", action="store_true", help="keep looking; with --json one picture a line")
    status.add_argument(
        "--every",
        dest="every_s",
        type=float,
        default=2.0,
        metavar="SECONDS",
        help="between looks of --watch (default: %(default)g)",
    )
    status.add_argument("--json", dest="as_json", action="store_true", help="print JSON")

    caller = _add(
        commands,
        "caller",
        "show one caller, and help it",
        "Show what is known of one address: who has its feed and how it does, both ends of its ledger (ids and times "
        "only),\nits subscriptions, its last error, and what to do.\nNeeds FMSG_API_URL, FMSG_REDIS_URL and "
        "FMSG_SEAL_KEY. Exit status 1 where an order was not carried out.",
        _caller,
    )
    caller.add_argument("address", metavar="@USER@DOMAIN")
    order = caller.add_mutually_exclusive_group()
    order.add_argument("--reconcile", action="store_true", help="compare the host's list with its ledger now")
    order.add_argument("--reconnect", action="store_true", help="have its feed begin anew, with a new socket")
    order.add_argument(
        "--forget",
        dest="forget",
        action="store_const",
        const="ledger",
        help="drop its ledger and its activation; its next request begins anew",
    )
    order.add_argument(
        "--forget-everything",
        dest="forget",
        action="store_const",
        const="everything",
        help="its subscriptions and idempotency records, too; takes --yes",
    )
    caller.add_argument("--data-dir", metavar="DIR", help="the directory that `fmsg-mcpd up` was given")
    caller.add_argument("--yes", action="store_true", help="with --forget-everything: really")
    caller.add_argument("--json", dest="as_json", action="store_true", help="print JSON")

    bench = _add(
        commands,
        "bench",
        "measure what a waiting agent costs",
        "Start a host, a Redis, a daemon and a front on this machine, load them, and report memory, CPU and times as "
        "JSON,\nbeside a bare ASGI application in the same run. Or load a server that runs already: --url and --keys.\n"
        "Exit status 1 where a call failed that should not. Linux only.",
        _bench,
    )
    bench.add_argument(
        "--size",
        choices=("full", "quick", "tiny"),
        default="full",
        help="how much of everything (default: %(default)s)",
    )
    bench.add_argument("--quick", action="store_const", const="quick", dest="size", help="the same as --size quick")
    bench.add_argument(
        "--only",
        dest="scenarios",
        action="append",
        default=[],
        choices=("stdio", "tools", "wake", "rate", "one-caller", "hold", "soak", "crowd"),
        help="play this scenario alone; may be repeated",
    )
    bench.add_argument("--out", metavar="FILE", help="write the JSON here instead of to standard output")
    bench.add_argument("--report", metavar="DIR", help="write performance.md, its pictures and the JSON here")
    bench.add_argument("--url", metavar="URL", help="an MCP endpoint that runs already and offers the same tools")
    bench.add_argument("--keys", metavar="FILE", help="with --url: API keys of its callers, one a line")
    bench.add_argument(
        "--pid",
        dest="pids",
        action="append",
        default=[],
        metavar="NAME=PID",
        help="with --url: measure this process; repeatable",
    )
    bench.add_argument("--anywhere", action="store_true", help="with --url: it may be on another machine")
    bench.add_argument("--yardstick", action="store_true", help=argparse.SUPPRESS)
    bench.add_argument("--part", action="store_true", help=argparse.SUPPRESS)
    return root


def _add(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], name: str, short: str, long: str, run: Run
) -> argparse.ArgumentParser:
    # A text with lines of its own keeps them; any other is wrapped to the terminal.
    formatter = argparse.RawDescriptionHelpFormatter if "\n" in long else argparse.HelpFormatter
    command = commands.add_parser(name, help=short, description=long, formatter_class=formatter)
    command.set_defaults(run=run, command=name)
    return command


def _add_bind(command: argparse.ArgumentParser) -> None:
    command.add_argument("--host", help="address to bind (FMSG_MCP_HOST, default 127.0.0.1)")
    command.add_argument("--port", type=_port, help="port to bind, 0 for a free one (FMSG_MCP_PORT, default 3000)")


def _port(text: str) -> int:
    from ops.settings import MAX_PORT

    if text.isascii() and text.isdigit() and int(text) <= MAX_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is no port; give a number from 0 to {MAX_PORT}")


def _stdio(_options: argparse.Namespace) -> int:
    from ops.stdio import run

    return run()


def _front(options: argparse.Namespace) -> int:
    from ops.serve import front

    return front(host=options.host, port=options.port, workers=options.workers, fd=options.fd)


def _daemon(_options: argparse.Namespace) -> int:
    from ops.serve import daemon

    return daemon()


def _worker(_options: argparse.Namespace) -> int:
    from ops.serve import worker

    return worker()


def _up(options: argparse.Namespace) -> int:
    from ops.up import up

    return up(host=options.host, port=options.port, data_dir=options.data_dir)


def _sandbox(options: argparse.Namespace) -> int:
    from ops.sandboxed import sandbox

    return sandbox(
        options.domain or ["here.test"],
        addresses=options.address,
        port=options.port,
        bind=options.bind,
        sqlite_dir=options.sqlite_dir,
        as_json=options.as_json,
        page_anywhere=options.page_anywhere,
    )


def _demo(options: argparse.Namespace) -> int:
    from ops.demo import demo

    return demo(keep=options.keep, page=options.page, verbose=options.verbose)


def _connect(options: argparse.Namespace) -> int:
    from ops.connect import connect

    return connect(options.client, url=options.url, api_url=options.api_url, into_file=options.write)


def _doctor(options: argparse.Namespace) -> int:
    from ops.doctor.run import DoctorOptions, doctor

    return doctor(_of_kind(DoctorOptions, options), as_json=options.as_json)


def _status(options: argparse.Namespace) -> int:
    from ops.status.run import StatusOptions, status

    return status(_of_kind(StatusOptions, options))


def _caller(options: argparse.Namespace) -> int:
    from ops.caller.run import CallerOptions, caller

    return caller(_of_kind(CallerOptions, options))


def _bench(options: argparse.Namespace) -> int:
    if options.yardstick:
        from ops.bench.bare import bare

        return bare()
    from ops.bench.run import BenchOptions, bench

    return bench(_of_kind(BenchOptions, options))


def _of_kind(kind: type[Options], options: argparse.Namespace) -> Options:
    """A command's own options: each field of their type is the destination of an argument."""
    import msgspec

    return msgspec.convert({name: getattr(options, name) for name in kind.__struct_fields__}, kind)


def _completion(options: argparse.Namespace) -> int:
    import shtab

    print(shtab.complete(parser(), shell=options.shell))
    return 0


def _keygen(_options: argparse.Namespace) -> int:
    from ledger.seal import SealKeys

    print(SealKeys.generate())
    return 0


if __name__ == "__main__":
    sys.exit(main())
