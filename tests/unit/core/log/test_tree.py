"""The tree is that of RFC 6962, however it is built, and its proofs prove."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caxton_host.core.log.tree import (
    EMPTY,
    PART,
    Frontier,
    inclusion,
    is_consistent,
    node,
    part_root,
    prove,
    prove_growth,
    prove_in_parts,
)
from tests.unit.evidence.logs import consistency

#: The leaves and roots of the test data of Certificate Transparency itself
#: (certificate-transparency, merkletree test vectors).
LEAVES = [
    bytes.fromhex(text)
    for text in (
        "",
        "00",
        "10",
        "2021",
        "3031",
        "40414243",
        "5051525354555657",
        "606162636465666768696a6b6c6d6e6f",
    )
]
ROOTS = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def naive(leaves: list[bytes]) -> bytes:
    """Return the root as the RFC defines it."""
    if not leaves:
        return sha256().digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return node(naive(leaves[:split]), naive(leaves[split:]))


def naive_path(index: int, leaves: list[bytes]) -> list[bytes]:
    if len(leaves) == 1:
        return []
    split = 1 << (len(leaves) - 1).bit_length() - 1
    if index < split:
        return [*naive_path(index, leaves[:split]), naive(leaves[split:])]
    return [*naive_path(index - split, leaves[split:]), naive(leaves[:split])]


def naive_subproof(old: int, leaves: list[bytes], *, whole: bool) -> list[bytes]:
    if old == len(leaves):
        return [] if whole else [naive(leaves)]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    if old <= split:
        left = naive_subproof(old, leaves[:split], whole=whole)
        return [*left, naive(leaves[split:])]
    right = naive_subproof(old - split, leaves[split:], whole=False)
    return [*right, naive(leaves[:split])]


def many(count: int) -> list[bytes]:
    return [sha256(b"%d" % number).digest() for number in range(count)]


def test_the_vectors_of_certificate_transparency() -> None:
    tree = Frontier()
    assert tree.root() == EMPTY
    for count, (leaf, root) in enumerate(zip(LEAVES, ROOTS, strict=True), 1):
        tree.extend([leaf])
        assert (tree.size, tree.root().hex()) == (count, root)
        assert naive(LEAVES[:count]).hex() == root


@pytest.mark.no_cover
@given(st.lists(st.integers(0, 1100), max_size=4))
def test_a_tree_is_the_same_however_it_grows(steps: list[int]) -> None:
    hashes = many(sum(steps))
    tree, slow, at = Frontier(), Frontier(), 0
    for step in steps:
        tree.extend(hashes[at : at + step])
        at += step
    for one in hashes:
        slow.extend([one])
    assert tree.root() == slow.root() == naive(hashes)
    assert tree.peaks == slow.peaks
    again = Frontier.parse(tree.size, tree.to_bytes())
    copy = again.copy()
    copy.extend([b"x"])
    assert (again.size, again.root()) == (tree.size, tree.root())


@pytest.mark.parametrize(("size", "data"), [(1, b""), (3, bytes(32)), (-1, b"")])
def test_a_frontier_of_another_size_is_refused(size: int, data: bytes) -> None:
    with pytest.raises(ValueError, match="no frontier"):
        Frontier.parse(size, data)


@given(st.integers(1, 70), st.data())
def test_what_is_in_a_tree_can_be_proven(size: int, data: st.DataObject) -> None:
    hashes = many(size)
    wanted = data.draw(st.lists(st.integers(0, size - 1), max_size=4))
    root = naive(hashes)
    for index, proof in zip(wanted, prove(hashes, wanted), strict=True):
        assert proof == naive_path(index, hashes)
        assert inclusion(hashes[index], index, size, proof) == root
        assert inclusion(hashes[index] + b"x", index, size, proof) != root
        assert inclusion(hashes[index], index, size, [*proof, root]) != root
        if proof:
            assert inclusion(hashes[index], index, size, proof[:-1]) is None


@given(st.integers(1, 40), st.integers(0, 45), st.integers(0, 45))
def test_a_leaf_is_proven_in_its_own_place_only(
    size: int, index: int, other: int
) -> None:
    hashes = many(size)
    index %= size
    (proof,) = prove(hashes, [index])
    proven = inclusion(hashes[index], other, size, proof) == naive(hashes)
    assert proven == (other == index)


@pytest.mark.parametrize(("old", "new"), [(1, 2), (3, 7), (4, 8), (6, 9)])
def test_proof_that_goes_on_behind_its_end_proves_nothing(old: int, new: int) -> None:
    hashes = many(new)
    before, after = naive(hashes[:old]), naive(hashes)
    proof = consistency(hashes, old)

    assert is_consistent(old, before, new, after, proof)
    assert not is_consistent(old, before, new, after, [*proof, EMPTY])


@given(st.integers(1, 70), st.data())
def test_that_a_log_only_grew_can_be_proven(new: int, data: st.DataObject) -> None:
    hashes = many(new)
    old = data.draw(st.integers(1, new))
    proof = consistency(hashes, old)
    roots = naive(hashes[:old]), naive(hashes)
    assert proof == naive_subproof(old, hashes, whole=True)
    assert is_consistent(old, roots[0], new, roots[1], proof)
    assert not is_consistent(old, EMPTY, new, roots[1], proof)
    assert not is_consistent(old, roots[0], new, EMPTY, proof)
    assert not is_consistent(old, roots[0], new, roots[1], [*proof, EMPTY])
    assert not is_consistent(old + new, roots[0], new, roots[1], proof)
    if proof:
        assert not is_consistent(old, roots[0], new, roots[1], proof[:-1])
        changed = [*proof[:-1], EMPTY]
        assert not is_consistent(old, roots[0], new, roots[1], changed)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (1, PART + 1),
        (PART - 1, PART + 1),
        (PART, 2 * PART),
        (PART + 500, PART + 600),
        (700, 3 * PART + 9),
        (2 * PART, 3 * PART + 9),
        (2 * PART + 1, 3 * PART),
    ],
)
def test_growth_is_proven_from_the_parts_at_its_ends(old: int, new: int) -> None:
    hashes, read = many(new), set[int]()
    roots = [part_root(hashes[at : at + PART]) for at in range(0, new, PART)]

    def part(number: int) -> list[bytes]:
        read.add(number)
        return hashes[PART * number : PART * (number + 1)]

    proof = prove_growth(roots, part, old, new)

    assert proof == naive_subproof(old, hashes, whole=True)
    assert read <= {old // PART, new // PART}


@given(st.integers(2, 20), st.integers(0, 19))
def test_a_log_that_was_rewritten_proves_nothing(new: int, at: int) -> None:
    hashes = many(new)
    changed = [*hashes]
    changed[at % new] = EMPTY
    for old in range(1, new):
        proof = consistency(changed, old)
        same = at % new >= old
        assert same == is_consistent(
            old, naive(hashes[:old]), new, naive(changed), proof
        )


def test_a_proof_of_nothing_is_none() -> None:
    assert not is_consistent(3, EMPTY, 5, EMPTY, [])
    assert not is_consistent(0, EMPTY, 5, EMPTY, [])
    assert inclusion(EMPTY, 0, 0, []) is None
    assert inclusion(EMPTY, 0, 1, [EMPTY]) is None


@pytest.mark.parametrize("size", [1, 1023, 1024, 1025, 2048, 3000, 5 * 1024 + 1])
def test_proof_from_the_roots_of_parts_is_the_proof(size: int) -> None:
    hashes = [sha256(str(number).encode()).digest() for number in range(size)]
    parts = [hashes[at : at + PART] for at in range(0, size, PART)]
    roots = [*map(part_root, parts)]
    indices = {0, size // 2, size - 1}

    found = {n: prove_in_parts(roots, parts[n // PART], n) for n in indices}

    assert found == {n: prove(hashes, [n])[0] for n in indices}
