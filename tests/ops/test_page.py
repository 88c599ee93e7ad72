"""The page in a real browser beside real agents over MCP: what a person who tries the product sees."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from ops.agent import Agent, over_http
from ops.demo import ALICE_SAYS, BOB_SAYS, YOU, Cluster, Side, converse, open_conversation, running_cluster
from tests.browser import PHONE, Tab, browsing, need_browser

pytestmark = [pytest.mark.processes, pytest.mark.asyncio(loop_scope="module"), pytest.mark.xdist_group("page")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Cluster]:
    """The demo's processes."""
    need_browser()
    async with running_cluster(tmp_path_factory.mktemp("page")) as running:
        yield running


@asynccontextmanager
async def talking(side: Side, lines: tuple[str, ...]) -> AsyncIterator[Agent]:
    """A scripted agent that answers while the block runs."""
    async with over_http(side.mcp_url, side.api_key) as agent, asyncio.TaskGroup() as group:
        now = await agent.call("wait_for_message", timeout_seconds=0)
        task = group.create_task(converse(agent, lines, after_id=now["after_id"]))
        yield agent
        task.cancel()


@asynccontextmanager
async def waiting(side: Side, api_key: str) -> AsyncIterator[None]:
    """An agent that waits and answers nothing while the block runs."""

    async def wait(agent: Agent) -> None:
        after_id: dict[str, Any] = {}
        while True:
            got = await agent.call("wait_for_message", **after_id, settle_seconds=3, timeout_seconds=20)
            after_id = {"after_id": got["after_id"]}

    async with over_http(side.mcp_url, api_key) as agent, asyncio.TaskGroup() as group:
        task = group.create_task(wait(agent))
        yield
        task.cancel()


async def control(side: Side, method: str, **arguments: Any) -> Any:
    """Call the control surface of the side's host."""
    async with (
        aiohttp.ClientSession(raise_for_status=True) as session,
        session.post(f"{side.api_url}/_sandbox/{method}", json=arguments) as answer,
    ):
        return (await answer.json())["result"]


async def write(tab: Tab, to: str, topic: str, text: str, *, files: tuple[Path, ...] = ()) -> None:
    """Write a message as a person does."""
    page = tab.page
    await page.get_by_role("button", name="Write").click()
    await page.get_by_label("To (").fill(to)
    await page.get_by_label("Topic").fill(topic)
    await page.get_by_label("Message", exact=True).fill(text)
    if files:
        # As a browser gives what somebody drops there.
        transfer = await page.evaluate_handle(
            """async (files) => { const transfer = new DataTransfer(); for (const [name, data] of files)
            transfer.items.add(new File([Uint8Array.from(data)], name)); return transfer; }""",
            [[path.name, list(path.read_bytes())] for path in files],
        )
        await page.dispatch_event("form.write", "drop", {"dataTransfer": transfer})
        await page.locator(".write .files button").first.wait_for()
    await page.get_by_role("button", name="Send", exact=True).click()
    await page.locator(".write").wait_for(state="detached")


async def test_an_agent_that_waits_answers_a_person_without_a_reload(cluster: Cluster, tmp_path: Path) -> None:
    here = cluster.sides[0]
    async with talking(here, ALICE_SAYS), browsing(f"{here.api_url}/#{YOU}") as tab:
        page = tab.page
        await page.evaluate("window.loaded = 'once'")
        await write(tab, here.address, "From a person", "Good morning! Is anybody there?")
        answer = page.locator(".list li").get_by_text("Half past twelve is fine").first
        await answer.click()
        reply = page.locator(".thread article", has_text="Half past twelve is fine").first
        await reply.get_by_text("React").click()
        await reply.get_by_label("React with 🎉").click()
        await reply.get_by_label(f"🎉 by {YOU}").wait_for()
        sent = tmp_path / "grüße 📎 (1).bin"
        sent.write_bytes(random.Random(1).randbytes(40_000))
        await write(tab, here.address, "With a file", "Look at this.", files=(sent,))
        await page.get_by_role("button", name="Sent").click()
        await page.locator(".list li").get_by_text("With a file").click()
        async with page.expect_download() as download:
            await page.locator(".thread .files button", has_text="grüße").click()
        got = await (await download.value).path()
        assert got.read_bytes() == sent.read_bytes()
        assert await page.evaluate("window.loaded") == "once"
        await page.get_by_label("Waits").get_by_text("returned", exact=True).first.wait_for()


async def test_a_message_arrives_late_but_arrives_where_the_sockets_drop(cluster: Cluster) -> None:
    here = cluster.sides[0]
    async with browsing(f"{here.api_url}/#{YOU}", errors=True) as tab:
        page = tab.page
        state = page.get_by_label("Connection")
        await state.get_by_text("live", exact=True).wait_for()
        await control(here, "reject_upgrades", times=3)
        await page.get_by_role("tab", name="Faults").click()
        await page.get_by_role("button", name="Drop the sockets").click()
        await state.get_by_text("not connected, trying again").wait_for()
        await control(here, "deliver", **{"from": "@late@elsewhere.test"}, to=[YOU], topic="Late", body="But here.")
        assert await page.locator(".list li").get_by_text("Late", exact=True).count() == 0
        await page.locator(".list li").get_by_text("Late", exact=True).wait_for()
        await state.get_by_text("live", exact=True).wait_for()


async def test_events_that_are_lost_are_made_up_for(cluster: Cluster) -> None:
    """The socket stays open and says nothing; the page looks at the list now and then."""
    here = cluster.sides[0]
    async with browsing(f"{here.api_url}/#{YOU}") as tab:
        await tab.page.get_by_label("Connection").get_by_text("live", exact=True).wait_for()
        await control(here, "lose_events", times=1, address=YOU)
        await control(here, "deliver", **{"from": "@late@elsewhere.test"}, to=[YOU], topic="Unheard", body="But here.")
        await tab.page.locator(".list li").get_by_text("Unheard", exact=True).wait_for(timeout=30_000)


async def test_one_watches_a_settle_window_close_and_counts_through_faults(cluster: Cluster) -> None:
    there = cluster.sides[1]
    agent = "@dan@there.test"
    key = await control(there, "create_key", address=agent)
    async with waiting(there, key), browsing(f"{there.api_url}/#{there.address}") as tab:
        page = tab.page
        await page.get_by_label("Agent", exact=True).select_option(agent)
        waits = page.get_by_label("Waits")
        await waits.get_by_text("waiting", exact=True).wait_for()
        await write(tab, agent, "Settle", "The first of two.")
        await waits.get_by_text("settling", exact=True).wait_for()
        await waits.get_by_text("returned", exact=True).first.wait_for()
        await page.get_by_role("tab", name="Faults").click()
        count = page.get_by_label("Count").locator("b")
        sent = 1
        for fault in ("Lose 5 events", "Drop the sockets", "Kill the daemon"):
            await page.get_by_role("button", name=fault).click()
            await page.get_by_role("button", name="Send 10 messages").click()
            sent += 10
            await everything_returned(tab, sent)
        assert await count.nth(2).inner_text() == "0"
        await page.get_by_role("button", name="Restart Redis empty").click()
        await page.get_by_role("button", name="Send 10 messages").click()
        await everything_returned(tab, sent + 10)
        await tab.picture("faults")


async def everything_returned(tab: Tab, sent: int) -> None:
    """Wait until so many messages were sent, and all of them returned."""
    for number in (0, 1):
        await tab.reads(tab.page.get_by_label("Count").locator("b").nth(number), str(sent), timeout_ms=90_000)


async def test_the_first_picture_is_the_product_working(tmp_path: Path) -> None:
    """`make picture` puts it at the top of the README."""
    need_browser()
    async with running_cluster(tmp_path) as fresh:
        here, there = fresh.sides
        async with (
            talking(here, ALICE_SAYS) as alice,
            talking(there, BOB_SAYS),
            browsing(f"{here.api_url}/#{YOU}") as tab,
        ):
            page = tab.page
            await open_conversation(alice, there.address)
            await page.locator(".list li").get_by_text(ALICE_SAYS[-1]).wait_for(timeout=60_000)
            await page.locator(".list li").get_by_text("Hi Bob").click()
            await page.locator(".thread").get_by_text(ALICE_SAYS[-1]).wait_for()
            await tab.picture("page")
            await page.emulate_media(color_scheme="dark")
            await tab.picture("page-dark")
            await page.set_viewport_size(PHONE)
            await tab.picture("page-phone")
