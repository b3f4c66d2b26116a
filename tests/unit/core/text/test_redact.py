"""No configured secret leaves the host in any of its forms: law 8."""

from __future__ import annotations

import base64
import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from caxton_host.core.calls import JSON
from caxton_host.core.text.redact import MASK, Redactor, same_but_masked

SECRET = 'p@s>>> "w\u00f6rd"/\\(1)!'  # noqa: S105 -- made up
RAW = SECRET.encode()


def b64(before: bytes, *, urlsafe: bool = False) -> str:
    encode = base64.urlsafe_b64encode if urlsafe else base64.b64encode
    return encode(before + RAW + b"tail").decode()


def inside(encoded: str, before: int) -> str:
    """Return the characters that hold nothing but bits of the secret."""
    return encoded[-(-before * 8 // 6) : (before + len(RAW)) * 8 // 6]


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET)[1:-1].replace("00f6", "00F6"),
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        json.dumps(SECRET)[1:-1].replace("/", "\\/"),
        quote(SECRET),
        quote(SECRET, safe=""),
        quote(SECRET, safe="").lower(),
        quote(SECRET, safe="!'()*"),  # what encodeURIComponent leaves alone
        quote_plus(SECRET),
        RAW.hex(),
        RAW.hex().upper(),
        base64.b64encode(RAW).decode(),
        base64.urlsafe_b64encode(RAW).decode(),
    ],
)
def test_secret_is_found_in_every_form(form: str) -> None:  # law 8
    # attack 46
    assert Redactor([SECRET]).text(f"<{form}>") == f"<{MASK}>"


@pytest.mark.parametrize("before", [b"", b"u", b"u:", b"usr", b"user", b"user:"])
@pytest.mark.parametrize("urlsafe", [False, True])
def test_secret_is_found_in_base64_at_every_alignment(
    before: bytes,
    urlsafe: bool,  # noqa: FBT001
) -> None:  # law 8
    encoded = b64(before, urlsafe=urlsafe)

    text = Redactor([SECRET]).text(encoded)

    assert MASK in text
    assert inside(encoded, len(before)) not in text


def test_longest_secret_is_replaced_first() -> None:
    redact = Redactor(["hunter2hunter2", "hunter2hunter2-and-more"])

    assert redact.text("hunter2hunter2-and-more") == MASK


def test_keys_and_values_at_any_depth_are_redacted() -> None:
    redact = Redactor(["hunter2hunter2"])
    value: JSON = {"hunter2hunter2": [{"a": "x hunter2hunter2"}, None, 1, True, 1.5]}

    assert redact.value(value) == {MASK: [{"a": f"x {MASK}"}, None, 1, True, 1.5]}


def test_number_that_spells_a_secret_is_redacted() -> None:  # law 8
    redact = Redactor(["1234567890", "12345678.5"])

    value: list[JSON] = [1234567890, 12345678.5, 99]

    assert redact.value(value) == [MASK, MASK, 99]


def test_secret_shorter_than_eight_bytes_is_not_looked_for() -> None:
    assert Redactor(["hunter2"]).text("hunter2") == "hunter2"
    assert Redactor(["\u00f6\u00f6\u00f6\u00f6"]).text("\u00f6" * 4) == MASK


def test_without_secrets_nothing_changes() -> None:
    value: JSON = {"a": ["b"]}

    assert Redactor().value(value) is value
    assert Redactor([""]).text("x") == "x"


def test_secret_that_is_held_is_replaced_until_its_owner_names_another() -> None:
    redact = Redactor(["hunter2-hunter2"])
    redact.hold("crm", ["first-token"])
    redact.hold("erp", ["other-token"])
    assert redact.text("first-token other-token") == "[redacted] [redacted]"
    redact.hold("crm", ["second-token"])
    said = redact.text("first-token second-token other-token hunter2-hunter2")
    assert said == "first-token [redacted] [redacted] [redacted]"
    redact.hold("crm", [])
    assert redact.text("second-token") == "second-token"
    nothing = Redactor()
    nothing.hold("crm", [])
    assert nothing.text("second-token") == "second-token"


def test_secret_is_not_in_the_repr() -> None:
    assert "hunter2" not in repr(Redactor(["hunter2hunter2"]))


@pytest.mark.parametrize(
    "form",
    [
        json.dumps(SECRET)[1:-1].replace(">", "\\u003e"),
        json.dumps(json.dumps(SECRET))[3:-3],
        "".join(f"\\u{ord(char):04X}" for char in SECRET),
        "".join(f"%{byte:02x}" for byte in RAW),
        quote(SECRET).replace("p", "%70", 1),
        quote(base64.b64encode(RAW).decode(), safe=""),
        quote(json.dumps(SECRET)[1:-1], safe=""),
    ],
)
def test_escapes_may_be_of_any_character(form: str) -> None:  # law 8
    assert Redactor([SECRET]).text(f"<{form}> 100% \\o/") == f"<{MASK}> 100% \\o/"


def test_character_of_two_units_is_found_when_it_is_escaped() -> None:
    secret = "pass\U0001f511word"  # noqa: S105 -- made up

    assert Redactor([secret]).text(r"\u0070ass\ud83d\udd11word") == MASK


def test_text_is_left_out_whole_if_a_secret_cannot_be_cut_out() -> None:  # law 8
    thrice = quote(quote(quote("hunter2/hunter2", safe="")))

    assert Redactor(["hunter2/hunter2"]).text(f"a {thrice} b") == MASK


def test_escapes_without_a_secret_are_left_as_they_are() -> None:
    text = r"100% of C:\new\table is \u00e4 %41 \\\\ %ZZ \ud800"

    assert Redactor([SECRET]).text(text) == text


def test_line_of_a_key_is_a_secret_of_its_own() -> None:  # law 8
    line = base64.b64encode(b"a private key that is long").decode()
    redact = Redactor(
        [f"-----BEGIN KEY-----\n{line}\nnot this line\n-----END KEY-----"]
    )

    assert redact.text(f"read {line}") == f"read {MASK}"
    assert redact.text("-----BEGIN KEY----- not this line") != MASK


def test_many_backslashes_take_no_time() -> None:  # law 9
    many = "\\" * 200_000

    assert Redactor([SECRET, "hunter2hunter2"]).text(f"\\u0068unter2hunter2{many}")


def forms(secret: str) -> list[str]:
    raw = secret.encode()
    return [
        secret,
        json.dumps(secret)[1:-1],
        json.dumps(secret, ensure_ascii=False)[1:-1],
        quote(secret, safe=""),
        quote_plus(secret),
        raw.hex(),
        base64.b64encode(raw).decode(),
        base64.urlsafe_b64encode(raw).decode(),
    ]


@given(
    secret=st.text(min_size=8, max_size=30),
    before=st.text(max_size=10),
    after=st.text(max_size=10),
)
def test_no_form_of_a_secret_survives(secret: str, before: str, after: str) -> None:
    assume(secret.casefold() not in MASK)
    redact = Redactor([secret])

    for form in forms(secret):
        left = redact.text(f"{before}{form}{after}")
        assert secret not in left
        assert form not in left or form in f"{before}{MASK}{after}"


# -- a redacted text beside the text of a replay, which knows no secret --------


@given(
    secret=st.text(min_size=8, max_size=12),
    parts=st.lists(st.text(max_size=6), min_size=1, max_size=4),
    left=st.integers(0, 60),
)
def test_text_always_fits_what_was_recorded_of_it(
    secret: str, parts: list[str], left: int
) -> None:  # laws 6 and 8
    plain = secret.join(parts)
    assume(plain.isprintable())
    redacted = Redactor([secret]).text(plain)

    assert same_but_masked(redacted, plain)
    cut = redacted.encode()[:left].decode(errors="ignore")
    assert same_but_masked(cut, plain.encode()[:left].decode(errors="ignore"), cut=True)


def test_what_stands_between_two_secrets_is_looked_for() -> None:
    assert same_but_masked(f"{MASK} x {MASK}", "key x key")


@pytest.mark.parametrize(
    ("redacted", "plain"),
    [
        ("hi", "ho"),
        ("hi", "hi!"),
        (f"a{MASK}b", "b-a"),
        (f"a{MASK}b", "a"),
        (f"ab{MASK}ba", "aba"),
        (f"{MASK} x {MASK}", "key y key"),
        (f"{MASK}x{MASK}x", "1x"),
        (f"{MASK}, {MASK}, end", "1; 2, end"),
    ],
)
def test_text_that_differs_where_nothing_was_redacted_does_not_fit(
    redacted: str, plain: str
) -> None:
    assert not same_but_masked(redacted, plain)


@pytest.mark.parametrize("redacted", ["ax", f"ax{MASK}y", "ax[redac"])
def test_start_of_a_cut_text_is_compared(redacted: str) -> None:
    assert not same_but_masked(redacted, "ay and more", cut=True)
    assert same_but_masked(redacted, "ax and more", cut=True)
