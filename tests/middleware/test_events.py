"""The terminal event of each provider's stream, looked for in its last bytes."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.texts import events

from middleware.events import is_terminal


@pytest.mark.parametrize(
    "tail",
    [
        b"data: [DONE]\n\n",
        b"data:[DONE]\n\n",
        b'data: {"choices": []}\n\ndata: [DONE]\n\n',
        b"\r\ndata: [DONE]\r\n\r\n",
        b"\rdata: [DONE]\r\r",
        b'event: message_stop\ndata: {"type": "message_stop"}\n\n',
        b"event:message_stop\n\n",
        b'data: {"type":"message_stop"}\n\n',
        b'event: response.completed\ndata: {"type":"response.completed"}\n\n',
        b'data: {"type": "response.failed", "response": {}}\n\n',
        b'data: {"type": "response.incomplete"}\n\n',
        b'event: error\ndata: {"type": "error"}\n\n',
        b"data: [DONE]\n\n: a comment after it\n\n",
    ],
)
def test_these_end_a_stream(tail: bytes) -> None:
    assert is_terminal(tail)


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b"data: [DON",
        b"xdata: [DONE]\n\n",
        b"data: they said [DONE]\n\n",
        b": data: [DONE]\n\n",
        b"event: message_stopped\n\n",
        b"event: message_delta\ndata: {}\n\n",
        b"event: errors\n\n",
        b'data: {"type": "response.completed_soon"}\n\n',
        b'data: {"kind": "message_stop"}\n\n',
        rb'data: {"delta": "\"type\": \"error\""}' + b"\n\n",  # quoted inside a string
    ],
)
def test_these_do_not(tail: bytes) -> None:
    assert not is_terminal(tail)


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
def test_a_stream_is_over_with_its_last_event_and_not_before(kind: str) -> None:
    stream = events(kind, ["some", "words"])
    for count in range(1, len(stream)):
        assert not is_terminal(b"".join(stream[:count])[-512:])
    assert is_terminal(b"".join(stream)[-512:])


@settings(deadline=None)
@given(st.binary(max_size=512))
def test_any_bytes_have_an_answer(tail: bytes) -> None:
    assert is_terminal(tail) in (True, False)
