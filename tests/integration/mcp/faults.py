"""What comes of each fault of a server, transport by transport."""

from __future__ import annotations

from typing import TypeAlias

from caxton_host.errors import FailureKind, Sent

__all__ = ["HTTP", "HTTP_SLOW", "SSE", "SSE_SLOW", "STDIO_BAD", "STDIO_BROKEN", "Fault"]

#: A mode of the server, and how the first call of `act` ends.
Fault: TypeAlias = tuple[str, FailureKind, Sent]

#: The connection is of no use after it.
STDIO_BROKEN: list[Fault] = [
    ("dies", "transport", "unknown"),
    ("killed", "transport", "unknown"),
    ("closes_input", "transport", "unknown"),
    ("garbage", "protocol", "unknown"),
    ("not_utf8", "protocol", "unknown"),
    ("batch", "protocol", "unknown"),
    ("other_json_rpc", "protocol", "unknown"),
    ("too_deep", "protocol", "unknown"),
    ("large_no_id", "too_large", "unknown"),
    ("endless", "too_large", "unknown"),
]

STDIO_BAD: list[Fault] = [
    ("deep_answer", "protocol", "yes"),
    ("not_a_number", "protocol", "yes"),
    ("number_result", "protocol", "yes"),
    ("refuses", "protocol", "yes"),
    ("no_content", "invalid_result", "yes"),
    ("large", "too_large", "yes"),
    ("large_id_last", "too_large", "yes"),
]

HTTP: list[Fault] = [
    # attack 31
    ("large", "too_large", "yes"),
    ("unsized", "too_large", "yes"),
    ("gzip", "protocol", "yes"),
    ("gzip_events", "protocol", "yes"),
    ("long_line", "too_large", "yes"),
    ("long_event", "too_large", "yes"),
    ("long_head", "protocol", "unknown"),
    # attack 32, as far as it shows before the deadline
    ("closes", "transport", "unknown"),
    ("breaks", "transport", "unknown"),
    ("breaks_events", "transport", "unknown"),
    ("resets", "transport", "unknown"),
    ("ends_events", "transport", "unknown"),
    ("polls_in_vain", "transport", "unknown"),
    # attack 33
    ("garbage", "protocol", "yes"),
    ("garbage_event", "protocol", "yes"),
    ("not_utf8", "protocol", "yes"),
    ("not_http", "protocol", "unknown"),
    ("batch", "protocol", "yes"),
    ("other_json_rpc", "protocol", "yes"),
    ("deep", "protocol", "yes"),
    ("deep_answer", "protocol", "yes"),
    ("not_a_number", "protocol", "yes"),
    ("two_ids", "protocol", "yes"),
    ("wrong_id", "protocol", "yes"),
    ("wrong_id_event", "transport", "unknown"),
    ("null_id", "protocol", "yes"),
    ("true_id", "protocol", "yes"),
    ("number_result", "protocol", "yes"),
    ("no_content", "invalid_result", "yes"),
    ("empty", "protocol", "yes"),
    ("html", "protocol", "yes"),
    # attack 35
    ("redirects 302", "protocol", "yes"),
    ("redirects 307", "protocol", "yes"),
    # attack 39
    ("refuses 200", "protocol", "yes"),
    ("refuses 400", "protocol", "yes"),
    ("refuses 500", "protocol", "yes"),
    ("mismatch", "protocol", "yes"),
    ("status 202", "protocol", "yes"),
    ("status 400", "protocol", "yes"),
    ("status 401", "transport", "no"),
    ("status 403", "transport", "no"),
    ("status 418", "protocol", "yes"),
    ("status 429", "transport", "no"),
    ("status 500", "protocol", "unknown"),
    ("status 503", "protocol", "unknown"),
    ("status 599", "protocol", "unknown"),
]

HTTP_SLOW = ["never", "half", "drips", "drips_head", "drips_events", "late"]

SSE: list[Fault] = [
    # attack 31
    ("large", "too_large", "yes"),
    ("long_line", "transport", "unknown"),
    ("long_event", "too_large", "unknown"),
    ("long_head", "protocol", "unknown"),
    # attack 32
    ("closes", "transport", "unknown"),
    ("breaks_events", "transport", "unknown"),
    ("resets", "transport", "unknown"),
    ("ends_events", "transport", "unknown"),
    ("polls", "transport", "unknown"),
    ("polls_in_vain", "transport", "unknown"),
    # attack 33: on a stream, what is no message spoils what waits
    ("garbage", "protocol", "unknown"),
    ("garbage_event", "protocol", "unknown"),
    ("not_utf8", "protocol", "unknown"),
    ("not_http", "protocol", "unknown"),
    ("batch", "protocol", "unknown"),
    ("other_json_rpc", "protocol", "unknown"),
    ("deep", "protocol", "unknown"),
    ("deep_answer", "protocol", "yes"),
    ("not_a_number", "protocol", "yes"),
    ("two_ids", "protocol", "yes"),
    ("wrong_id_event", "transport", "unknown"),
    ("number_result", "protocol", "yes"),
    ("no_content", "invalid_result", "yes"),
    # attack 35
    ("redirects 302", "protocol", "yes"),
    ("redirects 307", "protocol", "yes"),
    # attack 39
    ("refuses 200", "protocol", "yes"),
    ("refuses 400", "protocol", "yes"),
    ("refuses 500", "protocol", "unknown"),
    ("mismatch", "protocol", "yes"),
    ("status 400", "protocol", "yes"),
    ("status 401", "transport", "no"),
    ("status 403", "transport", "no"),
    ("status 404", "transport", "no"),
    ("status 418", "protocol", "yes"),
    ("status 429", "transport", "no"),
    ("status 500", "protocol", "unknown"),
    ("status 503", "protocol", "unknown"),
    ("status 599", "protocol", "unknown"),
]

#: Who waits for these waits until the deadline.
SSE_SLOW = [
    # What comes back to the POST is read within bounds, and is no answer.
    *("unsized", "gzip", "gzip_events", "breaks", "half", "html", "status 202"),
    *("never", "drips", "drips_head", "drips_events", "late", "empty"),
    # An answer to another request is dropped.
    *("wrong_id", "null_id", "true_id"),
]
