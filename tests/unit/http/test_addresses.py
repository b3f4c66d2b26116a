"""Which addresses are of the open internet, and which are not."""

from __future__ import annotations

import pytest

from caxton_host.lib.http import is_public


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",  # noqa: S104 -- to be refused
        "10.1.2.3",
        "100.64.0.1",
        "127.0.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "192.168.1.1",
        "224.0.0.1",
        "240.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "::127.0.0.1",
        "2002:7f00:1::",
        "64:ff9b::a9fe:a9fe",
        "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fe80::1%2",
        "fec0::1",
        "ff02::1",
    ],
)
def test_address_that_is_not_of_the_open_internet_is_refused(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["9.9.9.9", "::ffff:9.9.9.9", "2620:fe::fe", "64:ff9b::909:909"]
)
def test_address_of_the_open_internet_is_taken(address: str) -> None:
    assert is_public(address)
