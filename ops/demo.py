"""`fmsg-mcpd demo`: two agents on two federated hosts converse through real processes, and it says what it shows."""

from __future__ import annotations

import asyncio
import contextlib
import io
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import msgspec

from ledger.embedded import EmbeddedRedis, NoServer
from ledger.seal import SealKeys
from ops import interrupt, parts, settings
from ops.agent import Agent, ToolFailed, over_http
from ops.connect import ClientName, ServerTarget, snippet
from ops.insight import FleetInsight, Observer
from ops.interop import Interop, StepFailed
from ops.processes import STOP_GRACE_S, Child, ChildFailed
from ops.terminal import coloured, in_colour
from sandbox.host import SandboxHost, serve

DOMAINS = ("here.test", "there.test")
PEOPLE = ("@alice@here.test", "@bob@there.test")
YOU = "@you@here.test"
"""A person for whoever opens the page."""

COMMAND = Path(sys.executable).with_name("fmsg-mcpd")
"""As a user can call it from anywhere: the virtual environment of `make` is on nobody's PATH."""

CLIENTS: tuple[ClientName, ...] = ("claude-code", "inspector")
"""Agent hosts that one line connects."""

DAEMON_GONE_S = 3.0
"""How long a daemon stays away after it was killed from the page: long enough to see waits go on by polling."""

THINKING_S = 1.5
"""How long a scripted agent takes to answer, so that a person can follow."""


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """One half of the demo: a host, an address on it with its key, and the front that serves it."""

    domain: str
    api_url: str
    address: str
    api_key: str
    mcp_url: str
    redis_prefix: str


class Cluster(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that runs: the processes by name, the Redis server, and both sides."""

    children: dict[str, Child]
    redis: EmbeddedRedis
    sides: tuple[Side, Side]


@contextlib.asynccontextmanager
async def running_cluster(log_dir: Path, *, redis: EmbeddedRedis | None = None) -> AsyncIterator[Cluster]:
    """Two sandbox hosts with their pages, a Redis server, and a daemon and a front process for each host."""
    children: dict[str, Child] = {}
    async with contextlib.AsyncExitStack() as stack:

        async def start(name: str, *arguments: str, env: Mapping[str, str]) -> Child:
            child = await Child.start(name, *arguments, env=env, log_dir=log_dir)
            stack.push_async_callback(child.stop)
            children[name] = child
            return child

        server = await stack.enter_async_context(redis or EmbeddedRedis())
        hosts = [SandboxHost(domain) for domain in DOMAINS]
        hosts[0].federate(hosts[1])
        seal_key = SealKeys.generate()
        sides = []
        for host, address in zip(hosts, PEOPLE, strict=True):
            prefix = host.domain.partition(".")[0]
            env = {
                "FMSG_REDIS_URL": server.url,
                "FMSG_REDIS_PREFIX": prefix,
                "FMSG_SEAL_KEY": seal_key,
                "FMSG_METRICS_PORT": "0",
            }
            store = parts.redis_store(settings.load(env))
            stack.push_async_callback(store.topology.aclose)

            async def kill_daemon(name: str = f"daemon-{prefix}", env: Mapping[str, str] = env) -> None:
                children[name].kill()
                await children[name].process.wait()
                await asyncio.sleep(DAEMON_GONE_S)
                await (await start(name, "daemon", env=env)).announcement("daemon")

            async def empty_redis() -> None:
                await server.restart_async(empty=True)

            observer = Observer(host.control)
            insight = FleetInsight(
                host.control,
                observer,
                store=store,
                faults={"daemon": ("Kill the daemon", kill_daemon), "redis": ("Restart Redis empty", empty_redis)},
            )
            env["FMSG_API_URL"] = insight.api_url = await stack.enter_async_context(serve(host, page=insight))
            daemon = await start(f"daemon-{prefix}", "daemon", env=env)
            front = await start(f"front-{prefix}", "front", "--port", "0", env=env)
            await daemon.announcement("daemon")
            observer.front_url = (await front.announcement("mcp_url"))[0]["mcp_url"]
            sides.append(
                Side(
                    domain=host.domain,
                    api_url=insight.api_url,
                    address=address,
                    api_key=host.control.create_key(address),
                    mcp_url=await stack.enter_async_context(observer.serve()),
                    redis_prefix=prefix,
                )
            )
        hosts[0].control.create_address(YOU)
        yield Cluster(children=children, redis=server, sides=(sides[0], sides[1]))


def demo(*, keep: bool, verbose: bool, page: bool = False) -> int:
    """Run the demo; returns the exit status: 0 if every step held, and where it stayed until it was told to end."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # else who pipes it sees nothing until it ends
    with tempfile.TemporaryDirectory(prefix="fmsg-demo-") as scratch:
        run = Demo(Path(scratch), keep=keep, page=page, verbose=verbose)
        try:
            return interrupt.run(run.run(), grace_s=2 * STOP_GRACE_S)
        except KeyboardInterrupt:
            print("\nStopped.")
            return 0 if run.staying else 128 + signal.SIGINT
        except asyncio.CancelledError:
            print("Stopped.")
            return 0 if run.staying else 128 + signal.SIGTERM


class Demo:
    """One run of the demo."""

    def __init__(self, scratch: Path, *, keep: bool, page: bool, verbose: bool) -> None:
        self.staying = False
        """Whether it did what it was to do, and stays until somebody ends it."""
        self._scratch = scratch
        self._keep = keep
        self._page = page
        self._verbose = verbose

    async def run(self) -> int:
        """Returns the exit status."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        if task is not None:
            loop.add_signal_handler(signal.SIGTERM, task.cancel)
        began = time.perf_counter()
        print("Starting two federated fmsg hosts, a Redis server, and a daemon and a front for each host …")
        try:
            async with running_cluster(self._scratch) as cluster:
                for name, child in cluster.children.items():
                    print(f"  {name:<14} process {child.pid}")
                print(f"  {'redis':<14} process {cluster.redis.pid}")
                print(f"Up after {time.perf_counter() - began:.1f} s.\n")
                if self._page:
                    await self._show(cluster)
                elif not await self._converse(cluster):
                    return 1
                elif self._keep:
                    await self._stay(cluster)
                return 0
        except (ChildFailed, NoServer) as error:
            print(f"Could not start: {error}")
            return 1

    async def _converse(self, cluster: Cluster) -> bool:
        here, there = cluster.sides
        number = 0
        try:
            async with over_http(here.mcp_url, here.api_key) as alice, over_http(there.mcp_url, there.api_key) as bob:
                interop = Interop(alice=alice, bob=bob, addresses=(here.address, there.address), mcp_url=here.mcp_url)
                async for step in interop.run():
                    number = step.number
                    took = coloured(f"{step.took_s * 1000:6.0f} ms", "32", wanted=in_colour())
                    print(f"  {step.number}. {step.title:<44} {took}   {step.checked}")
        except (StepFailed, ToolFailed) as error:
            print(f"  {number + 1}. {coloured('FAILED', '31', wanted=in_colour())}: {error}")
            if self._verbose:
                for child in cluster.children.values():
                    print(f"\n--- {child.name}\n{child.tail()}")
            return False
        print(
            "\nAll seven steps of FMSG-007's minimum interoperability test held: two agents, each with its own key,\n"
            "on two hosts, through stateless fronts, daemons that hold one socket per caller, and ledgers in Redis.\n"
            f"Push to wait-result: {max(0.0, interop.push_to_result_s or 0.0) * 1000:.0f} ms."
        )
        return True

    async def _show(self, cluster: Cluster) -> None:
        """Two scripted agents talk, until they have said what they have to say; whoever writes to them is answered."""
        here, there = cluster.sides
        async with (
            over_http(here.mcp_url, here.api_key) as alice,
            over_http(there.mcp_url, there.api_key) as bob,
            asyncio.TaskGroup() as group,
        ):
            group.create_task(converse(alice, ALICE_SAYS))
            group.create_task(converse(bob, BOB_SAYS))
            await open_conversation(alice, there.address)
            await self._stay(cluster)

    async def _stay(self, cluster: Cluster) -> None:
        self.staying = True
        here, there = cluster.sides
        print(f"\nOpen the page:  {here.api_url}/#{YOU}")
        print("There you are a person on the sandbox host, write to the agents, and see what they see.\n")
        print("Connect an agent of your own:\n")
        for side in cluster.sides:
            name = side.address[1:].partition("@")[0]
            target = ServerTarget(name=f"fmsg-{name}", url=side.mcp_url, api_url=side.api_url, key=side.api_key)
            print(side.address)
            print(f"  MCP URL      {side.mcp_url}")
            print(f"  API key      {side.api_key}")
            for client in CLIENTS:
                shown = snippet(client, target)
                print(f"  {shown.title.removeprefix('MCP '):<11}  {shown.text}")
            print(f"  stdio        FMSG_API_URL={side.api_url} FMSG_API_KEY={side.api_key} {COMMAND} stdio\n")
        print("Other agent hosts: the page, or `fmsg-mcpd connect --client NAME --url URL`. Stay up until Ctrl-C.")
        print(f"Then ask the one agent to write to {there.address}, the other to wait for messages and answer them.")
        await asyncio.Event().wait()


TOPIC = "Lunch on Friday"
OPENING = "Hi Bob, shall we have lunch on **Friday**? I copy the person who watches us."
ALICE_SAYS = (
    "Half past twelve is fine. Shall I book a table for three, so that our visitor can come along?",
    "Booked:\n\n- Friday, 12:30\n- a table for three, by the window\n\nSee you there!",
    "You are welcome. That is all from me.",
)
BOB_SAYS = (
    "Gladly! How about half past twelve, at the place by the river?",
    "A table for three sounds good. Thank you for thinking of it.",
    "Perfect, thank you, Alice. See you on Friday!",
)


async def open_conversation(alice: Agent, bob: str) -> None:
    """The first message, which the rest answers."""
    await alice.call("send_message", to=[bob, YOU], topic=TOPIC, body=OPENING, type="text/markdown")


async def converse(agent: Agent, lines: tuple[str, ...], *, after_id: str = "0") -> None:
    """An agent that waits and answers politely, one line after another in each thread, and then stops."""
    said: dict[str, int] = {}
    while True:
        try:
            got = await agent.call("wait_for_message", after_id=after_id, settle_seconds=1)
        except ToolFailed:  # somebody plays with the faults
            await asyncio.sleep(THINKING_S)
            continue
        after_id = got["after_id"]
        number = said.get(got["thread_root_id"] or "", 0)
        if got["status"] != "message" or number == len(lines):
            continue
        said[got["thread_root_id"]] = number + 1
        await asyncio.sleep(THINKING_S)
        with contextlib.suppress(ToolFailed):  # the next message is answered
            await agent.call("reply", id=got["reply_target_id"], body=lines[number], type="text/markdown")
