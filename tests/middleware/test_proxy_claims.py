"""What proxies say, parsed: total, and nothing of a claim's own making gets through but addresses."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from middleware.proxy_claims import Claims, forwarded_claims, parse_address, x_forwarded_claims

PIECES = st.lists(
    st.sampled_from(
        [
            "for",
            "=",
            ";",
            ",",
            '"',
            "\\",
            " ",
            "proto",
            "https",
            "by",
            "1.2.3.4",
            "[2001:db8::1]",
            ":80",
            "unknown",
            "_x",
            "é",
            "%",
        ]
    )
).map("".join)


@given(st.lists(st.one_of(PIECES, st.text()), max_size=3))
def test_any_claim_is_read_without_raising_and_gives_addresses_alone(lines: list[str]) -> None:
    for claims in (forwarded_claims(lines), x_forwarded_claims(lines, lines)):
        assert claims.scheme in (None, "http", "https")
        for address in claims.addresses:
            assert address is None or str(parse_address(address)) == address


@given(st.lists(st.ip_addresses(), min_size=1, max_size=4))
def test_addresses_that_are_told_are_found(addresses: list[object]) -> None:
    quoted = [f'for="[{address}]:443"' if ":" in str(address) else f"for={address}" for address in addresses]
    expected = tuple(str(parse_address(str(address))) for address in addresses)
    assert forwarded_claims([", ".join(quoted)]).addresses == expected
    assert x_forwarded_claims([", ".join(map(str, addresses))], []).addresses == expected


@pytest.mark.parametrize(
    ("lines", "claims"),
    [
        ([], Claims()),
        (["for=1.2.3.4;proto=https"], Claims(("1.2.3.4",), "https")),
        (["for=1.2.3.4;proto=ftp"], Claims(("1.2.3.4",), None)),
        (["for=unknown, for=_hidden;proto=http"], Claims((None, None), "http")),
        (['for="[fe80::1%25eth0]"'], Claims((None,), None)),
        (["for=1.2.3.4;for=5.6.7.8"], Claims()),
        (["for=1.2.3.4;"], Claims()),
        (["for = 1.2.3.4"], Claims()),
        (['for="1.2.3.4'], Claims()),
        (["", "for=1.2.3.4", ","], Claims(("1.2.3.4",), None)),
    ],
)
def test_forwarded(lines: list[str], claims: Claims) -> None:
    assert forwarded_claims(lines) == claims
