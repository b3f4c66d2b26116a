from collections.abc import Callable
from typing import Any

def packb(o: object, *, use_bin_type: bool = ...) -> bytes: ...
def unpackb(
    packed: bytes,
    *,
    object_pairs_hook: Callable[[list[tuple[Any, Any]]], object] | None = ...,
    ext_hook: Callable[[int, bytes], object] = ...,
    timestamp: int = ...,
    max_bin_len: int = ...,
    strict_map_key: bool = ...,
) -> Any: ...
