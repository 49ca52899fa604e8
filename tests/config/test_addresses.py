import pytest

from config.addresses import Listen, parse_listen


@pytest.mark.parametrize(
    ("text", "listen", "loopback"),
    [
        ("127.0.0.1:8080", Listen("127.0.0.1", 8080), True),
        ("127.8.9.1:0", Listen("127.8.9.1", 0), True),
        ("localhost:80", Listen("localhost", 80), True),
        ("0.0.0.0:8080", Listen("0.0.0.0", 8080), False),
        ("[::1]:8080", Listen("::1", 8080), True),
        ("[0:0::1]:8080", Listen("::1", 8080), True),
        ("[::]:65535", Listen("::", 65535), False),
        ("[::ffff:127.0.0.1]:80", Listen("::ffff:7f00:1", 80), False),
        ("gateway.example:80", Listen("gateway.example", 80), False),
        ("localhost.example:80", Listen("localhost.example", 80), False),
        ("unix:/run/packhorse.sock", Listen(path="/run/packhorse.sock"), True),
    ],
)
def test_addresses_that_can_be_listened_on(text: str, listen: Listen, loopback: bool) -> None:
    parsed = parse_listen(text)
    assert parsed == listen
    assert parsed.is_loopback is loopback
    assert parse_listen(str(parsed)) == parsed


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8080", "host:port"),
        ("", "host:port"),
        (":8080", "0.0.0.0"),
        ("host:", "port from 0 to 65535"),
        ("host:65536", "port from 0 to 65535"),
        ("host:80000000000000000000000", "port from 0 to 65535"),
        ("host:-1", "port from 0 to 65535"),
        ("host:８０", "port from 0 to 65535"),
        ("host:http", "port from 0 to 65535"),
        ("::1:80", "in brackets"),
        ("[::1]", "port from 0"),
        ("[127.0.0.1]:80", "IPv6"),
        ("[nonsense]:80", "IPv6"),
        ("http://host:80", "in brackets"),
        ("a b:80", "host:port"),
        ("*:80", "host:port"),
        ("unix:relative.sock", "unix:/path"),
        ("unix:/folder/", "unix:/path"),
        ("unix:/" + "x" * 107, "at most 107 bytes"),
    ],
)
def test_addresses_that_cannot_say_why(text: str, expected: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_listen(text)
    assert expected in str(caught.value)


@pytest.mark.parametrize(
    ("one", "other", "conflict"),
    [
        ("127.0.0.1:80", "127.0.0.1:80", True),
        ("0.0.0.0:80", "127.0.0.1:80", True),
        ("[::]:80", "127.0.0.1:80", True),
        ("127.0.0.1:80", "127.0.0.2:80", False),
        ("127.0.0.1:80", "127.0.0.1:81", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("unix:/a", "unix:/a", True),
        ("unix:/a", "unix:/b", False),
        ("unix:/a", "127.0.0.1:80", False),
    ],
)
def test_addresses_that_cannot_both_be_listened_on(one: str, other: str, conflict: bool) -> None:
    assert parse_listen(one).conflicts(parse_listen(other)) is conflict
    assert parse_listen(other).conflicts(parse_listen(one)) is conflict
