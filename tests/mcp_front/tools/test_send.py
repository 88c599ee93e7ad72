"""``send_message`` and ``reply``: what goes out, to whom, and what is refused before anything does."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from fmsg.directory import Directory
from mcp_front.settings import FrontSettings
from tests.mcp_front.agents import Agent, World

KEY = "fmsgk_abc123_" + "A+b/c" * 8 + "=="
"""In the form of an API key, with the characters that half-hearted patterns stop at."""


def file(name: str = "note.txt", data: bytes = b"content", **more: str) -> dict[str, str]:
    return {"filename": name, "data_base64": base64.b64encode(data).decode(), **more}


async def drafts(agent: Agent) -> list[int]:
    """The agent's drafts on its host: what a failed call must not leave."""
    page = await agent.context.caller.api.list_sent(limit=100)
    return [message.id for message in page.messages if message.is_draft]


async def test_a_message_goes_out_and_the_result_says_what(ann: Agent, bob: Agent) -> None:
    sent = await ann.call("send_message", to=[bob.address], topic="Lunch?", body="Thursday at noon?")
    assert sent["from"] == ann.address
    assert sent["to"] == [bob.address]
    assert sent["topic"] == "Lunch?"
    assert sent["parent_id"] is None
    assert sent["attachments"] == []
    assert sent["redactions"] == 0
    assert all(part in sent.text for part in (sent["id"], "Lunch?", bob.address, sent["time"]))
    got = await bob.newest()
    assert (got["topic"], got["type"]) == ("Lunch?", "text/markdown; charset=utf-8")
    assert (got["important"], got["no_reply"], got["terminal"]) == (False, False, False)


async def test_an_answer_that_is_faster_than_the_next_call_is_not_missed(ann: Agent, bob: Agent) -> None:
    """The result names the position to wait from; a wait without one begins when it is called."""
    sent = await ann.call("send_message", to=[bob.address], body="quick?")
    assert f'or "{sent["id"]}" without one' in sent["next"]
    assert sent["next"] in sent.text
    answer = await bob.call("reply", id=(await bob.newest())["id"], body="quick!")
    assert f'or "{answer["id"]}" without one' in answer["next"]
    got = await ann.call("wait_for_message", after_id=sent["id"], timeout_seconds=5, settle_seconds=0)
    assert [message["body"] for message in got["messages"]] == ["quick!"]


async def test_where_no_answer_is_wanted_none_is_waited_for(ann: Agent, bob: Agent) -> None:
    sent = await ann.call("send_message", to=[bob.address], body="FYI", no_reply=True, idempotency_key="k")
    assert "wait_for_message" not in sent["next"]
    again = await ann.call("send_message", to=[bob.address], body="FYI", no_reply=True, idempotency_key="k")
    assert again["repeated"] is True
    assert "wait_for_message" not in again["next"]


async def test_all_arguments_reach_the_recipient(ann: Agent, bob: Agent) -> None:
    await ann.call(
        "send_message", to=[bob.address], topic="t", body='{"a": 1}', type="application/json", important=True,
        no_reply=True, attachments=[file("a.txt"), file("b.bin", b"\0\1", content_type="application/x-thing")],
    )  # fmt: skip
    got = await bob.newest()
    assert (got["type"], got["important"], got["no_reply"]) == ("application/json", True, True)
    assert got["attachments"] == [
        {"filename": "a.txt", "size": 7, "type": "text/plain"},
        {"filename": "b.bin", "size": 2, "type": "application/octet-stream"},
    ]


async def test_short_names_are_resolved_and_results_have_full_addresses(world: World, bob: Agent) -> None:
    ann = world.agent("ann", directory=Directory({"bob": bob.address}, default_domain="here.test"))
    sent = await ann.call("send_message", to=["Bob", bob.address.upper(), "dan"], body="hi")
    assert sent["to"] == [bob.address, "@dan@here.test"]
    assert (await bob.newest())["to"] == [bob.address, "@dan@here.test"]
    assert sent["resolved"] == [
        {"input": "Bob", "address": bob.address},
        {"input": "dan", "address": "@dan@here.test"},
    ]


async def test_credentials_are_replaced_in_topic_and_body_and_counted(ann: Agent, bob: Agent) -> None:
    sent = await ann.call("send_message", to=[bob.address], topic=f"my {KEY}", body=f"one {KEY} two {KEY}.")
    assert sent["redactions"] == 3
    assert sent["redacted"] == ["fmsg key"]
    assert "3 (fmsg key)" in sent.text
    item = await bob.newest()
    got = await bob.call("get_message", id=item["id"])
    for text in (item["topic"], got["body"]):
        assert "A+b/c" not in text
        assert "fmsgk_" not in text


async def test_a_placeholder_that_somebody_wrote_is_no_credential(ann: Agent, bob: Agent) -> None:
    sent = await ann.call("send_message", to=[bob.address], body=f"[redacted JWT] and {KEY}")
    assert (sent["redactions"], sent["redacted"]) == (1, ["fmsg key"])


@pytest.mark.parametrize(
    ("type_", "told"),
    [
        ("markdown", "'markdown' is not a media type"),
        ("text/", "is not a media type"),
        ("text/plain; x=\n", "is not a media type"),
        ("text/plain; x=" + "y" * 300, "is not a media type"),
        ("text/plain; charset=iso-8859-1", "sent as UTF-8"),
    ],
)
async def test_a_type_that_is_none_or_a_label_that_is_wrong_is_refused_before_a_draft_exists(
    world: World, ann: Agent, type_: str, told: str
) -> None:
    got = await ann.call("send_message", to=["@bob@there.test"], body="x", type=type_)
    assert got.text.startswith("type: ")
    assert told in got.text
    assert world.requests().get("create", 0) == 0


async def test_base64_is_taken_as_common_tools_print_it(ann: Agent, bob: Agent) -> None:
    data = bytes(range(256))
    printed = base64.encodebytes(data).decode()
    sent = await ann.call(
        "send_message", to=[bob.address], body="x", attachments=[{"filename": "a", "data_base64": printed}]
    )
    assert sent["attachments"][0]["size"] == 256


async def test_recipients_the_host_has_refused_already_are_named_at_once(ann: Agent, bob: Agent) -> None:
    sent = await ann.call("send_message", to=["@nobody@here.test", bob.address], body="anybody?", idempotency_key="k")
    (refused,) = sent["refused"]
    assert (refused["addr"], refused["code"], refused["meaning"]) == ("@nobody@here.test", 100, "user unknown")
    assert "@nobody@here.test: code 100 user unknown" in sent.text
    again = await ann.call("send_message", to=["@nobody@here.test", bob.address], body="anybody?", idempotency_key="k")
    assert again["refused"] == sent["refused"]


async def test_the_text_names_delivery_status_and_no_look_is_spent_on_other_hosts(
    world: World, ann: Agent, bob: Agent
) -> None:
    before = world.requests().get("get", 0)
    sent = await ann.call("send_message", to=[bob.address], body="x")
    assert f'delivery_status with id "{sent["id"]}"' in sent.text
    assert world.requests().get("get", 0) == before


async def test_a_look_that_fails_does_not_make_a_sent_message_a_failure(world: World, ann: Agent, cat: Agent) -> None:
    world.here.fail_next("get", status=500, text="down", times=5)
    sent = await ann.call("send_message", to=[cat.address], body="x")
    assert "refused" not in sent.fields


@pytest.mark.parametrize(
    ("argument", "arguments"),
    [
        ("attachments[0].filename", {"attachments": [file(f"{KEY.replace('/', '')}.txt")]}),
        ("attachments[0].content_type", {"attachments": [file(content_type=f"text/plain; x={KEY}")]}),
        ("type", {"type": f"text/plain; x={KEY}"}),
        ("to[1]", {"to": ["@bob@there.test", "@fmsgk_abcdefghijk@there.test"]}),
    ],
)
async def test_a_credential_where_nothing_can_be_replaced_is_refused_before_a_draft_exists(
    world: World, ann: Agent, argument: str, arguments: dict[str, Any]
) -> None:
    got = await ann.call("send_message", **{"to": ["@bob@there.test"], "body": "see"} | arguments)
    assert got.error["kind"] == "bad_argument"
    assert got.text.startswith(f"{argument}: holds a credential")
    assert "fmsgk_" not in got.text
    assert world.requests().get("create", 0) == 0


async def test_the_name_the_host_gave_an_attachment_is_the_one_reported(world: World, ann: Agent, bob: Agent) -> None:
    sent = await ann.call("send_message", to=[bob.address], body="see", attachments=[file("ümlaut file.txt")])
    assert [item["filename"] for item in sent["attachments"]] == [
        item["filename"] for item in (await bob.newest())["attachments"]
    ]


@pytest.mark.parametrize(
    ("attachments", "argument"),
    [
        ([file("../../etc/passwd")], "attachments[0].filename"),
        ([file("a\\b.txt")], "attachments[0].filename"),
        ([file("x" * 256)], "attachments[0].filename"),
        ([file("ok"), file("nul\0")], "attachments[1].filename"),
        ([file("..")], "attachments[0].filename"),
        ([file(""), file("a")], "attachments[0].filename"),
        ([file("a"), file("a")], "attachments[1].filename"),
        ([file() | {"data_base64": "not base64!"}], "attachments[0].data_base64"),
        ([file() | {"data_base64": "QUI"}], "attachments[0].data_base64"),
        ([file() | {"data_base64": "-_8="}], "attachments[0].data_base64"),
        ([file() | {"data_base64": "QR=="}], "attachments[0].data_base64"),
        ([file(content_type="no type")], "attachments[0].content_type"),
        ([file() | {"path": "/etc/passwd"}], "attachments[0].path"),
        ([{"filename": "a"}], "attachments[0].data_base64"),
    ],
)  # fmt: skip
async def test_an_attachment_that_cannot_go_is_refused_before_a_draft_exists(
    world: World, ann: Agent, bob: Agent, attachments: Any, argument: str
) -> None:
    got = await ann.call("send_message", to=[bob.address], body="see", attachments=attachments)
    assert got.error["kind"] == "bad_argument"
    assert got.text.startswith(argument)
    assert world.requests().get("create", 0) == 0


async def test_a_host_that_refuses_an_attachment_leaves_no_draft(world: World, ann: Agent, bob: Agent) -> None:
    got = await ann.call(
        "send_message", to=[bob.address], body="see", attachments=[file(), file("big", b"x" * (10 * 1024 * 1024 + 1))]
    )
    assert got.error["status"] == 413
    assert await drafts(ann) == []
    assert await world.store.deferred.depth() == 0


async def test_a_host_that_refuses_the_send_leaves_no_draft(world: World, ann: Agent, bob: Agent) -> None:
    world.here.fail_next("send", status=400, text="message is incomplete")
    got = await ann.call("send_message", to=[bob.address], body="see")
    assert got.error["host_text"] == "message is incomplete"
    assert "message is incomplete" in got.text
    assert await drafts(ann) == []


async def test_a_long_topic_is_the_hosts_to_refuse_in_its_own_words(ann: Agent, bob: Agent) -> None:
    got = await ann.call("send_message", to=[bob.address], topic="x" * 300, body="see")
    assert got.error["status"] == 500
    assert got.error["host_text"] in got.text
    assert await drafts(ann) == []


async def test_a_reply_goes_to_everybody_who_takes_part_but_the_caller(world: World, bob: Agent, cat: Agent) -> None:
    ann, dan = world.agent("ann"), world.agent("dan")
    await ann.call("send_message", to=[bob.address, cat.address], topic="t", body="hi")
    got = (await cat.newest())["id"]
    await cat.call("add_recipients", id=got, add_to=[dan.address])
    reply = await cat.call("reply", id=got, body="hello all")
    assert reply["parent_id"] == got
    assert reply["to"] == [ann.address, bob.address, dan.address]
    assert reply["topic"] == ""
    assert (await ann.newest())["pid"] == got


async def test_recipients_of_a_reply_can_be_chosen(ann: Agent, bob: Agent, cat: Agent) -> None:
    await ann.call("send_message", to=[bob.address, cat.address], topic="t", body="hi")
    reply = await cat.call("reply", id=(await cat.newest())["id"], body="psst", recipients=[ann.address])
    assert reply["to"] == [ann.address]


async def test_the_set_is_taken_from_the_message_itself_not_from_the_root(ann: Agent, bob: Agent, cat: Agent) -> None:
    await ann.call("send_message", to=[bob.address, cat.address], topic="t", body="hi")
    private = await cat.call("reply", id=(await cat.newest())["id"], body="only you", recipients=[ann.address])
    reply = await ann.call("reply", id=private["id"], body="yes")
    assert reply["to"] == [cat.address]


async def test_somebody_who_was_only_added_can_reply(world: World, ann: Agent, bob: Agent) -> None:
    dan = world.agent("dan")
    root = await ann.send(bob)
    await ann.call("add_recipients", id=root, add_to=[dan.address])
    reply = await dan.call("reply", id=(await dan.newest())["id"], body="I am in too")
    assert sorted(reply["to"]) == sorted([ann.address, bob.address])
    assert reply["parent_id"] == root
    assert (await ann.newest())["from"] == dan.address


async def test_somebody_who_was_only_added_on_an_older_host_can_reply(older_world: World) -> None:
    ann, dan = older_world.agent("ann"), older_world.agent("dan")
    root = await ann.send(older_world.agent("bob", "there.test"))
    await ann.call("add_recipients", id=root, add_to=[dan.address])
    reply = await dan.call("reply", id=root, body="I am in too")
    assert ann.address in reply["to"]


async def test_a_reply_to_oneself_alone_needs_recipients(world: World, ann: Agent) -> None:
    own = await ann.send(ann)
    got = await ann.call("reply", id=own, body="hm")
    assert got.error["kind"] == "refused_here"
    assert "recipients" in got.error["next"]


async def test_a_terminal_message_takes_no_reply_and_nothing_is_changed(world: World, ann: Agent) -> None:
    message_id = str(world.here.deliver("@x@there.test", [ann.address], terminal=True))
    before = world.requests()
    got = await ann.call("reply", id=message_id, body="but")
    assert got.error["kind"] == "refused_here"
    assert "terminal" in got.text
    assert "send_message" in got.error["next"]
    assert {route for route, count in world.requests().items() if count > before.get(route, 0)} <= {"get", "token"}


async def test_a_no_reply_message_takes_a_reply_only_on_insistence(world: World, ann: Agent) -> None:
    world.agent("eve", "there.test")
    message_id = str(world.here.deliver("@eve@here.test", [ann.address], no_reply=True))
    world.agent("eve")
    before = world.requests()
    got = await ann.call("reply", id=message_id, body="but")
    assert "allow_no_reply" in got.error["next"]
    assert {route for route, count in world.requests().items() if count > before.get(route, 0)} <= {"get", "token"}
    assert (await ann.call("reply", id=message_id, body="but", allow_no_reply=True))["parent_id"] == message_id


async def test_no_argument_changes_the_sending_address(ann: Agent, bob: Agent) -> None:
    got = await ann.call("send_message", to=[bob.address], body="x", from_="@cat@here.test")
    assert got.error["kind"] == "bad_argument"
    assert got.text.startswith("from: ")


@pytest.mark.filterwarnings("ignore:unread_data:DeprecationWarning")  # aiohttp's own reading of multipart bodies
async def test_a_file_below_the_upload_directory_goes_by_path(world: World, bob: Agent, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "report.pdf").write_bytes(b"%PDF" * 100_000)
    settings = FrontSettings(transport="stdio", upload_dir=tmp_path)
    ann = world.agent("ann", transport="stdio", settings=settings)
    sent = await ann.call(
        "send_message", to=[bob.address], body="see", attachments=[
            {"path": "in/report.pdf"}, {"path": str(tmp_path / "in" / "report.pdf"), "filename": "again.pdf"},
        ],
    )  # fmt: skip
    assert sent["attachments"] == [
        {"filename": "report.pdf", "size": 400_000, "type": "application/pdf"},
        {"filename": "again.pdf", "size": 400_000, "type": "application/pdf"},
    ]


@pytest.mark.parametrize("path", ["../secret", "link/secret", "link2", "in", "missing", "/etc/passwd", "nul\0"])
async def test_a_path_out_of_the_upload_directory_is_refused(
    world: World, bob: Agent, tmp_path: Path, path: str
) -> None:
    root = tmp_path / "up"
    (root / "in").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (root / "link").symlink_to(tmp_path)
    (root / "link2").symlink_to(tmp_path / "secret")
    ann = world.agent("ann", transport="stdio", settings=FrontSettings(transport="stdio", upload_dir=root))
    got = await ann.call("send_message", to=[bob.address], body="see", attachments=[{"path": path, "filename": "x"}])
    assert got.error["kind"] == "bad_argument"
    assert got.text.startswith("attachments[0].path: ")
    assert world.requests().get("create", 0) == 0


async def test_a_path_without_an_upload_directory_is_refused_with_the_name_of_the_setting(
    world: World, bob: Agent
) -> None:
    ann = world.agent("ann", transport="stdio")
    got = await ann.call("send_message", to=[bob.address], body="see", attachments=[{"path": "/etc/passwd"}])
    assert "FMSG_MCP_UPLOAD_DIR" in got.text


async def test_an_idempotency_key_returns_the_first_outcome(ann: Agent, bob: Agent) -> None:
    arguments: dict[str, Any] = {
        "to": [bob.address], "topic": "Once", "body": f"body {KEY}", "attachments": [file()], "idempotency_key": "k1",
    }  # fmt: skip
    first = await ann.call_with("send_message", arguments)
    again = await ann.call_with("send_message", {**arguments, "important": False})
    assert again["repeated"] is True
    assert {name: again[name] for name in first.fields} == first.fields
    page = await bob.call("list_messages")
    assert page["count"] == 1


async def test_an_idempotency_key_with_other_content_is_refused(ann: Agent, bob: Agent) -> None:
    await ann.call("send_message", to=[bob.address], body="one", idempotency_key="k1")
    for change in ({"body": "two"}, {"topic": "t"}, {"important": True}, {"attachments": [file()]}):
        got = await ann.call_with(
            "send_message", {"to": [bob.address], "body": "one", "idempotency_key": "k1", **change}
        )
        assert got.text.startswith("idempotency_key: ")
    assert (await bob.call("list_messages"))["count"] == 1


async def test_idempotent_replies_keep_apart_from_messages_and_callers(ann: Agent, bob: Agent, cat: Agent) -> None:
    await ann.call("send_message", to=[bob.address, cat.address], body="one", idempotency_key="k")
    first = await cat.call("reply", id=(await cat.newest())["id"], body="two", idempotency_key="k")
    again = await cat.call("reply", id=first["parent_id"], body="two", idempotency_key="k")
    assert again["id"] == first["id"]
    assert again["to"] == first["to"]
    assert again["parent_id"] == first["parent_id"]


async def test_a_large_body_arrives_as_it_was_and_half_a_surrogate_pair_in_it_is_named(ann: Agent, cat: Agent) -> None:
    body = 'ä"\\\n👍' * 200_000
    sent = await ann.call("send_message", to=[cat.address], body=body, idempotency_key="k")
    got = await cat.call("get_message", id=sent["id"], max_body_bytes=10_000_000)
    assert got["body"] == body
    broken = await ann.call("send_message", to=[cat.address], body=body + "\ud800")
    assert broken.text.startswith("body: holds half a surrogate pair")
    assert await drafts(ann) == []
