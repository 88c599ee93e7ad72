"""The routes, the faults a client meets on them, and counting (FMSG-003, "Base" and "Routes")."""

from __future__ import annotations

import asyncio
from urllib.parse import quote

import aiohttp
import pytest

from sandbox.routes import filename_in
from sandbox.switches import OLDER, Limits, Switches
from tests.sandbox.conftest import Clock, Cluster
from tests.sandbox.people import Person


async def test_an_unknown_path_is_no_json(alice: Person) -> None:
    for answer in (await alice.get("/1/nothing/there"), await alice.ask("PATCH", "/1")):
        assert (answer.status, answer.body) == (404, b"404 page not found")


async def test_an_api_key_acts_as_nobody_else(alice: Person, bob: Person) -> None:
    answer = await alice.ask("GET", "", headers={"X-FMSG-Act-As": bob.address})
    assert (answer.status, answer.error) == (403, "act-as is only available with identity-provider authentication")


async def test_requests_are_counted_per_route(alice: Person, bob: Person) -> None:
    bob.host.control.reset_stats()
    number = await alice.send(bob.address)
    await bob.get()
    await bob.get(f"/{number}/thread/messages")
    await bob.get("/999")
    stats = bob.host.control.stats()
    assert stats["requests"] == {"create": 1, "send": 1, "list": 1, "thread_messages": 1, "get": 1}
    assert stats["statuses"]["get 404"] == 1


async def test_the_next_requests_of_a_route_fail(alice: Person) -> None:
    alice.host.control.fail_next("list", times=2, status=429, text="slow down", code="busy", retry_after_s=3)
    for _ in range(2):
        answer = await alice.get()
        assert (answer.status, answer.json) == (429, {"error": "slow down", "code": "busy"})
        assert answer.headers["Retry-After"] == "3"
    assert (await alice.get()).status == 200


async def test_a_proxy_answers_html(alice: Person) -> None:
    alice.host.control.fail_next(status=502, text="Bad Gateway", html=True)
    answer = await alice.get("/sent")
    assert (answer.status, answer.headers["Content-Type"]) == (502, "text/html; charset=utf-8")
    assert answer.body.startswith(b"<html>")


async def test_a_request_that_is_cut_does_nothing(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    alice.host.control.fail_next("send", cut=True)
    with pytest.raises(aiohttp.ClientConnectionError):
        await alice.post(f"/{number}/send")
    assert (await alice.message(number))["time"] is None


async def test_a_lost_answer_leaves_the_message_sent(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    alice.host.control.lose_answers("send")
    with pytest.raises(aiohttp.ClientConnectionError):
        await alice.post(f"/{number}/send")
    assert (await alice.message(number))["time"] is not None
    assert (await alice.post(f"/{number}/send")).error == "message already sent"


async def test_a_request_hangs_until_it_is_let_go(alice: Person) -> None:
    alice.host.control.hang_next("create")
    hanging = asyncio.ensure_future(alice.post("", alice.wire("@bob@a.test")))
    await alice.asked("create")
    assert (await alice.get("/sent")).status == 200
    assert not hanging.done()
    alice.host.control.release()
    with pytest.raises(aiohttp.ClientConnectionError):
        await hanging


async def test_a_client_may_give_up_on_a_hanging_request(alice: Person) -> None:
    alice.host.control.hang_next("list")
    with pytest.raises(TimeoutError):
        await alice.ask("GET", "", timeout=aiohttp.ClientTimeout(total=0.05))
    assert (await alice.get()).status == 200


async def test_requests_can_be_delayed(alice: Person) -> None:
    alice.host.control.delay(60, route="list")
    with pytest.raises(TimeoutError):
        await alice.ask("GET", "", timeout=aiohttp.ClientTimeout(total=0.05))
    assert (await alice.get("/sent")).status == 200
    alice.host.control.delay(0.01)
    assert (await alice.get("/sent")).status == 200
    alice.host.control.delay(0, route="list")
    assert (await alice.get()).status == 200


async def test_the_token_route_fails_like_any_other(alice: Person) -> None:
    alice.host.control.fail_next("token", status=503, text="identity service unavailable")
    assert (await alice.sign_in()).status == 503
    assert (await alice.sign_in()).status == 200


async def test_faults_can_be_cleared(alice: Person) -> None:
    control = alice.host.control
    control.fail_next()
    control.hang_next()
    control.lose_answers()
    control.delay(60)
    control.deafen()
    control.set_database(up=False)
    control.clear_faults()
    assert (await alice.get()).status == 200


async def chain(person: Person, to: str, depth: int, **fields: object) -> list[int]:
    """A thread of ``depth`` messages, each a reply to the one before."""
    ids = [await person.send(to, **fields)]
    for _ in range(depth - 1):
        ids.append(await person.send(to, pid=ids[-1], **fields))
    return ids


async def test_received_is_listed_newest_id_first(alice: Person, bob: Person) -> None:
    ids = [await alice.send(bob.address) for _ in range(3)]
    answer = await bob.get()
    assert answer.status == 200
    assert [item["id"] for item in answer.json] == ids[::-1]
    assert (await alice.get()).json == []


async def test_pages(alice: Person, bob: Person) -> None:
    ids = alice.host.control.deliver_each("@x@c.test", [bob.address] * 25)[::-1]
    assert await bob.ids() == ids[:20]
    assert await bob.ids("?limit=5&offset=3") == ids[3:8]
    assert await bob.ids("?limit=10&offset=20") == ids[20:]
    assert await bob.ids("?offset=25") == []


async def test_a_limit_over_100_is_clamped(bob: Person) -> None:
    bob.host.control.deliver_each("@x@c.test", [bob.address] * 101)
    assert len(await bob.ids("?limit=101")) == 100


@pytest.mark.parametrize("query", ["limit=0", "limit=-1", "limit=x", "limit=", "limit=99999999999999999999999"])
async def test_a_limit_that_is_none(bob: Person, query: str) -> None:
    answer = await bob.get(f"?{query}")
    assert (answer.status, answer.error) == (400, "invalid limit")


async def test_an_offset_that_is_none(bob: Person) -> None:
    assert (await bob.get("?offset=-1")).error == "invalid offset"


async def test_sent_lists_drafts_too(alice: Person, bob: Person) -> None:
    sent = await alice.send(bob.address)
    draft = await alice.draft(bob.address)
    answer = await alice.get("/sent")
    assert [(item["id"], item["time"] is None) for item in answer.json] == [(draft, True), (sent, False)]


async def test_current_hosts_show_drafts_to_their_recipients(alice: Person, bob: Person) -> None:
    draft = await alice.draft(bob.address, topic="not yet")
    assert [(item["id"], item["time"]) for item in (await bob.get()).json] == [(draft, None)]
    assert (await bob.message(draft))["time"] is None
    assert (await bob.get(f"/{draft}/data")).body == b"hello"
    assert (await bob.get(f"/{draft}/thread/messages")).json["root_id"] == draft
    assert (await bob.get(f"/{draft}/thread")).status == 200


async def test_other_hosts_do_not(cluster: Cluster) -> None:
    await cluster.host(switches=Switches(drafts_shown=False))
    alice, bob = await cluster.person("@alice@a.test"), await cluster.person("@bob@a.test")
    draft = await alice.draft(bob.address)
    assert await bob.ids() == []
    assert (await bob.get(f"/{draft}")).status == 404
    assert (await alice.get(f"/{draft}")).status == 200


async def test_reactions_are_in_the_list(alice: Person, bob: Person) -> None:
    message = await alice.send(bob.address)
    reaction = (await bob.post(f"/{message}/react", {"emoji": "👍"})).json["id"]
    listed = (await alice.get()).json
    assert [(item["id"], item["reaction"], item["pid"]) for item in listed] == [(reaction, "👍", message)]


async def test_the_message_object(alice: Person, bob: Person, clock: Clock) -> None:
    number = await alice.send(bob.address, topic="Lunch", important=True)
    await bob.post(f"/{number}/read")
    listed = (await bob.get()).json[0]
    assert listed.pop("id") == number
    assert len(listed["sha256"]) == 64
    assert listed == await bob.message(number)
    assert listed == {
        "version": 1,
        "has_pid": False,
        "has_add_to": False,
        "important": True,
        "no_reply": False,
        "deflate": False,
        "terminal": False,
        "pid": None,
        "from": "@alice@a.test",
        "to": ["@bob@a.test"],
        "to_delivery": [{"addr": "@bob@a.test", "time_delivered": "2026-05-28T20:26:40.000000Z", "response_code": 200}],
        "add_to": None,
        "time": clock.now_s,
        "topic": "Lunch",
        "type": "text/plain",
        "size": 5,
        "short_text": "hello",
        "read": True,
        "time_read": clock.now_s,
        "attachments": None,
        "reaction": None,
        "reactions": [],
        "sha256": listed["sha256"],
        "psha256": None,
    }


async def test_the_message_route_leaves_the_id_out(alice: Person, bob: Person) -> None:
    number = await alice.send(bob.address)
    assert "id" not in await alice.message(number)


async def test_reading_is_each_persons_own(alice: Person, bob: Person) -> None:
    number = await alice.send(bob.address, alice.address)
    await bob.post(f"/{number}/read")
    assert (await bob.message(number))["read"] is True
    assert (await alice.message(number))["read"] is False


async def test_empty_lists_are_null_or_empty(cluster: Cluster) -> None:
    await cluster.host("plain.test", switches=Switches(null_lists=False))
    person = await cluster.person("@me@plain.test")
    message = await person.message(await person.send(person.address))
    assert (message["add_to"], message["attachments"], message["reactions"]) == ([], [], [])


async def test_an_older_host_lacks_fields_and_routes(cluster: Cluster) -> None:
    await cluster.host(switches=OLDER)
    alice, bob = await cluster.person("@alice@a.test"), await cluster.person("@bob@a.test")
    number = await alice.send(bob.address, terminal=True)
    message = await bob.message(number)
    assert not {"terminal", "reaction", "reactions", "to_delivery", "sha256"} & set(message)
    assert (await bob.get(f"/{number}/thread/messages")).status == 404
    assert (await bob.post(f"/{number}/react", {"emoji": "👍"})).status == 404
    assert (await bob.get(f"/{number}/thread")).status == 200


async def test_unknown_message(alice: Person) -> None:
    answer = await alice.get("/999")
    assert (answer.status, answer.error) == (404, "message not found")


@pytest.mark.parametrize("path", ["", "/data", "/thread", "/thread/messages", "/attach/x"])
async def test_who_takes_no_part_is_refused(cluster: Cluster, alice: Person, bob: Person, path: str) -> None:
    number = await alice.send(bob.address)
    eve = await cluster.person("@eve@a.test")
    answer = await eve.get(f"/{number}{path}")
    assert (answer.status, answer.error) == (403, "access denied")


async def test_an_id_may_be_the_sha256(alice: Person, bob: Person) -> None:
    number = await alice.send(bob.address)
    digest = (await alice.message(number))["sha256"]
    assert (await bob.get(f"/{digest}/data")).body == b"hello"
    for unknown in ("0" * 64, "f" * 64):
        assert (await bob.get(f"/{unknown}")).status == 404


async def test_a_batch_hash_is_no_id(alice: Person, bob: Person) -> None:
    number = await alice.send(bob.address)
    batch = (await alice.post(f"/{number}/add-to", {"add_to": ["@dora@a.test"]})).json
    assert (await alice.get(f"/{batch['sha256']}")).status == 404


@pytest.mark.parametrize("text", ["x", "0", "-1", "1.5", "9223372036854775808", "g" * 64, "1" * 63])
async def test_nonsense_is_no_id(alice: Person, text: str) -> None:
    answer = await alice.get(f"/{text}")
    assert (answer.status, answer.error) == (400, "invalid message id")


async def test_ids_keep_all_their_digits(alice: Person, bob: Person) -> None:
    alice.host.control.set_next_id(2**63 - 2, next_batch_id=2**60 + 1)
    root = await alice.send(bob.address)
    assert root == 2**63 - 2
    reply = await bob.send(alice.address, pid=root)
    assert (await alice.message(reply))["pid"] == 2**63 - 2
    assert (await alice.post(f"/{root}/add-to", {"add_to": ["@c@a.test"]})).json["batch_id"] == 2**60 + 1
    assert (await alice.post("", alice.wire(bob.address))).status == 500


async def test_data_is_the_bodys_bytes_under_its_type(alice: Person, bob: Person) -> None:
    number = await alice.send(bob.address, type="application/json", data='{"a":1}')
    answer = await bob.get(f"/{number}/data")
    assert (answer.body, answer.headers["Content-Type"]) == (b'{"a":1}', "application/json")


async def test_short_text_is_cut_at_a_code_point(alice: Person, bob: Person) -> None:
    text = "a" + "é" * 500
    message = await bob.message(await alice.send(bob.address, data=text))
    assert message["short_text"] == "a" + "é" * 383
    assert message["size"] == 1001


async def test_only_utf8_text_has_a_short_text(alice: Person, bob: Person) -> None:
    assert "short_text" not in await bob.message(await alice.send(bob.address, type="application/json"))
    broken = bob.host.control.deliver("@x@c.test", [bob.address], data=b"\xff\xfe")
    assert "short_text" not in await bob.message(broken)
    assert (await bob.get(f"/{broken}/data")).body == b"\xff\xfe"


async def test_short_text_may_be_off(cluster: Cluster) -> None:
    await cluster.host(switches=Switches(short_text_bytes=0))
    alice = await cluster.person("@alice@a.test")
    assert "short_text" not in await alice.message(await alice.send(alice.address))


async def test_thread_messages_are_root_first_with_empty_values_left_out(alice: Person, bob: Person) -> None:
    root = await alice.send(bob.address, topic="T")
    reply = await bob.send(alice.address, pid=root, no_reply=True)
    sibling = await bob.send(alice.address, pid=root)
    thread = (await alice.get(f"/{reply}/thread/messages")).json
    assert (thread["root_id"], thread["trigger_id"], thread["complete"]) == (root, reply, True)
    first, second = thread["messages"]
    assert set(first) == {
        "id", "visible", "from", "to", "time", "topic", "type", "size", "message_sha256", "body"
    }  # fmt: skip
    assert first["body"] == {"type": "text/plain", "size": 5, "text": "hello", "cacheable": True}
    assert (second["id"], second["pid"], second["no_reply"]) == (reply, root, True)
    assert sibling not in [message["id"] for message in thread["messages"]]


async def test_thread_messages_by_the_letter(cluster: Cluster) -> None:
    await cluster.host(switches=Switches(thread_omits_empty=False, thread_delivery_null=False))
    alice = await cluster.person("@alice@a.test")
    number = await alice.send(alice.address)
    await alice.post(f"/{number}/add-to", {"add_to": ["@b@a.test"]})
    (message,) = (await alice.get(f"/{number}/thread/messages")).json["messages"]
    assert (message["pid"], message["no_reply"], message["topic"], message["attachments"]) == (None, False, "", [])
    assert message["add_to"][0]["to_delivery"][0]["addr"] == "@b@a.test"


async def test_batches_in_a_thread_have_no_delivery(alice: Person, bob: Person) -> None:
    number = await alice.send(bob.address)
    batch = (await alice.post(f"/{number}/add-to", {"add_to": ["@b@a.test"]})).json
    (shown,) = (await alice.get(f"/{number}/thread/messages")).json["messages"][0]["add_to"]
    assert (shown["to_delivery"], shown["sha256"]) == (None, batch["sha256"])


async def test_a_thread_shows_binary_bodies_and_attachments_as_downloads(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address, type="application/octet-stream")
    await alice.attach(number, "a b.txt", b"xyz")
    await alice.post(f"/{number}/send")
    (message,) = (await bob.get(f"/{number}/thread/messages")).json["messages"]
    assert message["body"]["download"] == f"/fmsg/{number}/data"
    assert "text" not in message["body"]
    assert message["attachments"] == [
        {
            "position": 0,
            "type": "application/octet-stream",
            "filename": "a b.txt",
            "size": 3,
            "download": f"/fmsg/{number}/attach/a%20b.txt",
        }
    ]


async def test_an_ancestor_one_may_not_see(cluster: Cluster, alice: Person, bob: Person) -> None:
    dora = await cluster.person("@dora@a.test")
    root = await alice.send(bob.address)
    reply = await bob.send(alice.address, dora.address, pid=root)
    thread = (await dora.get(f"/{reply}/thread/messages")).json
    assert thread["complete"] is False
    assert thread["root_id"] == root
    assert thread["messages"][0] == {"id": root, "visible": False}
    assert f"message {root} is not visible" in (await dora.get(f"/{reply}/thread")).body.decode()


async def test_a_lineage_past_100_messages(alice: Person, bob: Person) -> None:
    ids = await chain(alice, bob.address, 101)
    assert len((await bob.get(f"/{ids[99]}/thread/messages")).json["messages"]) == 100
    answer = await bob.get(f"/{ids[100]}/thread/messages")
    assert (answer.status, answer.json["code"]) == (422, "thread_too_deep")
    assert (await bob.get(f"/{ids[100]}/thread")).body.decode().count("From: ") == 101


async def test_a_lineage_with_too_much_text(cluster: Cluster) -> None:
    await cluster.host(limits=Limits(thread_text_bytes=9))
    alice = await cluster.person("@alice@a.test")
    first, second = await chain(alice, alice.address, 2)
    assert (await alice.get(f"/{first}/thread/messages")).status == 200
    answer = await alice.get(f"/{second}/thread/messages")
    assert (answer.status, answer.json["code"]) == (413, "thread_too_large")


async def test_the_thread_as_text(alice: Person, bob: Person) -> None:
    root = await alice.send(bob.address, topic="Lunch", data="Thursday?")
    reply = await bob.send(alice.address, pid=root, data="Yes.")
    answer = await alice.get(f"/{reply}/thread")
    assert answer.headers["Content-Type"].startswith("text/plain")
    text = answer.body.decode()
    assert text.index("Topic: Lunch") < text.index("Thursday?") < text.index("From: @bob@a.test") < text.index("Yes.")


async def test_answers_carry_the_hosts_own_date(alice: Person) -> None:
    assert (await alice.get()).headers["Date"] == "Thu, 28 May 2026 20:26:40 GMT"
    assert (await alice.get("/x/y/z")).headers["Date"] == "Thu, 28 May 2026 20:26:40 GMT"


async def test_upload_and_fetch(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    answer = await alice.attach(number, "a b+ü%.txt", b"\0\r\n--x")
    assert (answer.status, answer.json) == (201, {"filename": "a b+ü%.txt", "size": 6})
    await alice.post(f"/{number}/send")
    fetched = await bob.get(f"/{number}/attach/{quote('a b+ü%.txt', safe='')}")
    assert (fetched.body, fetched.headers["Content-Type"]) == (b"\0\r\n--x", "application/octet-stream")
    assert (await bob.message(number))["attachments"] == [{"filename": "a b+ü%.txt", "size": 6}]


async def test_an_upload_by_a_client_library(alice: Person) -> None:
    number = await alice.draft("@bob@a.test")
    form = aiohttp.FormData(quote_fields=False)
    form.add_field("file", b"xyz", filename="zusammenfassung ä.txt", content_type="text/plain")
    answer = await alice.ask("POST", f"/{number}/attach", data=form)
    assert answer.json == {"filename": "zusammenfassung ä.txt", "size": 3}


@pytest.mark.parametrize(("given", "kept"), [("../../etc/passwd", "passwd"), ("/a/b.txt", "b.txt")])
async def test_a_name_comes_back_without_its_folders(alice: Person, given: str, kept: str) -> None:
    number = await alice.draft("@bob@a.test")
    assert (await alice.attach(number, given, b"x")).json["filename"] == kept
    assert (await alice.get(f"/{number}/attach/{kept}")).body == b"x"


@pytest.mark.parametrize("name", [".", "..", "", "a/"])
async def test_a_name_that_is_none(alice: Person, name: str) -> None:
    number = await alice.draft("@bob@a.test")
    answer = await alice.attach(number, name, b"x")
    assert (answer.status, answer.error) == (400, "invalid filename")


async def test_the_same_name_replaces(alice: Person) -> None:
    number = await alice.draft("@bob@a.test")
    await alice.attach(number, "a.txt", b"one")
    await alice.attach(number, "a.txt", b"three")
    assert (await alice.message(number))["attachments"] == [{"filename": "a.txt", "size": 5}]


async def test_a_name_with_a_backslash_is_taken_and_lost(cluster: Cluster, alice: Person) -> None:
    number = await alice.draft("@bob@a.test")
    assert (await alice.attach(number, r"a\b.txt", b"x")).json["filename"] == r"a\b.txt"
    answer = await alice.get(f"/{number}/attach/{quote(chr(92).join(('a', 'b.txt')), safe='')}")
    assert (answer.status, answer.error) == (404, "attachment not found")
    await cluster.host("b.test", switches=Switches(backslash_names_lost=False))
    carol = await cluster.person("@carol@b.test")
    number = await carol.draft("@bob@b.test")
    await carol.attach(number, r"a\b.txt", b"x")
    assert (await carol.get(f"/{number}/attach/a%5Cb.txt")).body == b"x"


async def test_a_name_over_255_bytes_hangs(alice: Person) -> None:
    number = await alice.draft("@bob@a.test")
    hanging = asyncio.ensure_future(alice.attach(number, "ü" * 128, b"x"))
    await alice.asked("attach")
    assert (await alice.get()).status == 200
    assert not hanging.done()
    alice.host.control.release()
    assert (await hanging).status == 400


async def test_or_is_refused(cluster: Cluster) -> None:
    await cluster.host(switches=Switches(long_names_hang=False))
    alice = await cluster.person("@alice@a.test")
    number = await alice.draft("@bob@a.test")
    assert (await alice.attach(number, "x" * 256, b"x")).status == 400
    assert (await alice.attach(number, "x" * 255, b"x")).status == 201


async def test_sizes_that_are_too_large(cluster: Cluster) -> None:
    await cluster.host(limits=Limits(attachment_bytes=4, message_bytes=11))
    alice = await cluster.person("@alice@a.test")
    number = await alice.draft("@bob@a.test")
    answer = await alice.attach(number, "a", b"12345")
    assert (answer.status, answer.error) == (413, "attachment too large")
    assert (await alice.attach(number, "a", b"1234")).status == 201
    answer = await alice.attach(number, "b", b"1234")
    assert (answer.status, answer.error) == (413, "message too large")
    assert (await alice.attach(number, "a", b"4321")).status == 201


async def test_an_attachment_of_exactly_ten_mebibytes_is_taken(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    limit = 10 * 1024 * 1024
    assert (await alice.attach(number, "a", bytes(limit))).json == {"filename": "a", "size": limit}
    assert (await alice.attach(number, "b", bytes(limit + 1))).status == 413


async def test_only_the_owner_of_a_draft_attaches(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    assert (await bob.attach(number, "a", b"x")).status == 403
    await alice.post(f"/{number}/send")
    assert (await alice.attach(number, "a", b"x")).status == 403


async def test_an_upload_without_a_file(alice: Person) -> None:
    number = await alice.draft("@bob@a.test")
    assert (await alice.post(f"/{number}/attach", {})).error == "file is required"
    form = aiohttp.FormData({"other": "x"}, default_to_multipart=True)
    assert (await alice.ask("POST", f"/{number}/attach", data=form)).error == "file is required"
    headers = {"Content-Type": "multipart/form-data"}
    assert (await alice.ask("POST", f"/{number}/attach", data=b"x", headers=headers)).status == 400


async def test_deleting_an_attachment(alice: Person, bob: Person) -> None:
    number = await alice.draft(bob.address)
    await alice.attach(number, "a", b"x")
    assert (await bob.ask("DELETE", f"/{number}/attach/a")).status == 403
    assert (await alice.ask("DELETE", f"/{number}/attach/a")).status == 204
    assert (await alice.ask("DELETE", f"/{number}/attach/a")).status == 404
    assert (await alice.message(number))["attachments"] is None


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        ('form-data; name="file"; filename="a.txt"', "a.txt"),
        (r'form-data; name="file"; filename="a\"b\\c\d"', r"a\"b\c\d".replace(r"\"", '"')),
        ('form-data; name="file"; filename="a%22b%20c"', "a%22b%20c"),
        ('form-data; name="file"; filename="100%"', "100%"),
        ("form-data; name=file; filename=a.txt", "a.txt"),
        ("form-data; name=file; filename*=utf-8''%C3%A4.txt", "ä.txt"),
        ("form-data; name=file; filename=x; filename*=UTF-8''%C3%A4", "ä"),
        ("form-data; name=file", ""),
    ],
)
def test_names_in_a_content_disposition(disposition: str, name: str) -> None:
    assert filename_in(disposition) == name
