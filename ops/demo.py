"""`fmsg-mcpd demo`: two agents on two federated hosts converse through real processes, and it says what it shows."""

from __future__ import annotations

import asyncio
import contextlib
import io
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec

from ledger.embedded import EmbeddedRedis
from ledger.seal import SealKeys
from ops import interrupt
from ops.agent import ToolFailed, over_http
from ops.interop import Interop, StepFailed
from ops.processes import STOP_GRACE_S, Child, ChildFailed
from ops.sandbox_control import SandboxControl

DOMAINS = ("here.test", "there.test")
PEOPLE = ("@alice@here.test", "@bob@there.test")
COMMAND = Path(sys.executable).with_name("fmsg-mcpd")
"""As a user can call it from anywhere: the virtual environment of `make` is on nobody's PATH."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One half of the demo: a host, an address on it with its key, and the front that serves it."""

    domain: str
    api_url: str
    address: str
    api_key: str
    mcp_url: str
    redis_prefix: str


class House(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that runs: the processes by name, the Redis server, and both sides."""

    children: dict[str, Child]
    redis: EmbeddedRedis
    sides: tuple[Side, Side]


@contextlib.asynccontextmanager
async def running_house(log_dir: Path, *, redis: EmbeddedRedis | None = None) -> AsyncIterator[House]:
    """Two sandbox hosts in a process, a Redis server, and a daemon and a front process for each host."""
    children: dict[str, Child] = {}
    async with contextlib.AsyncExitStack() as stack:

        async def start(name: str, *arguments: str, **env: str) -> Child:
            child = await Child.start(name, *arguments, env=env, log_dir=log_dir)
            stack.push_async_callback(child.stop)
            children[name] = child
            return child

        server = await stack.enter_async_context(redis or EmbeddedRedis())
        domains = [word for domain in DOMAINS for word in ("--domain", domain)]
        hosts = await start("sandbox", "sandbox", "--json", *domains)
        announced = {item["domain"]: item for item in await hosts.announcement("url", count=len(DOMAINS))}
        seal_key = SealKeys.generate()
        sides = []
        for domain, address in zip(DOMAINS, PEOPLE, strict=True):
            host = announced[domain]
            prefix = domain.partition(".")[0]
            env = {
                "FMSG_API_URL": host["url"],
                "FMSG_REDIS_URL": server.url,
                "FMSG_REDIS_PREFIX": prefix,
                "FMSG_SEAL_KEY": seal_key,
                "FMSG_METRICS_PORT": "0",
            }
            daemon = await start(f"daemon-{prefix}", "daemon", **env)
            front = await start(f"front-{prefix}", "front", "--port", "0", **env)
            key = await SandboxControl(host["control"]).make_person(address)
            await daemon.announcement("daemon")
            mcp_url = (await front.announcement("mcp_url"))[0]["mcp_url"]
            sides.append(
                Side(
                    domain=domain,
                    api_url=host["url"],
                    address=address,
                    api_key=key,
                    mcp_url=mcp_url,
                    redis_prefix=prefix,
                )
            )
        yield House(children=children, redis=server, sides=(sides[0], sides[1]))


def demo(*, keep: bool, verbose: bool) -> int:
    """Run the demo; returns the exit status: 0 if every step held."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # else who pipes it sees nothing until it ends
    with tempfile.TemporaryDirectory(prefix="fmsg-demo-") as scratch:
        try:
            return interrupt.run(_run(Path(scratch), keep=keep, verbose=verbose), grace_s=2 * STOP_GRACE_S)
        except KeyboardInterrupt:
            print("\nStopped.")
            return 128 + signal.SIGINT
        except asyncio.CancelledError:
            print("Stopped.")
            return 128 + signal.SIGTERM


async def _run(scratch: Path, *, keep: bool, verbose: bool) -> int:
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is not None:
        loop.add_signal_handler(signal.SIGTERM, task.cancel)
    began = time.perf_counter()
    print("Starting two federated fmsg hosts, a Redis server, and a daemon and a front for each host …")
    try:
        async with running_house(scratch) as house:
            for name, child in house.children.items():
                print(f"  {name:<14} process {child.pid}")
            print(f"  {'redis':<14} process {house.redis.pid}")
            print(f"Up after {time.perf_counter() - began:.1f} s.\n")
            held = await _converse(house, verbose=verbose)
            if keep and held:
                await _stay(house)
            return 0 if held else 1
    except ChildFailed as error:
        print(f"Could not start: {error}")
        return 1


async def _converse(house: House, *, verbose: bool) -> bool:
    here, there = house.sides
    number = 0
    try:
        async with over_http(here.mcp_url, here.api_key) as alice, over_http(there.mcp_url, there.api_key) as bob:
            interop = Interop(alice=alice, bob=bob, addresses=(here.address, there.address), mcp_url=here.mcp_url)
            async for step in interop.run():
                number = step.number
                print(f"  {step.number}. {step.title:<44} {step.took_s * 1000:6.0f} ms   {step.checked}")
    except (StepFailed, ToolFailed) as error:
        print(f"  {number + 1}. FAILED: {error}")
        if verbose:
            for child in house.children.values():
                print(f"\n--- {child.name}\n{child.tail()}")
        return False
    print(
        "\nAll seven steps of FMSG-007's minimum interoperability test held: two agents, each with its own key, on\n"
        "two hosts, through stateless fronts, daemons that hold one socket per caller, and ledgers in Redis.\n"
        f"Push to wait-result: {max(0.0, interop.push_to_result_s or 0.0) * 1000:.0f} ms."
    )
    return True


async def _stay(house: House) -> None:
    print("\nStaying up until Ctrl-C. Connect an agent of your own:\n")
    for side in house.sides:
        print(f"{side.address}")
        print(f"  MCP URL      {side.mcp_url}")
        print(f"  API key      {side.api_key}")
        print(
            f"  Claude Code  claude mcp add --transport http fmsg {side.mcp_url} "
            f'--header "Authorization: Bearer {side.api_key}"'
        )
        print(
            "  VS Code      code --add-mcp "
            f'\'{{"name":"fmsg","type":"http","url":"{side.mcp_url}",'
            f'"headers":{{"Authorization":"Bearer {side.api_key}"}}}}\''
        )
        print(
            f"  Inspector    npx @modelcontextprotocol/inspector --cli {side.mcp_url} --transport http "
            f'--header "Authorization: Bearer {side.api_key}" --method tools/list'
        )
        print(f"  stdio        FMSG_API_URL={side.api_url} FMSG_API_KEY={side.api_key} {COMMAND} stdio\n")
    there = house.sides[1]
    print(f"Then ask the one agent to write to {there.address}, and the other to wait for messages and answer them.")
    await asyncio.Event().wait()
