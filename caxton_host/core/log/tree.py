"""
The Merkle tree of RFC 6962 over the hashes of all events, in the order of the log.

    leaf = SHA-256(0x00 || event hash)
    node = SHA-256(0x01 || left || right)

A tree of n leaves is represented by its frontier: the roots of its perfect subtrees,
one for each bit of n, the largest first. The frontier suffices to extend the tree, and
only it is stored (https://www.rfc-editor.org/rfc/rfc6962#section-2.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from hashlib import sha256

#: The root of the tree without leaves.
EMPTY = sha256().digest()

_HASH = 32


def node(left: bytes, right: bytes) -> bytes:
    """Return the hash of a node from those of its children."""
    return sha256(b"\x01" + left + right).digest()


class Frontier:
    """
    A tree that is extended at its right end.

    Attributes:
        size: The number of leaves.

        peaks: The roots of its perfect subtrees, the largest first.
    """

    __slots__ = ("peaks", "size")

    def __init__(self, size: int = 0, peaks: Iterable[bytes] = ()) -> None:
        self.size = size
        self.peaks = list(peaks)

    @classmethod
    def parse(cls, size: int, data: bytes) -> Frontier:
        """
        Parse the bytes of `to_bytes`.

        Raises:
            ValueError: They are not the frontier of a tree of that size.
        """
        if size < 0 or len(data) != _HASH * size.bit_count():
            raise ValueError(f"no frontier of a tree of {size} leaves")
        return cls(size, _parts(data))

    def to_bytes(self) -> bytes:
        """Return the concatenated peaks."""
        return b"".join(self.peaks)

    def copy(self) -> Frontier:
        """Return an independent copy."""
        return Frontier(self.size, self.peaks)

    def extend(self, hashes: Iterable[bytes]) -> None:
        """Add a leaf for each of *hashes*."""
        peaks, size = self.peaks, self.size
        for one in hashes:
            peak, count = sha256(b"\x00" + one).digest(), size
            # Inline, since this runs for each of millions of events.
            while count & 1:
                peak = sha256(b"\x01" + peaks.pop() + peak).digest()
                count >>= 1
            peaks.append(peak)
            size += 1
        self.size = size

    def root(self) -> bytes:
        """
        Return the hash of the whole tree.

        >>> Frontier().root() == EMPTY
        True
        """
        if not self.peaks:
            return EMPTY
        *others, root = self.peaks
        for peak in reversed(others):
            root = node(peak, root)
        return root


# -- proofs --------------------------------------------------------------------


def prove(hashes: Iterable[bytes], indices: Iterable[int]) -> list[list[bytes]]:
    """
    Return the inclusion proof of each of the leaves *indices*, in their order.

    Args:
        hashes: The hashes of all events, in order. Read once, and not kept.

        indices: From 0; each is smaller than the number of *hashes*.
    """
    return _prove((sha256(b"\x00" + one).digest() for one in hashes), [*indices])


#: The leaves of a part of a tree: as many as are cheap to read again for a proof.
PART = 1024


def part_root(hashes: Iterable[bytes]) -> bytes:
    """Return the root over `PART` events, or over the last ones."""
    part = Frontier()
    part.extend(hashes)
    return part.root()


def prove_in_parts(
    roots: Iterable[bytes], part: Iterable[bytes], index: int
) -> list[bytes]:
    """
    Return the inclusion proof of leaf *index*.

    Args:
        roots: Of all parts of the tree, in order.

        part: The hashes of the events in the part of that leaf.

        index: From 0.
    """
    (inner,), (outer,) = prove(part, [index % PART]), _prove(roots, [index // PART])
    return inner + outer


def _prove(nodes: Iterable[bytes], wanted: Sequence[int]) -> list[list[bytes]]:
    proofs: dict[int, list[bytes]] = {index: [] for index in wanted}
    # Each peak: number of leaves, hash, and the proofs of the wanted leaves below it.
    peaks: list[tuple[int, bytes, list[list[bytes]]]] = []
    for index, one in enumerate(nodes):
        found = proofs.get(index)
        count, peak, below = 1, one, [] if found is None else [found]
        while peaks and peaks[-1][0] == count:
            count, peak, below = _joined(peaks.pop(), (count, peak, below))
        peaks.append((count, peak, below))
    while len(peaks) > 1:
        right = peaks.pop()
        peaks.append(_joined(peaks.pop(), right))
    return [proofs[index] for index in wanted]


def _joined(
    left: tuple[int, bytes, list[list[bytes]]],
    right: tuple[int, bytes, list[list[bytes]]],
) -> tuple[int, bytes, list[list[bytes]]]:
    for proof in left[2]:
        proof.append(right[1])
    for proof in right[2]:
        proof.append(left[1])
    return left[0] + right[0], node(left[1], right[1]), left[2] + right[2]


def inclusion(
    event_hash: bytes, index: int, size: int, proof: Sequence[bytes]
) -> bytes | None:
    """
    Return the root that *proof* leads to, or ``None`` if it is malformed.

    The event is leaf *index* of a tree of *size* leaves.
    """
    if not 0 <= index < size:
        return None
    first, last = index, size - 1
    root = sha256(b"\x00" + event_hash).digest()
    for part in proof:
        if last == 0:
            return None
        if first & 1 or first == last:
            root = node(part, root)
            while not first & 1 and first:
                first >>= 1
                last >>= 1
        else:
            root = node(root, part)
        first >>= 1
        last >>= 1
    return root if last == 0 else None


def prove_growth(
    roots: Sequence[bytes], part: Callable[[int], Sequence[bytes]], old: int, new: int
) -> list[bytes]:
    """
    Return the consistency proof of a tree with that of its first *old* leaves.

    Args:
        roots: Of all parts of the tree of *new* leaves, in order.

        part: Returns the hashes of the events in a part, by its number.

        old: At least 1, and at most *new*.

        new: The number of leaves.
    """

    def root(start: int, end: int) -> bytes:
        if start % PART == 0 and (end % PART == 0 or end == new):
            return _root(roots[start // PART : -(-end // PART)])
        inside = part(start // PART)[start % PART : start % PART + end - start]
        return part_root(inside)

    def grown(count: int, start: int, end: int, *, whole: bool) -> list[bytes]:
        # SUBPROOF of RFC 6962, section 2.1.2, over the leaves from start to end.
        if count == end - start:
            return [] if whole else [root(start, end)]
        half = start + (1 << (end - start - 1).bit_length() - 1)
        if count <= half - start:
            return [*grown(count, start, half, whole=whole), root(half, end)]
        rest = grown(count - (half - start), half, end, whole=False)
        return [*rest, root(start, half)]

    return grown(old, 0, new, whole=True)


def _root(nodes: Sequence[bytes]) -> bytes:
    """Return the root over nodes of the same height; the last may be lower."""
    if len(nodes) == 1:
        return nodes[0]
    half = 1 << (len(nodes) - 1).bit_length() - 1
    return node(_root(nodes[:half]), _root(nodes[half:]))


def is_consistent(
    old: int, old_root: bytes, new: int, new_root: bytes, proof: Sequence[bytes]
) -> bool:
    """Return whether the tree of *new* leaves begins with the one of *old* leaves."""
    if not 0 < old <= new:
        return False
    if old == new:
        return not proof and old_root == new_root
    known = [old_root] if old.bit_count() == 1 else []
    path = [*known, *proof]
    if not path:
        return False
    first, last = old - 1, new - 1
    while first & 1:
        first >>= 1
        last >>= 1
    before = after = path[0]
    for part in path[1:]:
        if last == 0:
            return False
        if first & 1 or first == last:
            before, after = node(part, before), node(part, after)
            while not first & 1 and first:
                first >>= 1
                last >>= 1
        else:
            after = node(after, part)
        first >>= 1
        last >>= 1
    return last == 0 and before == old_root and after == new_root


def _parts(data: bytes) -> list[bytes]:
    return [data[at : at + _HASH] for at in range(0, len(data), _HASH)]
