from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.values import CallerKey
from mcp_front.http import body as module
from mcp_front.http.body import (
    LONG_STRING_BYTES,
    SMALL_BYTES,
    BodyReader,
    BodyRefused,
    ClientGone,
    Malformed,
    TooDeep,
    TooManyItems,
    read_body,
    read_form,
    read_json,
)
from mcp_front.limits import FREE_BYTES, ByteBudget, ByteShare, OverBudget, upload_limits
from mcp_front.settings import MIB, Budgets

TEXTS = st.text(st.characters(codec="utf-8"))
LONG_TEXTS = st.builds(lambda text, times: (text + "x") * times, TEXTS, st.integers(1, 6000))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS | LONG_TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)
ANN, BOB = CallerKey("ann"), CallerKey("bob")


def read(body: bytes, *, piece_bytes: int = SMALL_BYTES, max_items: int = 1000) -> Any:
    reader = BodyReader(max_depth=64, max_items=max_items)
    for begin in range(0, len(body), piece_bytes):
        reader.feed(body[begin : begin + piece_bytes])
    return reader.value()


@given(value=VALUES, piece_bytes=st.sampled_from([1, 7, 64, 4096, SMALL_BYTES]))
def test_it_reads_what_json_writes_in_pieces_of_any_size(value: object, piece_bytes: int) -> None:
    for body in (json.dumps(value).encode(), json.dumps(value, ensure_ascii=False).encode()):
        if len(body) // piece_bytes < 20_000:
            assert read(body, piece_bytes=piece_bytes) == value
        assert read_json(body, max_depth=64) == value


@pytest.mark.parametrize(
    "text",
    ["\\", '"', "é", "中", "😀", "\n", "a\\", 'b"', "a😀"],
)
@pytest.mark.parametrize("ascii_only", [True, False])
def test_no_cut_between_pieces_breaks_a_character(text: str, ascii_only: bool) -> None:
    value = {"a": "x" + text * LONG_STRING_BYTES + "y", "b": [text]}
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    for piece_bytes in (1021, 1024, 4099):
        assert read(body, piece_bytes=piece_bytes) == value


def test_integers_of_64_bits_and_more_are_exact() -> None:
    body = b'{"id": 9223372036854775807, "n": 123456789012345678901}'
    assert read(body) == read_json(body, max_depth=64) == {"id": 2**63 - 1, "n": 123456789012345678901}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{} {}",
        b"NaN",
        b'{"a": Infinity}',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\\ud800"',
        b'"\\ud800x"',
        b'"\\x"',
        b"\xef\xbb\xbf{}",
        b'"open',
        b'"a\x00b"',
        b"9" * 5000,
        b"[]]",
        b"]",
        b'"' + b"x" * 5000 + b"\xff" + b"x" * 5000 + b'"',
        b'"' + b"x" * 5000 + b"\\ud800" + b"x" * 5000 + b'"',
        b'"' + b"x" * 5000 + b"\\",
        b'"' + b"x" * 5000 + b'" "',
        b'{"' + b"x" * 5000 + b'": 1}',
    ],
)
def test_what_is_no_json_in_utf_8_is_malformed(body: bytes) -> None:
    for piece_bytes in (1, SMALL_BYTES):
        with pytest.raises(Malformed):
            read(body, piece_bytes=piece_bytes)


def test_depth_is_counted_outside_strings_only() -> None:
    assert read_json(b"[" * 64 + b"]" * 64, max_depth=64)
    for body in (b"[" * 65 + b"]" * 65, b'{"a":' * 100_000):
        with pytest.raises(TooDeep):
            read_json(body, max_depth=64)
    text = {"text": '[{"' * 1000 + "\\" * 7}
    assert read_json(json.dumps(text).encode(), max_depth=64) == text


def test_wide_is_not_deep() -> None:
    body = b"[" + b",".join([b"[]"] * 500) + b"]"
    assert read(body) == read_json(body, max_depth=64) == [[]] * 500


@pytest.mark.parametrize(
    "body",
    [
        b"[" + b"[]," * 400_000 + b"1]",
        b"[" + b'"a",' * 400_000 + b"1]",
        b"[" + b"1," * 400_000 + b"1]",
        b"[" + b'{"a":1},' * 400_000 + b"1]",
        b'""' * 400_000,
        b" " * 3_000_000,
        b"1" * 3_000_000,
        b'["' + b'a","' * 400_000,
    ],
)
def test_much_structure_is_refused_before_it_is_built(body: bytes) -> None:
    with pytest.raises(TooManyItems):
        read(body)


def test_closing_brackets_are_refused_at_the_first_too_many() -> None:
    reader = BodyReader(max_depth=64, max_items=1000)
    with pytest.raises(Malformed):
        reader.feed(b"[" + b"]" * SMALL_BYTES)


def test_the_marker_of_a_long_string_cannot_be_written_by_the_client() -> None:
    reader = BodyReader(max_depth=64, max_items=1000)
    marker = reader._marker
    body = json.dumps([marker + "0", "x" * 5000]).encode()
    other = BodyReader(max_depth=64, max_items=1000)
    other.feed(body)
    assert other.value() == [marker + "0", "x" * 5000]


@pytest.mark.parametrize(("text", "char_bytes"), [("a", 1), ("é", 1), ("中", 2), ("😀", 4)])
def test_it_knows_what_long_strings_take_in_memory(text: str, char_bytes: int) -> None:
    reader = BodyReader(max_depth=64, max_items=1000)
    body = json.dumps(["a" * 10_000, "b" * 9_000 + text * 10_000], ensure_ascii=False).encode()
    reader.feed(body)
    assert reader.memory_bytes == pytest.approx(10_000 + 19_000 * char_bytes, rel=0.01)


@pytest.mark.parametrize("body", [b'"' + b'\\"' * 4_000_000, b'"' * 4_000_000, b'"\\', b'["' + b"\\" * 4_000_001])
def test_unfinished_strings_cost_one_pass(body: bytes) -> None:
    begun = time.process_time()
    with pytest.raises((Malformed, TooManyItems)):
        read(body)
    assert time.process_time() - begun < 2.0


BUDGETS = Budgets(max_body_bytes=4 * MIB, upload_bytes=4 * MIB, upload_bytes_per_caller=2 * MIB)


def letters(*sizes: int) -> list[bytes]:
    """Pieces of one JSON string, of these sizes."""
    body = b'"' + b"x" * (sum(sizes) - 2) + b'"'
    ends = [sum(sizes[: index + 1]) for index in range(len(sizes))]
    return [body[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def feed(*pieces: bytes | None) -> Callable[[], Any]:
    """A ``receive`` that gives these pieces; None is a disconnect."""
    left = list(pieces)

    async def receive() -> dict[str, Any]:
        piece = left.pop(0)
        if piece is None:
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": bool(left)}

    return receive


@contextmanager
def upload_of(uploads: ByteBudget, caller: CallerKey) -> Iterator[ByteShare]:
    upload = ByteShare(uploads, caller)
    try:
        yield upload
    finally:
        upload.release()


async def take(uploads: ByteBudget, *pieces: bytes | None, declared: int | None = None) -> Any:
    with upload_of(uploads, ANN) as upload:
        return (
            await read_body(feed(*pieces), declared=declared, budgets=BUDGETS, upload=upload, turn=asyncio.Lock())
        ).value


async def test_a_body_comes_in_one_piece_or_in_several() -> None:
    uploads = ByteBudget(upload_limits(BUDGETS))
    assert await take(uploads, b"{}") == {}
    assert await take(uploads, b"{", b"", b"}") == {}
    assert await take(uploads, *letters(100_000, 100_000)) == "x" * 199_998
    with pytest.raises(Malformed):
        await take(uploads, b"")
    assert uploads.total == 0


async def test_a_client_that_goes_away_is_told_apart() -> None:
    with pytest.raises(ClientGone):
        await take(ByteBudget(upload_limits(BUDGETS)), b"{", None)


@pytest.mark.parametrize("declared", [None, 4 * MIB + 1])
async def test_what_is_too_large_is_refused(declared: int | None) -> None:
    budgets = Budgets(max_body_bytes=4 * MIB)
    uploads = ByteBudget(upload_limits(budgets))
    pieces = feed(*letters(2 * MIB, 2 * MIB, 2 * MIB))
    with pytest.raises(BodyRefused, match="FMSG_MCP_MAX_BODY_BYTES") as refused, upload_of(uploads, ANN) as upload:
        await read_body(pieces, declared=declared, budgets=budgets, upload=upload, turn=asyncio.Lock())
    assert refused.value.status == 413
    assert uploads.total == 0


async def test_a_body_has_a_deadline() -> None:
    never = asyncio.Event()

    async def receive() -> Any:
        await never.wait()

    uploads = ByteBudget(upload_limits(BUDGETS))
    with pytest.raises(BodyRefused, match="FMSG_MCP_BODY_SECONDS") as refused, upload_of(uploads, ANN) as upload:
        await read_body(receive, declared=None, budgets=Budgets(body_s=0.0), upload=upload, turn=asyncio.Lock())
    assert refused.value.status == 408


async def test_a_body_that_is_counted_has_a_least_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """What it holds, others cannot have; a small body may take its time."""
    monkeypatch.setattr(module, "STEP_S", 0.01)
    pieces = letters(FREE_BYTES + 2, 1000)
    slow = feed(pieces[0], None)
    never = asyncio.Event()
    given = 0

    async def receive() -> Any:
        nonlocal given
        given += 1
        if given == 2:
            await never.wait()
        return await slow()

    uploads = ByteBudget(upload_limits(BUDGETS))
    with (
        pytest.raises(BodyRefused, match="slower than 160 KiB") as refused,
        upload_of(uploads, ANN) as upload,
    ):
        await read_body(receive, declared=None, budgets=BUDGETS, upload=upload, turn=asyncio.Lock())
    assert refused.value.status == 408
    assert uploads.total == 0


async def test_what_is_only_declared_holds_nothing() -> None:
    uploads = ByteBudget(upload_limits(BUDGETS))
    never = asyncio.Event()

    async def receive() -> Any:
        await never.wait()

    with upload_of(uploads, ANN) as upload:
        idle = asyncio.ensure_future(
            read_body(receive, declared=4 * MIB, budgets=BUDGETS, upload=upload, turn=asyncio.Lock())
        )
        await asyncio.sleep(0)
        assert uploads.total == 0
        idle.cancel()
        await asyncio.gather(idle, return_exceptions=True)


async def test_bytes_are_counted_as_they_come() -> None:
    uploads = ByteBudget(upload_limits(BUDGETS))
    with upload_of(uploads, ANN) as one, upload_of(uploads, ANN) as two:
        await read_body(feed(*letters(MIB, 1000)), declared=None, budgets=BUDGETS, upload=one, turn=asyncio.Lock())
        assert uploads.total == MIB + 1000
        await read_body(feed(*letters(FREE_BYTES)), declared=None, budgets=BUDGETS, upload=two, turn=asyncio.Lock())
        assert uploads.total == MIB + 1000
        with pytest.raises(OverBudget, match="FMSG_MCP_UPLOAD_BYTES_PER_CALLER"):
            await read_body(feed(*letters(MIB, MIB)), declared=None, budgets=BUDGETS, upload=two, turn=asyncio.Lock())
    assert uploads.total == 0


async def test_a_text_is_counted_as_large_as_it_is_in_memory() -> None:
    uploads = ByteBudget(upload_limits(BUDGETS))
    body = json.dumps("x" * 600_000 + "😀", ensure_ascii=False).encode()
    with pytest.raises(OverBudget, match="FMSG_MCP_UPLOAD_BYTES_PER_CALLER"), upload_of(uploads, ANN) as upload:
        await read_body(feed(body), declared=None, budgets=BUDGETS, upload=upload, turn=asyncio.Lock())


async def test_others_have_their_turn_while_a_large_body_is_read() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counting = asyncio.ensure_future(count())
    with upload_of(ByteBudget(upload_limits(BUDGETS)), ANN) as upload:
        await read_body(feed(*letters(MIB)), declared=None, budgets=BUDGETS, upload=upload, turn=asyncio.Lock())
    counting.cancel()
    assert turns >= MIB // SMALL_BYTES - 1


async def test_one_piece_of_one_body_is_read_in_each_turn_of_the_loop() -> None:
    """However many are read at the same time, others wait for one piece."""
    turn, uploads = asyncio.Lock(), ByteBudget(upload_limits(Budgets()))
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def one() -> None:
        with upload_of(uploads, ANN) as upload:
            await read_body(feed(*letters(MIB)), declared=None, budgets=Budgets(), upload=upload, turn=turn)

    counting = asyncio.ensure_future(count())
    await asyncio.gather(*(one() for _ in range(10)))
    counting.cancel()
    assert turns >= 10 * (MIB // SMALL_BYTES) - 1


async def test_a_form_is_small_and_comes_soon() -> None:
    async def endless() -> dict[str, object]:
        return {"type": "http.request", "body": b"x" * 60, "more_body": True}

    async def silent() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    async def gone() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def whole() -> dict[str, object]:
        return {"type": "http.request", "body": b"a=b", "more_body": False}

    for receive, status in ((endless, 413), (silent, 408)):
        with pytest.raises(BodyRefused) as refused:
            await read_form(receive, max_bytes=100, within_s=0.05 if receive is silent else 60.0)
        assert refused.value.status == status
    with pytest.raises(ClientGone):
        await read_form(gone, max_bytes=100, within_s=60.0)
    assert await read_form(whole, max_bytes=100, within_s=60.0) == b"a=b"
