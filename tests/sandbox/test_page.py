"""The page of a host: where it is served, that nobody else can use its surface, and what a person does with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from fmsg.delivery import CODES
from sandbox.host import SandboxHost, run_hosts, serve
from sandbox.page import PREFIX, NoInsight
from sandbox.records import Attachment
from tests.browser import PHONE, Tab, browsing
from tests.sandbox.people import Answer

YOU, ALICE = "@you@here.test", "@alice@here.test"


class Told(NoInsight):
    """An insight that says what it was asked."""

    faults: Mapping[str, str] = {"power": "Cut the power"}

    def __init__(self) -> None:
        self.struck: list[str] = []

    def snippets(self, address: str, key: str, *, api_url: str) -> Sequence[Mapping[str, str]]:
        """One, with everything in it."""
        return [{"title": "A host", "where": "a file", "text": f"{address} {key} {api_url}", "then": "Start it."}]

    async def look(self, address: str) -> Mapping[str, Any] | None:
        """A held wait, an ended one, and an entry."""
        wait = {"timeout_s": 50, "settle_s": 3, "ids": [], "again": 0, "after_id": "", "transport": "", "note": ""}
        ended = {"number": 1, "started_s": 1.0, "ended_s": 2.0, "outcome": "message", "ids": ["7"], "again": 1}
        return {
            "feed": {"state": "live", "live": True, "error": None},
            "entries": [{"id": "9007199254740993", "arrived_at_s": 3.0, "source": "push"}],
            "waits": [{**wait, "number": 2, "started_s": 3e9, "ended_s": None, "outcome": ""}, {**wait, **ended}],
            "counts": {"sent": 4, "returned": 3, "twice": 0, "marked": 1},
        }

    async def strike(self, name: str) -> None:
        """Note it."""
        if name not in self.faults:
            raise KeyError(name)
        self.struck.append(name)


@pytest.fixture
async def host() -> SandboxHost:
    """A host that knows two addresses."""
    made = SandboxHost("here.test")
    for address in (ALICE, YOU):
        made.control.create_address(address)
    return made


@pytest.fixture
async def url(host: SandboxHost) -> AsyncIterator[str]:
    """The host with its page."""
    async with serve(host, page=Told()) as served:
        yield served


async def ask(method: str, url: str, **options: Any) -> Answer:
    """One request."""
    async with aiohttp.ClientSession() as session, session.request(method, url, **options) as response:
        return Answer(response.status, await response.read(), dict(response.headers))


async def test_the_page_runs_nothing_inline_and_loads_nothing_from_elsewhere(url: str) -> None:
    shell = await ask("GET", url)
    assert shell.status == 200
    policy = shell.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    for part in ("app.js", "style.css", "vendor/preact.js", "vendor/LICENSES.txt"):
        got = await ask("GET", f"{url}{PREFIX}/{part}")
        assert (got.status, got.headers["X-Content-Type-Options"]) == (200, "nosniff")
    assert (await ask("GET", f"{url}{PREFIX}/../app.py")).status == 404
    assert (await ask("GET", f"{url}{PREFIX}/nothing.js")).status == 404


async def test_everything_the_page_is_made_of_is_served(url: str) -> None:
    static = Path(__file__).parents[2] / "sandbox" / "page" / "static"
    for path in static.rglob("*.*"):
        if path.name != "index.html":
            got = await ask("GET", f"{url}{PREFIX}/{path.relative_to(static).as_posix()}")
            assert (got.status, got.body) == (200, path.read_bytes())


async def test_what_the_page_knows_of_the_host_and_its_agents(url: str) -> None:
    about = (await ask("GET", f"{url}{PREFIX}/about")).json
    assert about["domain"] == "here.test"
    assert about["codes"]["100"] == CODES[100].name
    assert about["faults"] == [{"name": "power", "title": "Cut the power"}]
    (snippet,) = (await ask("POST", f"{url}{PREFIX}/snippets", json={"address": ALICE, "key": "k"})).json
    assert snippet["text"] == f"{ALICE} k {url}"
    assert (await ask("GET", f"{url}{PREFIX}/look?address={ALICE}")).json["counts"]["sent"] == 4
    assert (await ask("POST", f"{url}{PREFIX}/strike", json={"name": "power"})).status == 200
    assert (await ask("POST", f"{url}{PREFIX}/strike", json={"name": "tea"})).status == 404


async def test_a_host_by_itself_knows_no_agents(host: SandboxHost) -> None:
    async with serve(host, page=True) as served:
        assert (await ask("POST", f"{served}{PREFIX}/snippets", json={})).json == []
        assert (await ask("GET", f"{served}{PREFIX}/look")).json is None
        assert (await ask("POST", f"{served}{PREFIX}/strike", json={"name": "daemon"})).status == 404


@pytest.mark.parametrize(
    "headers", [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Host": "evil.example"}], ids=str
)
@pytest.mark.parametrize("path", ["/", "/_sandbox/stats", "/_sandbox/create_key", f"{PREFIX}/look"])
async def test_no_other_site_uses_the_surface(url: str, path: str, headers: dict[str, str]) -> None:
    got = await ask("POST" if path.endswith("create_key") else "GET", f"{url}{path}", headers=headers)
    assert (got.status, "answers only to its own page" in got.error) == (403, True)
    own = await ask("GET", f"{url}/_sandbox/stats", headers={"Origin": url})
    assert own.status == 200


@pytest.mark.parametrize(
    ("bind", "anywhere", "shown"), [("127.0.0.1", False, True), ("0.0.0.0", False, False), ("0.0.0.0", True, True)]
)
async def test_the_page_is_served_on_loopback_unless_it_may_be_anywhere(bind: str, anywhere: bool, shown: bool) -> None:
    stop, announced = asyncio.Event(), asyncio.get_running_loop().create_future()
    async with asyncio.TaskGroup() as group:
        group.create_task(
            run_hosts(
                ["here.test"], ports=[], bind=bind, stop=stop, announce=announced.set_result, page_anywhere=anywhere
            )
        )
        line = await announced
        assert ("page" in line) is shown
        assert (await ask("GET", line["url"].replace("0.0.0.0", "127.0.0.1"))).status == (200 if shown else 404)
        stop.set()


async def test_what_the_control_surface_says_for_the_page(host: SandboxHost) -> None:
    control = host.control
    assert control.addresses() == [ALICE, YOU]
    key = control.create_key(ALICE)
    assert control.owner_of(key) == ALICE
    control.deliver(YOU, [ALICE])
    control.deliver(YOU, [ALICE], no_reply=True)
    control.deliver(ALICE, [ALICE])
    assert control.received(ALICE) == 1


async def write(tab: Tab, *, to: str, topic: str, text: str, files: Sequence[str | Path] = ()) -> None:
    """Write a message as a person does."""
    page = tab.page
    await page.get_by_role("button", name="Write").click()
    await page.get_by_label("To (").fill(to)
    await page.get_by_label("Topic").fill(topic)
    await page.get_by_label("Message", exact=True).fill(text)
    if files:
        await page.locator("#files").set_input_files(list(files))
    await page.get_by_role("button", name="Send", exact=True).click()
    await page.locator(".write").wait_for(state="detached")


async def test_a_person_writes_reads_and_is_somebody_else(url: str, host: SandboxHost) -> None:
    async with browsing(f"{url}/#{YOU}") as tab:
        page = tab.page
        await page.get_by_label("Connection").get_by_text("live").wait_for()
        await write(tab, to=f"{ALICE}, @nobody@here.test", topic="Hello", text="Anybody there?")
        await page.get_by_role("button", name="Sent").click()
        await page.locator(".list li").get_by_text("Hello").click()
        await page.get_by_text("Delivery").click()
        await page.get_by_text(f"{CODES[100].name} (100)").wait_for()
        await page.get_by_text("delivered", exact=True).wait_for()
        await page.get_by_label("You are").select_option(ALICE)
        await page.get_by_role("button", name="Inbox (1)").click()
        await page.locator(".list li.unread").get_by_text("Hello").click()
        await page.get_by_role("button", name="Inbox", exact=True).wait_for()
        await page.get_by_role("button", name="Reply to all").click()
        assert await page.get_by_label("To (").input_value() == f"{YOU}, @nobody@here.test"
        await page.get_by_label("Message", exact=True).fill("I am.")
        await page.get_by_role("button", name="Send", exact=True).click()
        await page.locator(".thread").get_by_text("I am.").wait_for()
        await page.get_by_role("button", name="Add people").first.click()
        await page.get_by_label("To (").fill("@carla@here.test")
        await page.get_by_role("button", name="Add", exact=True).click()
        await page.locator(".thread").get_by_text("@carla@here.test").first.wait_for()
        await page.get_by_role("button", name="New address").click()
        await page.get_by_label("Name of the new address").fill("carla")
        await page.get_by_role("button", name="Make it").click()
        await tab.holds("#me", "@carla@here.test")
    assert "@carla@here.test" in host.control.addresses()


async def test_what_is_known_of_an_agent_is_shown(url: str) -> None:
    async with browsing(f"{url}/#{YOU}") as tab:
        page = tab.page
        await page.get_by_text("9007199254740993").wait_for()
        await page.get_by_label("Waits").get_by_text("returned", exact=True).wait_for()
        assert await page.get_by_label("Count").inner_text() == "4\nsent\n3\nreturned\n0\ntwice (+1 marked)"
        await page.get_by_role("tab", name="Connect yours").click()
        await page.get_by_role("button", name="Make a key").click()
        key = await page.locator("#key").inner_text()
        assert key.startswith("fmsgk_")
        await page.get_by_text(f"{ALICE} {key} {url}").wait_for()
        await page.get_by_role("tab", name="Faults").click()
        await page.get_by_role("button", name="Cut the power").click()
        await page.get_by_text("Done: Cut the power.").wait_for()


HOSTILE = '<script>document.title="hit"</script><img src=x onerror=alert(1)><b>x</b>'
"""Markup that does something wherever it is taken for markup."""

TURNED = "invoice\u202egpj.exe"
"""Shown as invoiceexe.jpg where nobody minds."""


async def test_hostile_content_is_text(url: str, host: SandboxHost) -> None:
    control = host.control
    markdown = (
        f"{HOSTILE}\n\n[go](javascript:alert(1)) ![pixel](http://elsewhere.example/p.png) [ok](https://ok.example)"
    )
    control.deliver("@a@there.test", [YOU], topic=HOSTILE, body=HOSTILE)
    control.deliver("@b@there.test", [YOU], topic=TURNED, body=markdown, type_="text/markdown")
    control.deliver("@c@there.test", [YOU], topic="binary", data=bytes(range(256)), type_="application/x-thing")
    number = control.deliver("@d@there.test", [YOU], topic="files", body="see")
    record = host.core.state.messages[number]
    record.attachments = [Attachment(filename=name, data=b"x") for name in (HOSTILE.replace("/", ""), TURNED)]
    asked: list[str] = []
    async with browsing(f"{url}/#{YOU}") as tab:
        page = tab.page
        page.on("request", lambda request: asked.append(request.url))
        for topic in (HOSTILE[:20], "invoice", "binary", "files"):
            await page.locator(".list li").get_by_text(topic).first.click()
            await page.locator(".thread article").first.wait_for()
        await page.locator(".files").get_by_text("invoice[U+202E]gpj.exe").wait_for()
        await page.locator(".list li").get_by_text("invoice[U+202E]").click()
        await page.locator(".thread").get_by_text("[picture: pixel]").wait_for()
        links = await page.locator(".thread a").evaluate_all("found => found.map((one) => one.href)")
        assert links == ["http://elsewhere.example/p.png", "https://ok.example/"]
        assert await page.locator(".inbox script, .inbox img, .inbox b b").count() == 0
        assert await page.title() == "here.test · fmsg sandbox"
        await tab.picture("hostile")
    assert all(one.startswith((url, "blob:")) for one in asked), asked


async def test_ten_megabytes_and_five_hundred_messages(url: str, host: SandboxHost) -> None:
    control = host.control
    root = control.deliver("@a@there.test", [YOU], topic="root", body="first")
    for number in range(499):
        control.deliver("@a@there.test", [YOU], pid=root, body=f"number {number}")
    control.deliver("@b@there.test", [YOU], topic="huge", body="0123456789" * 1_000_000)
    async with browsing(f"{url}/#{YOU}") as tab:
        page = tab.page
        await page.locator(".list li").get_by_text("huge").first.click()
        await page.get_by_text("These are the first 65.5 kB.").wait_for()
        await page.get_by_role("button", name="Show more").click()
        await page.get_by_text("These are the first 262.1 kB.").wait_for()
        for shown in (100, 200, 300, 400, 500, 501):
            if shown > 100:
                await page.get_by_role("button", name="Older messages").click()
            await tab.counts(".list li", shown)
        await page.locator(".list li").get_by_text("number 498").click()
        await tab.counts(".thread article", 500)
        await page.locator(".thread").get_by_text("number 498").wait_for()


async def test_it_is_used_by_keyboard_and_on_a_phone(url: str, host: SandboxHost) -> None:
    host.control.deliver(ALICE, [YOU], topic="By keyboard", body="Press keys.")
    async with browsing(f"{url}/#{YOU}", viewport=PHONE, color_scheme="dark") as tab:
        page = tab.page
        await page.locator(".list li button").focus()
        await page.keyboard.press("Enter")
        await page.locator(".thread").get_by_text("Press keys.").wait_for()
        assert not await page.locator(".list").is_visible()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        await page.get_by_role("button", name="Messages").press("Enter")
        assert await page.locator(".list").is_visible()
        await page.get_by_role("button", name="Thread", exact=True).press("Enter")
        await page.get_by_role("button", name="Reply", exact=True).press("Enter")
        await page.keyboard.type("Answered by keyboard.")  # the form has the focus
        await tab.picture("phone-dark")
        await page.keyboard.press("Escape")
        await page.get_by_role("button", name="Cancel").press("Enter")
        await page.get_by_role("button", name="Agent", exact=True).press("Enter")
        await page.get_by_role("tab", name="What it sees").press("ArrowRight")
        await page.get_by_role("button", name="Make a key").wait_for()
        unnamed = await page.evaluate(
            "[...document.querySelectorAll('button, input, select, textarea')].filter((one) =>"
            " one.offsetParent && !(one.innerText?.trim() || one.labels?.length || one.ariaLabel))"
            ".map((one) => one.outerHTML)"
        )
        assert unnamed == []
