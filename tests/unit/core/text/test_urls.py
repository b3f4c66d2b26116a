"""The origin of a URL, which bounds where credentials are sent."""

from __future__ import annotations

import pytest

from caxton_host.core.text.urls import origin


@pytest.mark.parametrize(
    ("url", "same"),
    [
        ("https://host/a", True),
        ("https://HOST:443/b?c", True),
        ("https://host:8443/", False),
        ("http://host/", False),
        ("https://host.example/", False),
    ],
)
def test_origin_is_scheme_host_and_port(url: str, same: bool) -> None:  # noqa: FBT001
    assert (origin(url) == origin("https://host/")) is same
