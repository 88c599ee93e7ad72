"""``download_attachment``: inline in the form that suits it, or into a new file; and nothing else, nowhere else."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import os
from pathlib import Path
from typing import Any

import mcp_types
import pytest

from mcp_front.limits import OverBudget
from mcp_front.settings import FrontSettings
from mcp_front.tools.registry import tools_for
from tests.mcp_front.agents import Agent, Answer, World, names_below, until

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


async def attach(sender: Agent, recipient: Agent, filename: str, data: bytes) -> str:
    """Send one attachment; the recipient's reference of the message."""
    await sender.call(
        "send_message",
        to=[recipient.address],
        body="see",
        attachments=[{"filename": filename, "data_base64": base64.b64encode(data).decode()}],
    )
    return str((await recipient.newest())["id"])


def local(world: World, directory: Path | None = None) -> Agent:
    """Bob on his own machine."""
    return world.agent(
        "bob", "there.test", transport="stdio", settings=FrontSettings(transport="stdio", download_dir=directory)
    )


class Room:
    """Notes what is reserved; ``full`` refuses."""

    def __init__(self) -> None:
        self.told: list[int] = []
        self.full = False

    async def reserve(self, content_bytes: int) -> None:
        if self.full:
            raise OverBudget("There is no room.", budget="answer_bytes")
        self.told.append(content_bytes)

    def return_unused(self, content_bytes: int) -> None:
        self.told.append(-content_bytes)


def blocks(answer: Answer) -> list[Any]:
    return list(answer.result.content[1:])


async def test_text_comes_as_an_embedded_resource_and_not_in_the_text_block(ann: Agent, bob: Agent) -> None:
    message_id = await attach(ann, bob, "notes.md", "# Nötes\n".encode())
    got = await bob.call("download_attachment", id=message_id, filename="notes.md")
    assert (got["id"], got["filename"], got["size"], got["saved_to"]) == (message_id, "notes.md", 9, None)
    assert got["content_type"] == "text/markdown"
    assert got["text"] == "# Nötes\n"
    assert "# Nötes\n" not in got.text
    (block,) = blocks(got)
    assert isinstance(block.resource, mcp_types.TextResourceContents)
    assert (block.resource.text, block.resource.mime_type) == ("# Nötes\n", "text/markdown")


async def test_a_large_text_is_carried_once(ann: Agent, bob: Agent) -> None:
    message_id = await attach(ann, bob, "big.txt", b"0123456789" * 20_000)
    got = await bob.call("download_attachment", id=message_id, filename="big.txt")
    assert got.result.model_dump_json().count("0123456789" * 20) == 1_000
    assert got.size_bytes() < 202_000


async def test_replaced_credentials_are_counted_with_the_way_to_the_bytes(
    world: World, ann: Agent, bob: Agent, tmp_path: Path
) -> None:
    data = b"key = fmsgk_abc_" + b"A1" * 16 + b"\nother = fmsgk_def_" + b"B2" * 16
    message_id = await attach(ann, bob, "env.txt", data)
    got = await bob.call("download_attachment", id=message_id, filename="env.txt")
    assert got["redactions"] == 2
    assert "Credentials replaced: 2" in got.text
    assert "FMSG_MCP_DOWNLOAD_DIR" in got.text
    here = local(world, tmp_path)
    assert "save_to" in (await here.call("download_attachment", id=message_id, filename="env.txt")).text
    await here.call("download_attachment", id=message_id, filename="env.txt", save_to=str(tmp_path / "env"))
    assert (tmp_path / "env").read_bytes() == data


async def test_the_memory_is_reserved_before_the_request_and_trimmed_to_the_size(
    ann: Agent, bob: Agent, world: World
) -> None:
    message_id = await attach(ann, bob, "a.txt", b"x" * 100)
    room = Room()
    bob = Agent(bob.host, dataclasses.replace(bob.context, answer=room))
    await bob.call("download_attachment", id=message_id, filename="a.txt", max_inline_bytes=1000)
    assert room.told == [1000, -900]
    await bob.call("download_attachment", id=message_id, filename="no.txt", max_inline_bytes=1000)
    assert sum(room.told) == 100
    room.full = True
    before = world.requests("there.test").get("fetch", 0)
    got = await bob.call("download_attachment", id=message_id, filename="a.txt")
    assert got.error["retry_after_s"] == 5
    assert world.requests("there.test").get("fetch", 0) == before


async def test_an_image_comes_as_an_image(ann: Agent, bob: Agent) -> None:
    message_id = await attach(ann, bob, "dot.png", PNG)
    got = await bob.call("download_attachment", id=message_id, filename="dot.png")
    image, block = blocks(got)
    assert isinstance(image, mcp_types.ImageContent)
    assert image.mime_type == got["content_type"] == "image/png"
    assert base64.b64decode(image.data) == base64.b64decode(block.resource.blob) == PNG


@pytest.mark.parametrize(
    ("filename", "data"), [("a.zip", b"PK\3\4\0"), ("bad.txt", b"caf\xe9"), ("x", b""), ("i.svgz", b"1")]
)
async def test_anything_else_comes_as_an_embedded_resource(ann: Agent, bob: Agent, filename: str, data: bytes) -> None:
    message_id = await attach(ann, bob, filename, data)
    got = await bob.call("download_attachment", id=message_id, filename=filename)
    (block,) = blocks(got)
    assert isinstance(block, mcp_types.EmbeddedResource)
    assert isinstance(block.resource, mcp_types.BlobResourceContents)
    assert base64.b64decode(block.resource.blob) == data
    assert block.resource.uri == f"fmsg://message/{message_id}/attachment/{filename}"


@pytest.mark.parametrize("filename", ["a b.txt", "ümlaut.txt", "100%.txt", "q?x#y.txt", "a;b.txt", '"quoted".txt'])
async def test_names_that_need_encoding_are_found(ann: Agent, bob: Agent, filename: str) -> None:
    message_id = await attach(ann, bob, filename, b"x")
    listed = (await bob.newest())["attachments"][0]["filename"]
    assert (await bob.call("download_attachment", id=message_id, filename=listed))["text"] == "x"


async def test_a_name_with_invisible_characters_is_found_by_what_results_show(ann: Agent, bob: Agent) -> None:
    message_id = await attach(ann, bob, "gpj\u202efdp.exe", b"x")
    listed = (await bob.newest())["attachments"][0]["filename"]
    assert listed == "gpj<U+202E>fdp.exe"
    assert (await bob.call("download_attachment", id=message_id, filename=listed))["size"] == 1


async def test_more_than_the_cap_is_refused_with_the_size_and_what_to_do(
    world: World, ann: Agent, bob: Agent, tmp_path: Path
) -> None:
    message_id = await attach(ann, bob, "big.txt", b"x" * 1001)
    got = await bob.call("download_attachment", id=message_id, filename="big.txt", max_inline_bytes=1000)
    assert got.error["kind"] == "refused_here"
    assert got.error["size"] == 1001
    assert "max_inline_bytes" in got.error["next"]
    assert "save_to" not in got.error["next"]
    here = local(world, tmp_path)
    got = await here.call("download_attachment", id=message_id, filename="big.txt", max_inline_bytes=1000)
    assert "save_to" in got.error["next"]
    assert (await bob.call("download_attachment", id=message_id, filename="big.txt", max_inline_bytes=1001))[
        "size"
    ] == 1001


async def test_an_unknown_attachment_is_the_hosts_to_refuse(ann: Agent, bob: Agent) -> None:
    message_id = await attach(ann, bob, "a.txt", b"x")
    got = await bob.call("download_attachment", id=message_id, filename="b.txt")
    assert got.error["host_text"] == "attachment not found"
    assert got.error["next"] == 'The message has "a.txt".'
    plain = await ann.send(bob)
    assert plain
    got = await bob.call("download_attachment", id=(await bob.newest())["id"], filename="b.txt")
    assert got.error["next"] == "The message has no attachments."
    got = await bob.call("download_attachment", id="999999", filename="b.txt")
    assert "get_message" in got.error["next"]


async def test_a_hosted_server_refuses_save_to(world: World, ann: Agent, bob: Agent, tmp_path: Path) -> None:
    message_id = await attach(ann, bob, "a.txt", b"x")
    target = tmp_path / "a.txt"
    got = await bob.call("download_attachment", id=message_id, filename="a.txt", save_to=str(target))
    assert got.text.startswith("save_to: ")
    assert "stdio" in got.text
    assert not target.exists()
    assert world.requests("there.test").get("fetch", 0) == 0


async def test_a_file_is_written_whole_and_for_its_owner_alone(world: World, ann: Agent, tmp_path: Path) -> None:
    bob = local(world, tmp_path)
    data = os.urandom(3_000_000)
    message_id = await attach(ann, bob, "data.bin", data)
    target = tmp_path / "data.bin"
    got = await bob.call("download_attachment", id=message_id, filename="data.bin", save_to=str(target))
    assert (got["saved_to"], got["size"]) == (str(target), 3_000_000)
    assert target.read_bytes() == data
    assert target.stat().st_mode & 0o777 == 0o600
    assert blocks(got) == []


@pytest.mark.parametrize("where", ["outside", "parent", "relative", "missing", "link", "directory", "nul", "sibling"])
async def test_below_the_download_directory_only_and_never_through_a_link(
    world: World, ann: Agent, tmp_path: Path, where: str
) -> None:
    root = tmp_path / "down"
    root.mkdir()
    (tmp_path / "down-2").mkdir()
    (root / "link").symlink_to(tmp_path)
    bob = local(world, root)
    message_id = await attach(ann, bob, "a.txt", b"x")
    path = {
        "outside": str(tmp_path / "a.txt"),
        "parent": str(root / ".." / "a.txt"),
        "relative": "a.txt",
        "missing": str(root / "no" / "a.txt"),
        "link": str(root / "link" / "a.txt"),
        "directory": str(root),
        "nul": str(root / "a\0b"),
        "sibling": str(tmp_path / "down-2" / "a.txt"),
    }[where]
    got = await bob.call("download_attachment", id=message_id, filename="a.txt", save_to=path)
    assert got.error["kind"] == "bad_argument"
    assert got.text.startswith("save_to: ")
    assert names_below(tmp_path) == ["down", "down-2", "link"]


@pytest.mark.parametrize("kind", ["file", "link", "dangling", "directory"])
async def test_never_over_what_is_there(world: World, ann: Agent, tmp_path: Path, kind: str) -> None:
    bob = local(world, tmp_path)
    message_id = await attach(ann, bob, "a.txt", b"new")
    target = tmp_path / "a.txt"
    (tmp_path / "old").write_text("old")
    match kind:
        case "file":
            target.write_text("old")
        case "link":
            target.symlink_to(tmp_path / "old")
        case "dangling":
            target.symlink_to(tmp_path / "nothing")
        case "directory":
            target.mkdir()
    got = await bob.call("download_attachment", id=message_id, filename="a.txt", save_to=str(target))
    assert got.error["kind"] == "bad_argument"
    assert (tmp_path / "old").read_text() == "old"
    assert not (tmp_path / "nothing").exists()


async def test_without_a_directory_nothing_is_saved_and_the_tool_only_reads(world: World, ann: Agent) -> None:
    bob = local(world)
    message_id = await attach(ann, bob, "a.txt", b"x")
    got = await bob.call("download_attachment", id=message_id, filename="a.txt", save_to="/tmp/a.txt")
    assert got.text.startswith("save_to: works only with a server")
    assert "FMSG_MCP_DOWNLOAD_DIR" in got.text
    tool = tools_for(bob.context.settings)["download_attachment"].definition
    assert tool.annotations is not None
    assert tool.annotations.read_only_hint
    assert "save_to" not in tool.input_schema["properties"]


@pytest.mark.parametrize("status", [404, 500])
async def test_a_refused_download_makes_no_file(world: World, ann: Agent, tmp_path: Path, status: int) -> None:
    bob = local(world, tmp_path)
    message_id = await attach(ann, bob, "a.txt", b"x")
    world.there.fail_next("fetch", status=status, text="no")
    got = await bob.call("download_attachment", id=message_id, filename="a.txt", save_to=str(tmp_path / "a.txt"))
    assert got.error["status"] == status
    assert names_below(tmp_path) == []


async def test_a_download_that_breaks_off_leaves_no_part(
    world: World, ann: Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bob = local(world, tmp_path)
    message_id = await attach(ann, bob, "a.bin", b"x" * 500_000)
    fsync = os.fsync

    def full(fd: int) -> None:
        fsync(fd)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    got = await bob.call("download_attachment", id=message_id, filename="a.bin", save_to=str(tmp_path / "a.bin"))
    assert "No space left" in got.text
    assert names_below(tmp_path) == []


async def test_a_cancelled_download_leaves_no_part(world: World, ann: Agent, tmp_path: Path) -> None:
    bob = local(world, tmp_path)
    message_id = await attach(ann, bob, "a.bin", b"x")
    world.there.hang_next("fetch")
    call = asyncio.create_task(
        bob.call("download_attachment", id=message_id, filename="a.bin", save_to=str(tmp_path / "a.bin"))
    )
    await until(lambda: world.requests("there.test").get("fetch", 0) > 0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    world.there.release()
    assert names_below(tmp_path) == []
