"""Pages that leave messages out: full, nothing skipped, nothing twice."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from fmsg.message import Message, Page
from mcp_front.tools.paging import HOST_PAGE, MOST_PAGES, Fetch, collect


def host_of(inbox: Sequence[Message], asked: list[tuple[int, int]] | None = None) -> Fetch:
    """A host with this list, newest first, that clamps limits as hosts do."""

    async def fetch(limit: int, offset: int) -> Page:
        assert 1 <= limit <= HOST_PAGE
        if asked is not None:
            asked.append((limit, offset))
        return Page(messages=tuple(inbox[offset : offset + limit]))

    return fetch


def inbox_of(hidden: Sequence[bool]) -> list[Message]:
    """Messages with descending ids; the hidden ones are reactions."""
    top = len(hidden)
    return [
        Message(id=top - index, time=1.0, reaction="👍" if is_hidden else None)
        for index, is_hidden in enumerate(hidden)
    ]


def visible(message: Message) -> bool:
    return not message.is_reaction


@given(hidden=st.lists(st.booleans(), max_size=350), limit=st.integers(1, 100))
async def test_walking_all_pages_gives_every_shown_message_once_in_order(hidden: list[bool], limit: int) -> None:
    inbox = inbox_of(hidden)
    offset: int | None = 0
    walked: list[int] = []
    while offset is not None:
        page = await collect(host_of(inbox), visible, limit=limit, offset=offset)
        if page.next_offset is not None:
            assert len(page.messages) == limit, "a short page only at the end"
            assert page.next_offset > offset
        walked += [message.id for message in page.messages]
        offset = page.next_offset
    assert walked == [message.id for message in inbox if visible(message)]


@given(
    before=st.lists(st.booleans(), max_size=60), after=st.lists(st.booleans(), max_size=60), limit=st.integers(1, 20)
)
async def test_a_message_that_arrives_between_requests_is_not_shown_twice_in_a_page(
    before: list[bool], after: list[bool], limit: int
) -> None:
    inbox = inbox_of(before + [True] * HOST_PAGE + after)

    async def fetch(asked: int, offset: int) -> Page:
        page = Page(messages=tuple(inbox[offset : offset + asked]))
        inbox.insert(0, Message(id=inbox[0].id + 1, time=1.0))
        return page

    page = await collect(fetch, visible, limit=limit, offset=0)
    ids = [message.id for message in page.messages]
    assert len(ids) == len(set(ids))


async def test_one_request_is_enough_where_little_is_left_out() -> None:
    asked: list[tuple[int, int]] = []
    page = await collect(host_of(inbox_of([False, True] + [False] * 50), asked), visible, limit=20, offset=0)
    assert len(page.messages) == 20
    assert page.next_offset == 21
    assert len(asked) == 1


async def test_the_next_page_begins_right_after_the_last_shown_so_that_a_draft_sent_meanwhile_is_met() -> None:
    inbox = inbox_of([False, False, True, False, False])
    page = await collect(host_of(inbox), visible, limit=2, offset=0)
    assert page.next_offset == 2
    inbox[2] = Message(id=inbox[2].id, time=2.0)
    page = await collect(host_of(inbox), visible, limit=2, offset=2)
    assert [message.id for message in page.messages] == [inbox[2].id, inbox[3].id]


async def test_trailing_hidden_messages_make_no_empty_last_page() -> None:
    page = await collect(host_of(inbox_of([False, False, True, True])), visible, limit=2, offset=0)
    assert page.next_offset is None


async def test_a_search_that_finds_nothing_ends_after_some_pages_and_says_where_it_ended() -> None:
    asked: list[tuple[int, int]] = []
    page = await collect(host_of(inbox_of([True] * 2000), asked), visible, limit=3, offset=0)
    assert page.messages == ()
    assert len(asked) == MOST_PAGES
    assert page.next_offset == sum(limit for limit, _ in asked)
