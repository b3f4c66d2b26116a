"""What of a caller's baggage is passed on."""

from __future__ import annotations

import pytest

from caxton_host.core.text.redact import Redactor
from caxton_host.core.text.trace_context import trace_of

SECRET = "hunter2-hunter2"  # noqa: S105 -- it is none


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("tenant=acme", "tenant=acme"),
        ("user=ann,tenant = acme;secret=1 , plan=%C3%BC", "tenant=acme,plan=%C3%BC"),
        ("tenant=first,tenant=second", "tenant=first"),
        ("tenant=a b,plan=x", "plan=x"),
        ("tenant=a\r\nx: y", None),
        (f"tenant={SECRET},plan=x", "plan=x"),  # law 8
        ("tenant=%68unter2-hunter2", None),  # law 8
        (f"tenant={'x' * 257}", None),
        ("tenant=x," + "y" * 8200, None),  # law 9
        ("", None),
        (7, None),
        (None, None),
    ],
)
def test_only_sound_members_that_are_named_are_kept(
    said: object, kept: str | None
) -> None:
    mask = Redactor([SECRET]).text
    found = trace_of({"baggage": said}, ["tenant", "plan"], mask)
    assert found.get("baggage") == kept
    assert trace_of({"baggage": said}) == {}
