"""The page says what the tests prove, and no row of it is without one."""

from __future__ import annotations

import pytest

from tests.contract.conformance_doc import PAGE, exists, page, proofs
from tests.contract.requirement import Requirement
from tests.contract.requirements import EVERY, proves


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.contract.conformance_doc"


@pytest.mark.parametrize("item", EVERY.values(), ids=list(EVERY))
def test_every_row_has_a_test(item: Requirement) -> None:
    page()
    found = proofs(item)
    assert found, f"nothing proves: {item.text}"
    for node in found:
        assert exists(node), f"no such test: {node}"


def test_keys_and_words_are_unique() -> None:
    assert len({item.text for item in EVERY.values()}) == len(EVERY)


def test_a_proof_of_nothing_is_refused() -> None:
    with pytest.raises(LookupError, match="no such requirement"):
        proves("tools.no_such_thing")


def test_a_test_that_is_not_there_is_noticed() -> None:
    assert not exists("tests/contract/test_conformance_doc.py::test_that_is_not_there")
    assert not exists("tests/contract/no_such_file.py::test_x")
    assert exists("tests/contract/test_conformance_doc.py::test_the_page_is_current")
