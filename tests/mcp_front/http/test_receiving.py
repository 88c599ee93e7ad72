from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ledger.values import CallerKey
from mcp_front.http.receiving import COUNTED_BYTES, BodyRefused, ClientGone, Upload, Uploads, read_body
from mcp_front.settings import Budgets

ANN, BOB = CallerKey("ann"), CallerKey("bob")
BUDGETS = Budgets(max_body_bytes=1_000_000, upload_bytes=500_000, upload_bytes_per_caller=300_000)


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
def upload_of(uploads: Uploads, caller: CallerKey) -> Iterator[Upload]:
    upload = Upload(uploads, caller)
    try:
        yield upload
    finally:
        upload.give_back()
        upload.give_back()


async def read(uploads: Uploads, *pieces: bytes | None, declared: int | None = None) -> bytes:
    with upload_of(uploads, ANN) as upload:
        return await read_body(feed(*pieces), declared=declared, budgets=BUDGETS, upload=upload)


async def test_a_body_comes_in_one_piece_or_in_several() -> None:
    uploads = Uploads(BUDGETS)
    assert await read(uploads, b"{}") == b"{}"
    assert await read(uploads, b"{", b"", b"}") == b"{}"
    assert await read(uploads, b"") == b""
    assert uploads.total == 0


async def test_a_client_that_goes_away_is_told_apart() -> None:
    with pytest.raises(ClientGone):
        await read(Uploads(BUDGETS), b"{", None)


@pytest.mark.parametrize("declared", [None, 1_000_001])
async def test_what_is_too_large_is_refused(declared: int | None) -> None:
    uploads = Uploads(Budgets(max_body_bytes=1_000_000))
    pieces = feed(*[b"x" * 400_000] * 3)
    with pytest.raises(BodyRefused, match="FMSG_MCP_MAX_BODY_BYTES") as refused, upload_of(uploads, ANN) as upload:
        await read_body(pieces, declared=declared, budgets=Budgets(max_body_bytes=1_000_000), upload=upload)
    assert refused.value.status == 413
    assert uploads.total == 0


async def test_a_body_has_a_deadline() -> None:
    never = asyncio.Event()

    async def receive() -> Any:
        await never.wait()

    with (
        pytest.raises(BodyRefused, match="FMSG_MCP_BODY_SECONDS") as refused,
        upload_of(Uploads(BUDGETS), ANN) as upload,
    ):
        await read_body(receive, declared=None, budgets=Budgets(body_s=0.0), upload=upload)
    assert refused.value.status == 408


async def test_bytes_are_counted_as_declared_or_as_they_come() -> None:
    uploads = Uploads(BUDGETS)
    with upload_of(uploads, ANN) as one, upload_of(uploads, ANN) as two:
        await read_body(feed(b"x" * 200_000), declared=200_000, budgets=BUDGETS, upload=one)
        assert uploads.total == 200_000
        await read_body(feed(b"x" * COUNTED_BYTES), declared=None, budgets=BUDGETS, upload=two)
        assert uploads.total == 200_000
        with pytest.raises(BodyRefused, match="FMSG_MCP_UPLOAD_BYTES_PER_CALLER") as refused:
            await read_body(feed(b"x" * 90_000, b"x" * 90_000), declared=None, budgets=BUDGETS, upload=two)
        assert (refused.value.status, refused.value.retry_after_s) == (429, 5.0)
        with upload_of(uploads, BOB) as three:
            three.grow_to(200_000)
            with pytest.raises(BodyRefused, match=r"the uploads of all callers .*\(FMSG_MCP_UPLOAD_BYTES\)"):
                three.grow_to(290_000)
    assert uploads.total == 0
    with upload_of(uploads, ANN) as again:
        again.grow_to(300_000)
