"""One layer alone: bounded steps, nothing held back, every kind explained. Whole stacks are in test_codings.py."""

import typing
import zlib

import brotli
import pytest

from middleware.coding_layers import STEP, CodingError, Kind, new_layer
from middleware.codings import DECODABLE, gzip_encode, zstd_encode

ENCODE = {"gzip": gzip_encode, "zstd": zstd_encode, "deflate": zlib.compress, "br": brotli.compress}


@pytest.mark.parametrize("size", [0, 1, STEP - 1, STEP, STEP + 1, 20 * STEP])
@pytest.mark.parametrize("coding", sorted(DECODABLE))
def test_steps_are_bounded_and_complete(coding, size):
    layer = new_layer(coding, 23)
    pieces = list(layer.push(ENCODE[coding](bytes(size))))
    assert b"".join(pieces) == bytes(size)
    assert max(map(len, pieces), default=0) <= STEP * 3 // 2
    layer.end()


@pytest.mark.parametrize("coding", sorted(DECODABLE))
def test_output_that_the_codec_holds_is_drained(coding):
    """All input is taken, the stream goes on, and much more than a step is due."""
    content = bytes(20 * STEP)
    if coding == "br":
        encoder = brotli.Compressor()
        sent = encoder.process(content) + encoder.flush()
    elif coding == "zstd":
        sent = zstd_encode(content)[:-1]
    else:
        deflate = zlib.compressobj(9, zlib.DEFLATED, 31 if coding == "gzip" else 15)
        sent = deflate.compress(content) + deflate.flush(zlib.Z_SYNC_FLUSH)
    layer = new_layer(coding, 23)
    given = b"".join(layer.push(sent))
    assert given == content or (coding == "zstd" and len(given) >= len(content) - 2 * STEP)  # its last block is cut
    with pytest.raises(CodingError) as caught:
        layer.end()
    assert caught.value.kind == "truncated"


def test_every_kind_says_why_without_a_byte_of_the_content():
    for kind in typing.get_args(Kind):
        assert str(CodingError(kind))
    with pytest.raises(CodingError) as caught:
        new_layer("dcz", 23)
    assert caught.value.kind == "unknown"
    assert "dcz" not in str(caught.value)
