"""Content codings: C06 (several frames), C08 (windows), C21 and C03 (bombs), truncation, splits."""

import gzip
import subprocess
import sys
import tracemalloc
import zlib
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import brotli
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from middleware.codings import (
    DECODABLE,
    CodingError,
    Decoder,
    decode,
    gzip_encode,
    parse_codings,
    zstd_encode,
)

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

LIMITS = {"limit": 1 << 26, "ratio": 200, "layers": 4}
TEXT = b'{"messages":[{"role":"user","content":"a turn of the conversation"}]}' * 3
SKIPPABLE = b"\x5a\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"abcde"


def raw_deflate(data: bytes) -> bytes:
    return zlib.compress(data, wbits=-15)


def checked_zstd(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


ENCODE = {"gzip": gzip_encode, "zstd": zstd_encode, "deflate": zlib.compress, "br": brotli.compress}
VARIANTS = [*ENCODE.items(), ("deflate", raw_deflate), ("zstd", checked_zstd)]


def encode(data: bytes, codings: tuple[str, ...]) -> bytes:
    for coding in codings:
        data = ENCODE[coding](data)
    return data


def kind_of(data: bytes, codings: tuple[str, ...], **limits: int) -> str:
    with pytest.raises(CodingError) as caught:
        decode(data, codings, **{**LIMITS, **limits})
    return caught.value.kind


@pytest.mark.parametrize(
    ("values", "codings"),
    [
        ([], ()),
        ([""], ()),
        (["gzip"], ("gzip",)),
        (["GZIP, Br"], ("gzip", "br")),
        (["x-gzip"], ("gzip",)),
        (["x-compress"], ("x-compress",)),
        (["identity"], ()),
        (["identity, gzip, ,identity"], ("gzip",)),
        (["ctxpack.delta.v1,\tgzip"], ("ctxpack.delta.v1", "gzip")),
        (["dcz", "gzip"], ("dcz", "gzip")),
        (["gz ip"], ("gz ip",)),
        (["gzip;q=1"], ("gzip;q=1",)),
        (["\udcff"], ("\udcff",)),
    ],
)
def test_content_encoding_is_parsed(values, codings):
    assert parse_codings(values) == codings


@given(st.lists(st.text()))
def test_parsing_content_encoding_never_raises(values):
    assert "identity" not in parse_codings(values)


def test_a_body_without_codings_is_itself():
    assert decode(TEXT, (), **LIMITS) == TEXT
    assert kind_of(TEXT, (), limit=len(TEXT) - 1) == "too_large"


@given(st.binary(max_size=400), st.lists(st.sampled_from(sorted(DECODABLE)), max_size=4).map(tuple))
def test_any_stack_round_trips(data, codings):
    assert decode(encode(data, codings), codings, **LIMITS) == data


@given(
    st.binary(max_size=300),
    st.lists(st.sampled_from(sorted(DECODABLE)), min_size=1, max_size=3).map(tuple),
    st.data(),
)
def test_split_anywhere_gives_the_same(data, codings, draw):
    coded = encode(data, codings)
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(coded)), max_size=12)))
    decoder = Decoder(codings, **LIMITS)
    pieces = [decoder.feed(coded[start:end]) for start, end in pairwise([0, *cuts, len(coded)])]
    assert b"".join([*pieces, decoder.finish()]) == data


@pytest.mark.parametrize(("coding", "encoder"), VARIANTS)
def test_byte_by_byte(coding, encoder):
    decoder = Decoder((coding,), **LIMITS)
    assert b"".join(decoder.feed(bytes([byte])) for byte in encoder(TEXT)) == TEXT
    decoder.finish()


@pytest.mark.parametrize("content", [b"", b"x", TEXT])
@pytest.mark.parametrize(("coding", "encoder"), VARIANTS)
def test_truncated_at_every_byte_is_truncated(coding, encoder, content):
    coded = encoder(content)
    for cut in range(len(coded)):
        assert kind_of(coded[:cut], (coding,)) == "truncated", cut


@settings(max_examples=30)
@given(st.binary(max_size=200), st.lists(st.sampled_from(sorted(DECODABLE)), min_size=2, max_size=3).map(tuple))
def test_a_truncated_stack_is_never_accepted(data, codings):
    coded = encode(data, codings)
    for cut in range(len(coded)):
        assert kind_of(coded[:cut], codings) == "truncated"
    inner = encode(data, codings[:1])[:-1]
    assert kind_of(encode(inner, codings[1:]), codings) == "truncated"


# C06
FRAMES = {
    "two gzip members": ("gzip", [gzip_encode(b"one,"), gzip_encode(b"two")], b"one,two"),
    "gzip with a name and an empty member": (
        "gzip",
        [gzip.compress(b"one,"), gzip_encode(b""), gzip_encode(b"two")],
        b"one,two",
    ),
    "two zstd frames": ("zstd", [zstd_encode(b"one,"), checked_zstd(b"two")], b"one,two"),
    "skippable between": ("zstd", [zstd_encode(b"one,"), SKIPPABLE, zstd_encode(b"two")], b"one,two"),
    "skippable around": ("zstd", [SKIPPABLE, zstd_encode(b"one"), SKIPPABLE], b"one"),
    "skippable only": ("zstd", [SKIPPABLE], b""),
    "large then small": ("zstd", [zstd_encode(TEXT * 2000), zstd_encode(b"end")], TEXT * 2000 + b"end"),
}


@pytest.mark.parametrize("name", FRAMES)
def test_members_and_frames_are_concatenated(name):
    coding, frames, content = FRAMES[name]
    coded = b"".join(frames)
    assert decode(coded, (coding,), **LIMITS) == content
    for cut in range(len(coded)):
        decoder = Decoder((coding,), **LIMITS)
        assert decoder.feed(coded[:cut]) + decoder.feed(coded[cut:]) == content
        decoder.finish()


@pytest.mark.parametrize("name", FRAMES)
def test_frames_cut_inside_are_truncated(name):
    coding, frames, _ = FRAMES[name]
    coded = b"".join(frames)
    whole = {sum(map(len, frames[:count])) for count in range(1, len(frames) + 1)}
    for cut in set(range(len(coded))) - whole:
        assert kind_of(coded[:cut], (coding,)) == "truncated", cut


@pytest.mark.parametrize("junk", [b"\x00", b"J", b"JUNK and more", b"\x1fX", b"\x28\xb5X", b"\x50\x2a\x4d\x19", b"\x00" * 512])
@pytest.mark.parametrize(("coding", "encoder"), VARIANTS)
def test_garbage_after_the_end(coding, encoder, junk):
    coded = encoder(TEXT)
    expected = "corrupt" if coding == "br" else "trailing"  # the brotli codec cannot tell
    assert kind_of(coded + junk, (coding,)) == expected
    decoder = Decoder((coding,), **LIMITS)
    assert decoder.feed(coded) == TEXT
    with pytest.raises(CodingError) as caught:
        [decoder.feed(bytes([byte])) for byte in junk]
    assert caught.value.kind == expected
    with pytest.raises(CodingError):
        decoder.finish()  # once refused, never complete


@pytest.mark.parametrize("coding", sorted(DECODABLE))
def test_junk_is_corrupt(coding):
    assert kind_of(b"{} this is no coded content at all", (coding,)) == "corrupt"


@pytest.mark.parametrize(
    ("coding", "encoder", "tail"), [("gzip", gzip_encode, 8), ("deflate", zlib.compress, 4), ("zstd", checked_zstd, 4)]
)
def test_a_wrong_checksum_is_corrupt(coding, encoder, tail):
    coded = encoder(TEXT)
    for index in range(1, tail + 1):
        damaged = bytearray(coded)
        damaged[-index] ^= 1
        assert kind_of(bytes(damaged), (coding,)) == "corrupt"


@given(st.sampled_from(sorted(DECODABLE)), st.binary(max_size=300), st.data())
def test_damage_raises_nothing_but_coding_errors(coding, data, draw):
    coded = bytearray(ENCODE[coding](data))
    for index in draw.draw(st.lists(st.integers(0, len(coded) - 1), min_size=1, max_size=5)):
        coded[index] ^= draw.draw(st.integers(1, 255))
    with suppress(CodingError):
        decode(bytes(coded), (coding,), **LIMITS)


def test_unknown_codings_and_too_many_layers():
    assert kind_of(b"", ("compress",)) == "unknown"
    assert kind_of(b"", ("dcz",)) == "unknown"
    assert kind_of(b"", ("gzip",) * 5) == "layers"
    assert decode(encode(TEXT, ("gzip",) * 4), ("gzip",) * 4, **LIMITS) == TEXT


@pytest.mark.parametrize(("coding", "encoder"), VARIANTS)
def test_the_limit_is_exact(coding, encoder):
    content = TEXT * 1000
    coded = encoder(content)
    assert decode(coded, (coding,), limit=len(content), ratio=10**6, layers=1) == content
    assert kind_of(coded, (coding,), limit=len(content) - 1, ratio=10**6) == "too_large"


def test_the_ratio_counts_only_past_one_mebibyte():
    assert decode(zstd_encode(bytes(1 << 20)), ("zstd",), **LIMITS) == bytes(1 << 20)
    assert kind_of(zstd_encode(bytes((1 << 20) + 1)), ("zstd",)) == "ratio"
    assert kind_of(gzip_encode(bytes(2 << 20)), ("gzip",)) == "ratio"
    assert kind_of(encode(bytes(2 << 20), ("gzip", "br")), ("gzip", "br")) == "ratio"


@pytest.mark.parametrize(("coding", "member"), [("gzip", gzip_encode(b"")), ("zstd", zstd_encode(b"")), ("zstd", SKIPPABLE)])
def test_empty_members_without_end_are_refused(coding, member):
    assert kind_of(member * 20_000, (coding,)) == "ratio"


def test_one_frame_an_event_is_fine_however_many():
    event = b'data: {"choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
    assert decode(zstd_encode(event * 2) * 6000, ("zstd",), **LIMITS) == event * 12000


def test_content_that_decodes_to_nothing_is_bounded_between_layers():
    nothing = b"\x50\x2a\x4d\x18" + (8 << 20).to_bytes(4, "little") + bytes(8 << 20)
    assert kind_of(gzip_encode(nothing), ("zstd", "gzip"), limit=1 << 20) == "too_large"
    assert kind_of(nothing, ("zstd",), limit=1 << 20) == "too_large"


def flushed(coding: str, events: list[bytes]) -> list[bytes]:
    """What an upstream sends that flushes after each event."""
    if coding == "br":
        encoder = brotli.Compressor()
        return [encoder.process(event) + encoder.flush() for event in events] + [encoder.finish()]
    if coding == "zstd":
        stream = zstd.ZstdCompressor()
        parts = [stream.compress(event, stream.FLUSH_BLOCK) for event in events]
        return [*parts, stream.flush()]
    wrapped = zlib.compressobj(6, zlib.DEFLATED, 31 if coding == "gzip" else 15)
    mode = zlib.Z_PARTIAL_FLUSH if coding == "gzip" else zlib.Z_SYNC_FLUSH
    return [wrapped.compress(event) + wrapped.flush(mode) for event in events] + [wrapped.flush()]


@pytest.mark.parametrize("big", [1, 40_000])
@pytest.mark.parametrize("coding", sorted(DECODABLE))
def test_an_event_stream_decodes_event_by_event(coding, big):
    events = [b"data: {" + bytes([65 + count]) * count * big + b"}\n\n" for count in range(1, 9)]
    decoder = Decoder((coding,), limit=1 << 26, ratio=10**6, layers=1)
    sent = flushed(coding, events)
    assert [decoder.feed(part) for part in sent] == [*events, b""]
    decoder.finish()


def test_pieces_are_small():
    coded = gzip_encode(bytes(1 << 20))
    pieces = list(Decoder(("gzip",), **LIMITS).pieces(coded))
    assert b"".join(pieces) == bytes(1 << 20)
    assert max(map(len, pieces)) <= 1 << 16


# C08
def window_of(frame: bytes) -> int:
    """RFC 8878 3.1.1.1: the window a frame asks its decoder for."""
    descriptor = frame[4]
    if descriptor & 0x20:  # single segment: the window is the content
        return zstd.get_frame_info(frame).decompressed_size
    exponent, mantissa = frame[5] >> 3, frame[5] & 7
    return (1 << (10 + exponent)) * (8 + mantissa) // 8


@pytest.mark.parametrize("level", [1, 3, 19, 20, 22])
@pytest.mark.parametrize("size", [0, 1, 1000, 100_000, 9 << 20])
def test_zstd_asks_for_no_window_browsers_refuse(level, size):
    frame = zstd_encode(bytes(size), level)
    assert window_of(frame) <= 8 << 20
    assert zstd.get_frame_info(frame).decompressed_size == size
    assert decode(frame, ("zstd",), limit=1 << 26, ratio=10**6, layers=1) == bytes(size)


def test_larger_windows_are_refused_cleanly():
    encoder = zstd.ZstdCompressor(level=22)
    wide = encoder.compress(TEXT, encoder.FLUSH_BLOCK) + encoder.flush()
    assert window_of(wide) == 128 << 20
    assert kind_of(wide, ("zstd",)) == "too_large"
    assert decode(wide, ("zstd",), window_log_max=27, **LIMITS) == TEXT
    single = bytes([0x28, 0xB5, 0x2F, 0xFD, 0xA0]) + ((8 << 20) + 1).to_bytes(4, "little") + bytes(20)
    assert window_of(single) > 8 << 20
    assert kind_of(single, ("zstd",)) == "too_large"


def test_encoding_is_deterministic():
    assert gzip_encode(TEXT)[:10] == b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03"
    assert gzip_encode(TEXT, 9) == gzip_encode(TEXT, 9)
    assert zstd_encode(TEXT) == zstd_encode(TEXT)


# C03, C21
def gzip_bomb(size: int) -> bytes:
    """A member of ``size`` zeros, about a thousandth as long: one fully flushed block again and again."""
    encoder = zlib.compressobj(9, zlib.DEFLATED, 31)
    head = encoder.compress(bytes(1 << 20)) + encoder.flush(zlib.Z_FULL_FLUSH)
    block = encoder.compress(bytes(1 << 20)) + encoder.flush(zlib.Z_FULL_FLUSH)
    return head + block * ((size >> 20) - 1)


@pytest.mark.parametrize("ratio", [200, 10**9])
@pytest.mark.parametrize("coding", sorted(DECODABLE))
def test_bombs_are_refused_in_bounded_memory(coding, ratio):
    content = bytes(64 << 20)
    coded = ENCODE[coding](content) if coding != "br" else brotli.compress(content, quality=1)
    del content
    limit = 4 << 20
    tracemalloc.start()
    try:
        assert kind_of(coded, (coding,), limit=limit, ratio=ratio) in {"ratio", "too_large"}
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < limit * 9 // 8 + (1 << 18)  # the growing buffer's headroom, and one step


MEASURE = """
import resource, sys
from middleware.codings import CodingError, Decoder
coded = open(sys.argv[1], "rb").read()
Decoder(("gzip", "br", "zstd", "deflate"), limit=1, ratio=1, layers=4)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    Decoder((sys.argv[2],), limit=32 << 20, ratio=10**9, layers=1).feed(coded)
except CodingError as error:
    print(error.kind, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10)
"""


def test_the_bombs_of_the_reports_leave_the_process_small(tmp_path):
    encoder = zstd.ZstdCompressor()
    block = bytes(8 << 20)
    declared = zstd.ZstdCompressor()
    declared.set_pledged_input_size(512 << 20)
    bombs = {
        "gzip": gzip_bomb(2 << 30),
        "zstd": b"".join([encoder.compress(block) for _ in range(64)] + [encoder.flush()]),
        "zstd declared": b"".join([declared.compress(block) for _ in range(64)] + [declared.flush()]),
        "br": brotli.compress(bytes(256 << 20), quality=1),
    }
    for name, coded in bombs.items():
        path = tmp_path / "bomb"
        path.write_bytes(coded)
        done = subprocess.run(
            [sys.executable, "-c", MEASURE, str(path), name.split()[0]],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
        )
        kind, grown = done.stdout.split()
        assert kind == "too_large"
        assert int(grown) < 32 + 24, name  # MiB: the limit, and the codec's own window
