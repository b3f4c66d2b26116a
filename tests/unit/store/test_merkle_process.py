"""A tree in a process of its own is the same tree."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caxton_host.core.log.tree import Frontier
from caxton_host.errors import StoreError
from caxton_host.store.merkle_process import Apart


@pytest.fixture(autouse=True, scope="module")
def soon() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("caxton_host.store.merkle_process._FIRST", 2000)
        yield


@settings(max_examples=15, deadline=None)
@given(st.lists(st.integers(0, 2500), max_size=4))
def test_its_roots_are_those_of_a_tree_in_this_process(counts: list[int]) -> None:
    here = Frontier()
    with Apart() as apart:
        assert apart.ask()().root() == here.root()
        for count in counts:
            hashes = [sha256(b"%d" % n).digest() for n in range(count)]
            here.extend(hashes)
            apart.extend(hashes)
            assert (apart.size, apart.ask()().root()) == (here.size, here.root())


@pytest.mark.parametrize("count", [10, 3000])
def test_a_tree_is_continued(count: int) -> None:
    start = Frontier()
    start.extend(sha256(b"%d" % n).digest() for n in range(2500))
    with Apart(start) as apart:
        hashes = [bytes(32)] * count
        apart.extend(hashes)
        start.extend(hashes)
        found = apart.ask()()
    assert (found.size, found.peaks) == (start.size, start.peaks)


def test_what_is_no_bytes_adds_nothing() -> None:
    with Apart() as apart:
        with pytest.raises(TypeError):
            apart.extend([b"x", "x"])
        assert (apart.size, apart.ask()().root()) == (0, Frontier().root())


def test_a_process_that_is_gone_is_told() -> None:  # law 9
    with Apart() as apart:
        apart.extend([bytes(32)] * 2000)
        apart.close()
        with pytest.raises(StoreError, match="gone"):
            apart.ask()()
