"""Contract, section 1: content codings."""

import gzip
import json
import random
import zlib

import brotli
import pytest
from backports import zstd
from contract.kit import Holder, Reply, ask, digest, digest_by_hand, fresh, get, is_delta, name, text_reply
from support.messages import Response
from support.texts import lines

from ctxpack import ContextPack, ContextPackDelta

FIRST = lines(100)
SECOND = lines(104)
ENCODERS = {
    "gzip": lambda data: gzip.compress(data, 6),
    "zstd": zstd.compress,
    "br": brotli.compress,
    "deflate": zlib.compress,
}


def delta_of(up, gw, first: str, second: str, accept: str = "ctxpack.delta.v1") -> tuple[Holder, Response]:
    path = up.at(fresh(), text_reply(first))
    client = Holder(gw, accept=accept)
    client.get(path)
    up.at(path, text_reply(second))
    return client, client.get(path)


def test_pack_is_the_canonical_json_of_a_pack(up, gw):
    """`ctxpack.pack.v1` | down, up | the canonical JSON of a pack (context-pack.md)"""
    path = up.at(fresh(), text_reply(FIRST))
    response = get(gw, path, [("Accept-Encoding", "ctxpack.pack.v1, identity;q=0"), ("Ctxpack-Base", "none")])
    assert response.members("content-encoding") == ["ctxpack.pack.v1"]
    assert response.body == ContextPack.from_content(FIRST).to_bytes()
    said = json.loads(response.body)
    assert response.body == json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    assert set(said) == {"schema", "chunk_bytes", "digest", "total_bytes", "byte_count"}
    assert said["byte_count"] == len(response.body)
    assert said["total_bytes"] == len(FIRST.encode())


def test_delta_is_the_canonical_json_of_a_delta(up, gw):
    """`ctxpack.delta.v1` | down, up | the canonical JSON of a delta"""
    _, response = delta_of(up, gw, FIRST, SECOND)
    assert response.members("content-encoding") == ["ctxpack.delta.v1"]
    expected = ContextPackDelta.between(ContextPack.from_content(FIRST), ContextPack.from_content(SECOND))
    assert response.body == expected.to_bytes()
    said = json.loads(response.body)
    assert response.body == json.dumps(said, sort_keys=True, separators=(",", ":")).encode()
    assert set(said) == {"schema", "base_digest", "target_digest", "kept_chunks", "new_chunks"}


@pytest.mark.parametrize(
    "text", ["始" * 700 + "\nend\n" + "x" * 2000, "a" * 512 + "\n" + "b" * 511 + "\n" + "c" * 600, "\n" * 3000]
)
def test_packs_on_the_wire_are_split_at_512(up, gw, text):
    """On the wire packs are always split at 512."""
    path = up.at(fresh(), text_reply(text))
    response = get(gw, path, [("Accept-Encoding", "ctxpack.pack.v1, identity;q=0")])
    assert response.members("content-encoding") == ["ctxpack.pack.v1"]
    pack = ContextPack.from_bytes(response.body)
    assert max(map(len, pack.chunk_bytes)) <= 512
    assert pack == ContextPack.from_content(text, max_chunk_bytes=512)
    assert response.text("ctxpack-digest") == digest_by_hand(text.encode(), list(pack.chunk_bytes))


@pytest.mark.parametrize("base", [None, "sha256:" + "0" * 64, "nonsense"])
@pytest.mark.parametrize("accept", ["ctxpack.pack.v1", SPEAKS := "ctxpack.delta.v1, ctxpack.pack.v1, gzip, zstd"])
def test_a_pack_is_sent_only_on_none_or_where_identity_is_refused(up, gw, base, accept):
    """`ctxpack.pack.v1` is sent only to a client that says `Ctxpack-Base: none` (the seed's first turn) or refuses identity."""
    path = up.at(fresh(), text_reply(FIRST))
    fields = [("Accept-Encoding", accept), ("Packhorse-Session", name())] + ([("Ctxpack-Base", base)] if base else [])
    response = get(gw, path, fields)
    assert "ctxpack.pack.v1" not in response.members("content-encoding")
    assert response.text("ctxpack-digest") == digest(FIRST)


def test_a_client_with_the_plain_text_makes_the_same_pack_itself(up, gw):
    """A client with the plain text makes the same pack itself, so a first turn need not be a pack"""
    path = up.at(fresh(), text_reply(FIRST))
    client = Holder(gw, accept="ctxpack.delta.v1")
    first = client.get(path)
    assert first.members("content-encoding") == []
    assert first.body == FIRST.encode()
    up.at(path, text_reply(SECOND))
    assert is_delta(client.get(path))


@pytest.mark.parametrize("accept", ["ctxpack.pack.v1, gzip", "ctxpack.pack.v1, ctxpack.delta.v1, zstd", "ctxpack.pack.v1"])
def test_the_seeds_first_turn(up, gw, accept):
    """`ctxpack.pack.v1` is sent only to a client that says `Ctxpack-Base: none` (the seed's first turn)"""
    path = up.at(fresh(), text_reply(FIRST))
    client = Holder(gw, accept=accept)
    response = client.get(path, ("Ctxpack-Base", "none"))
    assert response.content == FIRST.encode()
    assert response.members("content-encoding")[:1] == ["ctxpack.pack.v1"]
    if "," in accept:
        assert len(response.body) <= len(FIRST.encode())


@pytest.mark.parametrize(("outer", "undo"), [("gzip", gzip.decompress), ("zstd", zstd.decompress)])
def test_a_ctxpack_body_may_have_an_outer_coding(up, gw, outer, undo):
    """A `ctxpack.*` body may be followed by an outer coding: `Content-Encoding: ctxpack.delta.v1, gzip`."""
    client, response = delta_of(up, gw, FIRST, lines(200), f"ctxpack.delta.v1, {outer}")
    assert response.members("content-encoding") == ["ctxpack.delta.v1", outer]
    delta = ContextPackDelta.from_bytes(undo(response.body))
    assert delta.base_digest == digest(FIRST)
    assert response.content == lines(200).encode()
    assert client.held


@pytest.mark.parametrize("outer", ["gzip", "zstd"])
def test_an_outer_coding_of_a_pack(up, gw, outer):
    """A `ctxpack.*` body may be followed by an outer coding."""
    text = "the same line again and again, so that a pack shrinks\n" * 200
    path = up.at(fresh(), text_reply(text))
    response = Holder(gw, accept=f"ctxpack.pack.v1, {outer}, identity;q=0").get(path, ("Ctxpack-Base", "none"))
    assert response.members("content-encoding")[-1] == outer
    assert response.content == text.encode()


def test_digest_and_base_speak_of_the_decoded_content(up, gw):
    """The digest and the base always speak of the decoded content, never of a coding of it."""
    for coding, encode in ENCODERS.items():
        path = up.at(fresh(), text_reply(encode(FIRST.encode()), ("Content-Encoding", coding)))
        client = Holder(gw, accept="ctxpack.delta.v1, gzip, zstd, br, deflate")
        first = client.get(path)
        assert first.text("ctxpack-digest") == digest(FIRST), coding
        assert first.content == FIRST.encode()
        up.at(path, text_reply(encode(SECOND.encode()), ("Content-Encoding", coding)))
        second = client.get(path)
        assert is_delta(second), (coding, second.raw_head)
        assert second.text("ctxpack-digest") == digest(SECOND)
        assert second.content == SECOND.encode()


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip", "zstd"])
def test_an_upstreams_coding_the_client_takes_is_passed_through(up, gw, coding):
    """`br`, `deflate` | from either side | decoded where the gateway must read them; passed through, never made"""
    coded = ENCODERS[coding](FIRST.encode())
    path = up.at(fresh(), text_reply(coded, ("Content-Encoding", coding)))
    response = get(gw, path, [("Accept-Encoding", coding)])
    assert response.members("content-encoding") == [coding]
    assert response.body == coded


@pytest.mark.parametrize("coding", ["br", "deflate", "gzip", "zstd"])
@pytest.mark.parametrize("accept", [None, "", "identity", "x-none"])
def test_an_upstreams_coding_the_client_does_not_take_is_undone(up, gw, coding, accept):
    """`br`, `deflate` | decoded where the gateway must read them"""
    path = up.at(fresh(), text_reply(ENCODERS[coding](FIRST.encode()), ("Content-Encoding", coding)))
    response = get(gw, path, [] if accept is None else [("Accept-Encoding", accept)])
    if accept is None and response.members("content-encoding") == [coding]:
        return  # without the field any coding is acceptable (RFC 9110 12.5.3)
    assert response.members("content-encoding") == []
    assert response.body == FIRST.encode()
    assert response.values("content-length") in ([], [str(len(FIRST)).encode()])


@pytest.mark.parametrize("accept", ["br", "deflate", "br, deflate", "br;q=1, deflate;q=1, identity;q=0.001"])
def test_br_and_deflate_are_never_made(up, gw, accept):
    """`br`, `deflate` | passed through, never made"""
    path = up.at(fresh(), text_reply(FIRST))
    response = get(gw, path, [("Accept-Encoding", accept)])
    assert response.members("content-encoding") == []
    assert response.body == FIRST.encode()


@pytest.mark.parametrize(("accept", "coding"), [("gzip", "gzip"), ("zstd", "zstd")])
def test_zstd_and_gzip_where_no_base_helps(up, gw, accept, coding):
    """`zstd`, `gzip` | down, up | the usual ones, where no base helps"""
    path = up.at(fresh(), text_reply(FIRST))
    response = get(gw, path, [("Accept-Encoding", accept)])
    assert response.members("content-encoding") == [coding]
    undo = gzip.decompress if coding == "gzip" else zstd.decompress
    assert undo(response.body) == FIRST.encode()
    assert len(response.body) < len(FIRST)


@pytest.mark.parametrize("coding", list(ENCODERS))
@pytest.mark.parametrize("prefix", ["", "/v1", "/anthropic"])
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_request_bodies_in_the_usual_codings_are_decoded(up, gw, coding, prefix, framing):
    """`zstd`, `gzip` | down, up; `br`, `deflate` from either side: decoded where the gateway must read them"""
    path = up.at(fresh(prefix), text_reply("fine"))
    body = json.dumps({"messages": [{"role": "user", "content": lines(20)}]}).encode()
    fields = [("Content-Type", "application/json"), ("Content-Encoding", coding)]
    assert ask(gw, "POST", path, fields, ENCODERS[coding](body), framing=framing).status == 200
    got = up.last(path)
    if got.value("content-encoding") is None:
        assert got.body == body
        assert got.value("content-length") in (None, str(len(body)).encode())
    else:
        assert got.body == ENCODERS[coding](body)


def test_codings_stacked_both_ways(up, gw):
    """Codings, singly or stacked, the order as RFC 9110 8.4 has it (outermost last)."""
    path = up.at(fresh(), text_reply(gzip.compress(zstd.compress(FIRST.encode())), ("Content-Encoding", "zstd, gzip")))
    assert get(gw, path, [("Accept-Encoding", "identity")]).body == FIRST.encode()
    body = lines(30).encode()
    coded = gzip.compress(brotli.compress(body))
    for fields in ([("Content-Encoding", "br, gzip")], [("Content-Encoding", "br"), ("Content-Encoding", "gzip")]):
        ask(gw, "POST", path, fields, coded)
        got = up.last(path)
        if got.values("content-encoding"):
            assert (got.values("content-encoding"), got.body) == ([value.encode() for _, value in fields], coded)
        else:
            assert got.body == body


def test_names_of_codings_have_no_case(up, gw):
    """Content codings are case-insensitive (RFC 9110 8.4.1)."""
    path = up.at(fresh(), text_reply(FIRST))
    client = Holder(gw, accept="CTXPACK.Delta.V1, GZip")
    client.get(path)
    up.at(path, text_reply(SECOND))
    assert is_delta(client.get(path))
    body = lines(30).encode()
    for spelled in ("GZIP", "x-gzip"):
        response = ask(gw, "POST", path, [("Content-Encoding", spelled)], gzip.compress(body, mtime=0))
        assert response.status == 200
        assert up.last(path).body in (body, gzip.compress(body, mtime=0))


def test_text_that_is_not_utf_8_passes(up, gw):
    """`ctxpack.*` speak of text; what is not UTF-8 passes or is coded by gzip or zstd, and is exact."""
    body = random.Random(1).randbytes(5000)
    path = up.at(fresh(), Reply(200, [("Content-Type", "application/octet-stream")], body))
    client = Holder(gw)
    for _ in range(2):
        response = client.get(path)
        assert response.content == body
        assert not any(coding.startswith("ctxpack.") for coding in response.members("content-encoding"))
        assert response.values("ctxpack-digest") == []


def test_dcz_and_unknown_names_are_no_error(up, gw):
    """A client that offers `dcz` and names no base, or one nobody knows, is served whole."""
    path = up.at(fresh(), text_reply(FIRST))
    for value in (None, ":" + "A" * 43 + "=:", ":abc:", "A" * 64, ""):
        fields = [("Accept-Encoding", "dcz, foo"), *([("Available-Dictionary", value)] if value is not None else [])]
        response = get(gw, path, fields)
        assert (response.status, response.body) == (200, FIRST.encode())
        assert response.members("content-encoding") == []
