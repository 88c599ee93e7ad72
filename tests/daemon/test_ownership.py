"""Who owns whom: agreement, balance, and as few moves as possible."""

from __future__ import annotations

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from daemon.ownership import HEADROOM, assign, capacity, score
from ledger.values import CallerKey

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
memberships = st.sets(names, min_size=1, max_size=12)
populations = st.sets(names.map(CallerKey), max_size=150)


def callers(count: int, seed: int = 0) -> list[CallerKey]:
    rng = random.Random(seed)
    return [CallerKey(f"{rng.getrandbits(128):032x}") for _ in range(count)]


def members(count: int) -> list[str]:
    return [f"daemon-{number}" for number in range(count)]


@given(memberships, populations)
def test_everybody_has_an_owner_and_nobody_carries_more_than_its_capacity(
    fleet: set[str], population: set[CallerKey]
) -> None:
    owners = assign(fleet, population)
    assert set(owners) == population
    assert set(owners.values()) <= fleet
    if population:
        assert max(Counter(owners.values()).values()) <= capacity(len(population), len(fleet))


@given(memberships, populations, st.randoms(use_true_random=False))
def test_all_daemons_agree_whatever_order_they_see_things_in(
    fleet: set[str], population: set[CallerKey], rng: random.Random
) -> None:
    expected = assign(fleet, population)
    seen_members, seen_callers = sorted(fleet), sorted(population)
    rng.shuffle(seen_members)
    rng.shuffle(seen_callers)
    remembered: dict[str, str] = {}
    assert assign(seen_members, seen_callers, first=remembered) == expected
    assert assign(seen_members, seen_callers, first=remembered) == expected, "remembered choices change nothing"


@given(memberships, populations)
def test_the_result_is_stable(fleet: set[str], population: set[CallerKey]) -> None:
    """No caller prefers a daemon that has room or holds a caller less suited to it."""
    owners = assign(fleet, population)
    limit = capacity(len(population), len(fleet))
    held: dict[str, list[int]] = {member: [] for member in fleet}
    for caller, member in owners.items():
        held[member].append(score(member, caller))
    for caller, member in owners.items():
        for other in fleet:
            if (score(other, caller), other) > (score(member, caller), member):
                assert len(held[other]) == limit
                assert min(held[other]) >= score(other, caller)


@given(st.integers(0, 10_000), st.integers(1, 50))
def test_the_capacity_is_headroom_above_the_share_and_has_room_for_all(count: int, fleet: int) -> None:
    share = count / fleet
    assert capacity(count, fleet) * fleet >= count
    assert capacity(count, fleet) <= max(HEADROOM * share, share + 1)


@given(st.integers(2, 8), st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_with_many_callers_a_leaver_moves_only_its_own_and_a_joiner_only_what_it_gets(fleet: int, seed: int) -> None:
    population = callers(400 * fleet, seed)
    before = assign(members(fleet), population)
    after = assign(members(fleet + 1), population)
    if max(Counter(before.values()).values()) < capacity(len(population), fleet) and max(
        Counter(after.values()).values()
    ) < capacity(len(population), fleet + 1):
        moved = {caller for caller in population if before[caller] != after[caller]}
        assert moved == {caller for caller in population if after[caller] == f"daemon-{fleet}"}


@given(st.integers(2, 10), st.integers(1, 40), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_with_few_callers_a_change_moves_little_more_than_it_must(fleet: int, each: int, seed: int) -> None:
    """What must move is the joiner's share, and what the smaller capacity pushes off the others."""
    population = callers(each * fleet, seed)
    before = assign(members(fleet), population)
    after = assign(members(fleet + 1), population)
    moved = sum(1 for caller in population if before[caller] != after[caller])
    limit = capacity(len(population), fleet + 1)
    must = max(
        sum(1 for owner in after.values() if owner == f"daemon-{fleet}"),
        sum(max(0, load - limit) for load in Counter(before.values()).values()),
    )
    assert moved <= must + max(4, len(population) // 4)


def test_one_caller_more_moves_hardly_anybody() -> None:
    population = callers(61)
    moves = []
    for count in range(30, 60):
        before = assign(members(4), population[:count])
        after = assign(members(4), population[: count + 1])
        moves.append(sum(1 for caller in before if before[caller] != after[caller]))
    assert sum(moves) / len(moves) <= 2.0


def test_a_thousand_callers_on_ten_daemons_are_within_the_promise() -> None:
    for seed in range(20):
        population = callers(1000, seed)
        loads = Counter(assign(members(10), population).values())
        assert max(loads.values()) <= 1.15 * 100


def test_the_owner_is_the_first_choice_while_there_is_room() -> None:
    population = callers(2000)
    owners = assign(members(3), population)
    for caller, owner in owners.items():
        assert owner == max(members(3), key=lambda member: score(member, caller))


def test_nobody_to_own_anything() -> None:
    assert assign([], callers(5)) == {}
    assert assign(["only"], callers(5)) == dict.fromkeys(callers(5), "only")


def test_the_hash_is_the_same_in_every_process() -> None:
    """A change of the hash moves every caller during a rolling upgrade: it must not happen by accident."""
    assert score("daemon-1", CallerKey("00ff00ff00ff00ff00ff00ff00ff00ff")) == 5840460038135006674
