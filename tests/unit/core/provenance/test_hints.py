"""A value that stands somewhere has left a hint there."""

from __future__ import annotations

import pytest

from caxton_host.core.calls import JSON
from caxton_host.core.provenance import places_in
from caxton_host.core.provenance.hints import hinted, hints


@pytest.mark.parametrize(
    ("value", "data"),
    [
        ("it's", {"note": 'say "it\'s"'}),
        ("\\ \n é \ud800", ["\\ \n é \ud800"]),
        ("", [""]),
        ("2022-03-04", "on March 4th"),
        ("2022-03-04T10:00", "2022-03-04 at 10 am"),
        (1, [1.0]),
        (1250.5, "$1,250.50"),
        (1e22, [10**22]),
        (None, [None]),
        (True, {"a": True}),
    ],
)
def test_a_place_of_a_value_has_one_of_its_hints(value: JSON, data: JSON) -> None:
    assert any(places_in(value, data))
    assert any(hint in hinted(data) for hint in hints(value))


def test_most_of_what_does_not_have_a_value_has_no_hint_of_it() -> None:
    said: list[JSON] = ["bobby", {"to": "ada"}, [1, 2.5, None], "12500"]

    for value in ("bob@x.org", 3, 1.25, True, "it's"):
        assert not [one for one in said for hint in hints(value) if hint in hinted(one)]
