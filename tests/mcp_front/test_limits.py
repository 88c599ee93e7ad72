from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ledger.values import CallerKey
from mcp_front.limits import (
    CONTENT_WEIGHT,
    FREE_BYTES,
    AnswerShare,
    ByteBudget,
    ByteShare,
    HeldCalls,
    OverBudget,
    PerCallerLimiter,
    answer_limits,
    form_limits,
    free_frames,
    upload_limits,
)
from mcp_front.settings import MIB, Budgets
from tests.within import within

ANN, BOB, CAT = CallerKey("ann"), CallerKey("bob"), CallerKey("cat")


@contextmanager
def held(calls: HeldCalls, caller: CallerKey) -> Iterator[None]:
    calls.take(caller)
    try:
        yield
    finally:
        calls.give_back(caller)


class Content:
    """Something large."""


def test_what_failed_holds_nothing_any_more() -> None:
    alive: list[weakref.ref[Content]] = []

    def read() -> None:
        content = Content()
        alive.append(weakref.ref(content))
        raise ValueError

    def serve() -> None:
        content = Content()
        alive.append(weakref.ref(content))
        try:
            read()
        except ValueError:
            raise KeyError from None

    try:
        serve()
    except KeyError as error:
        assert [ref() is None for ref in alive] == [False, False]
        free_frames(error)
        assert [ref() is None for ref in alive] == [True, True]


class TestHeldCalls:
    def test_each_caller_and_all_of_them_have_a_limit(self) -> None:
        calls = HeldCalls(Budgets(max_waits_per_caller=2, max_waits=3))
        with held(calls, ANN), held(calls, ANN):
            with (
                pytest.raises(OverBudget, match=r"2 waits .* this address .*FMSG_MCP_MAX_WAITS_PER_CALLER"),
                held(calls, ANN),
            ):
                pass
            with held(calls, BOB):
                assert calls.total == 3
                with (
                    pytest.raises(OverBudget, match=r"3 waits .* all callers .*FMSG_MCP_MAX_WAITS\)"),
                    held(calls, BOB),
                ):
                    pass
        assert calls.total == 0

    def test_a_call_that_fails_gives_its_place_back(self) -> None:
        calls = HeldCalls(Budgets(max_waits_per_caller=1))
        for _ in range(3):
            with pytest.raises(RuntimeError), held(calls, ANN):
                raise RuntimeError
        assert calls.total == 0


def uploads(*, total_mib: int = 16, per_caller_mib: int = 8) -> ByteBudget:
    budgets = Budgets(upload_bytes=total_mib * MIB, upload_bytes_per_caller=per_caller_mib * MIB)
    return ByteBudget(upload_limits(budgets))


class TestByteBudget:
    def test_one_caller_has_a_limit_that_its_error_names(self) -> None:
        budget = uploads()
        budget.take(ANN, 8 * MIB)
        with pytest.raises(OverBudget, match=r"8 MiB .*\(FMSG_MCP_UPLOAD_BYTES_PER_CALLER\).* again in 5 s") as failed:
            budget.take(ANN, 1)
        assert failed.value.retry_after_s == 5
        budget.take(BOB, 4 * MIB)
        assert budget.total == 12 * MIB

    def test_all_callers_have_a_limit_that_its_error_names(self) -> None:
        budget = uploads(total_mib=12)
        budget.take(ANN, 8 * MIB)
        budget.take(BOB, 1 * MIB)
        budget.take(BOB, 1 * MIB)
        budget.take(CAT, 2 * MIB)
        with pytest.raises(OverBudget, match=r"all callers .*12 MiB .*\(FMSG_MCP_UPLOAD_BYTES\)"):
            budget.take(CAT, 1)

    def test_a_quarter_of_the_total_is_kept_for_callers_who_hold_little(self) -> None:
        budget = uploads()
        budget.take(ANN, 6 * MIB)
        budget.take(BOB, 6 * MIB)
        for holder in (ANN, BOB):
            with pytest.raises(OverBudget, match="all callers"):
                budget.take(holder, 1)
        budget.take(CAT, 1 * MIB)
        budget.take(CAT, 1 * MIB)
        with pytest.raises(OverBudget, match="all callers"):
            budget.take(CAT, 1)

    def test_what_can_never_fit_is_refused_without_a_time_to_come_back(self) -> None:
        with pytest.raises(OverBudget, match=r"9 MiB .* 8 MiB .*Ask for less") as failed:
            uploads().take(ANN, 8 * MIB + 1)
        assert failed.value.retry_after_s is None

    async def test_who_waits_for_room_gets_it_once_it_is_there(self) -> None:
        budget = uploads()
        budget.take(ANN, 8 * MIB)
        waiting = asyncio.ensure_future(budget.take_soon(ANN, 2 * MIB))
        await asyncio.sleep(0)
        budget.give_back(ANN, 1 * MIB)
        await asyncio.sleep(0)
        assert not waiting.done()
        budget.give_back(ANN, 1 * MIB)
        await waiting
        assert budget.total == 8 * MIB

    async def test_who_waits_for_its_own_room_does_not_hold_up_others(self) -> None:
        budget = uploads()
        budget.take(ANN, 8 * MIB)
        waiting = asyncio.ensure_future(budget.take_soon(ANN, 8 * MIB))
        await asyncio.sleep(0)
        await budget.take_soon(BOB, 4 * MIB)
        budget.give_back(ANN, 8 * MIB)
        await waiting
        assert budget.total == 12 * MIB

    async def test_who_waits_in_vain_is_refused_and_leaves_nothing_behind(self) -> None:
        budget = uploads()
        budget.take(ANN, 8 * MIB)
        with pytest.raises(OverBudget, match="again in 5 s"):
            await budget.take_soon(ANN, 1, within_s=0.001)
        budget.give_back(ANN, 8 * MIB)
        assert budget.total == 0

    async def test_what_can_never_fit_is_not_waited_for(self) -> None:
        with pytest.raises(OverBudget):
            await within(uploads().take_soon(ANN, 9 * MIB), 1.0)

    @pytest.mark.parametrize("granted", [False, True])
    async def test_a_waiter_that_is_cancelled_leaves_nothing_behind(self, granted: bool) -> None:
        budget = uploads()
        budget.take(ANN, 8 * MIB)
        waiting = asyncio.ensure_future(budget.take_soon(ANN, 8 * MIB))
        await asyncio.sleep(0)
        if granted:
            budget.give_back(ANN, 8 * MIB)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        if not granted:
            budget.give_back(ANN, 8 * MIB)
        assert budget.total == 0

    async def test_room_that_comes_while_a_waiter_is_being_cancelled_goes_to_the_next(self) -> None:
        budget = uploads()
        budget.take(ANN, 8 * MIB)
        leaving, staying = (asyncio.ensure_future(budget.take_soon(ANN, 8 * MIB)) for _ in range(2))
        await asyncio.sleep(0)
        leaving.cancel()
        budget.give_back(ANN, 8 * MIB)
        with pytest.raises(asyncio.CancelledError):
            await leaving
        await within(staying, 5)
        budget.give_back(ANN, 8 * MIB)
        assert budget.total == 0


class TestByteShare:
    def test_little_costs_nothing(self) -> None:
        budget = uploads()
        share = ByteShare(budget, ANN)
        share.grow_to(FREE_BYTES)
        assert budget.total == 0

    def test_it_grows_as_bytes_arrive_and_gives_all_of_them_back(self) -> None:
        budget = uploads()
        share = ByteShare(budget, ANN)
        for size in (MIB, 3 * MIB, 2 * MIB):
            share.grow_to(size)
        assert budget.total == share.held == 3 * MIB
        share.release()
        share.release()
        assert budget.total == share.held == 0


class TestAnswerShare:
    async def test_content_is_weighed_and_the_rest_given_back(self) -> None:
        budget = ByteBudget(answer_limits(Budgets()))
        answer = AnswerShare(budget, ANN)
        await answer.reserve(FREE_BYTES)
        assert budget.total == 0
        await answer.reserve(10 * MIB - FREE_BYTES)
        assert budget.total == 10 * MIB * CONTENT_WEIGHT
        answer.return_unused(9 * MIB)
        assert budget.total == MIB * CONTENT_WEIGHT
        answer.release()
        assert budget.total == 0

    async def test_content_over_the_budget_is_refused_by_name(self) -> None:
        budget = ByteBudget(answer_limits(Budgets()))
        with pytest.raises(OverBudget, match=r"FMSG_MCP_ANSWER_BYTES_PER_CALLER\)\. Ask for less"):
            await AnswerShare(budget, ANN).reserve(33 * MIB)
        assert budget.total == 0


class TestPerCallerLimiter:
    async def test_a_caller_over_its_share_waits_and_the_others_do_not(self) -> None:
        limiter = PerCallerLimiter(2)
        order: list[str] = []
        await limiter.acquire(ANN)
        await limiter.acquire(ANN)

        async def third(name: str) -> None:
            await limiter.acquire(ANN)
            order.append(name)

        waiting = [asyncio.ensure_future(third(name)) for name in ("first", "second")]
        await within(limiter.acquire(BOB), 1.0)
        limiter.release(BOB)
        assert order == []
        limiter.release(ANN)
        await waiting[0]
        assert order == ["first"]
        limiter.release(ANN)
        await waiting[1]
        limiter.release(ANN)
        limiter.release(ANN)
        assert len(limiter) == 0

    async def test_a_waiter_that_stops_waiting_leaves_nothing_behind(self) -> None:
        limiter = PerCallerLimiter(1)
        await limiter.acquire(ANN)
        waiting = asyncio.ensure_future(limiter.acquire(ANN))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        limiter.release(ANN)
        assert len(limiter) == 0


def test_a_budget_that_nobody_can_set_names_no_variable() -> None:
    budget = ByteBudget(form_limits())
    caller = CallerKey("a" * 32)
    budget.take(caller, form_limits().per_caller_bytes)
    with pytest.raises(OverBudget) as over:
        budget.take(caller, 1)
    assert "FMSG_" not in str(over.value)
    assert "forms" in str(over.value)
