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
        assert apart.ask()() == here.root()
        for count in counts:
            hashes = [sha256(b"%d" % n).digest() for n in range(count)]
            here.extend(hashes)
            apart.extend(hashes)
            assert (apart.size, apart.ask()()) == (here.size, here.root())


def test_what_is_no_bytes_adds_nothing() -> None:
    with Apart() as apart:
        with pytest.raises(TypeError):
            apart.extend([b"x", "x"])
        assert (apart.size, apart.ask()()) == (0, Frontier().root())


def test_a_process_that_is_gone_is_told() -> None:  # law 9
    with Apart() as apart:
        apart.extend([bytes(32)] * 2000)
        apart.close()
        with pytest.raises(StoreError, match="gone"):
            apart.ask()()
