"""The forms a complete body can be sent in, and which of them is the smallest (contract 3). Pure.

Identity always competes. gzip and zstd compete where the client takes them, unless a delta came out under a tenth of the body.
So no body is larger than identity, nor, short of that tenth, than gzip would have made it. The one exception is asked for by
name: ``Ctxpack-Base: none`` from a client that takes packs is answered with a pack, the seed's first turn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ctxpack import ContextPack, ContextPackDelta
from middleware.codings import gzip_encode, zstd_encode
from middleware.offers import DELTA, PACK, Offers
from middleware.stores import Base

_CHEAPEST_FIRST = {"identity": 0, "gzip": 1, "zstd": 2}


@dataclass(frozen=True, slots=True)
class Form:
    """A body as it would cross the link."""

    coding: str
    """Value of Content-Encoding, ``identity`` for none."""
    body: bytes
    why: str


@dataclass(frozen=True, slots=True)
class Chosen:
    """The smallest form, and what gzip made of the body where it was computed."""

    form: Form
    gzip_size: int | None


@dataclass(frozen=True, slots=True)
class Material:
    """What forms are made of. ``target`` is None where the client speaks no Context Pack."""

    content: bytes
    target: ContextPack | None
    bases: Sequence[Base]
    """Those of the named bases that are held, in the client's order."""
    came: Form | None = None
    """The body as the upstream had coded it, where it had and the client takes that."""
    may_delta: bool = True
    """Whether the requesting page may see deltas at all."""
    gzip_level: int = 6


def choose(material: Material, offers: Offers) -> Chosen:
    """The smallest form the client takes; ties go to its q-values, then to the one that is cheapest to undo."""
    delta = _delta(material, offers)
    forms = _packs(material, offers) if delta is None else _with_outer(delta, offers)
    if forms and forms[0].why == "pack" and offers.asks_pack:
        return Chosen(min(forms, key=lambda form: len(form.body)), None)
    gzip_size = None
    if delta is None or len(delta.body) * 10 >= len(material.content):
        plain = _plain(material, offers, why=_no_delta(material, offers, delta))
        gzip_size = next((len(form.body) for form in plain if form.coding == "gzip"), None)
        forms += plain
    identity = Form("identity", material.content, _no_delta(material, offers, delta))
    if offers.accept.accepts("identity"):
        forms.append(identity)
    if not forms:
        return Chosen(Form("identity", material.content, "not-acceptable"), gzip_size)
    return Chosen(min(forms, key=_rank(offers)), gzip_size)


def _rank(offers: Offers) -> Callable[[Form], tuple[int, float, int]]:
    def rank(form: Form) -> tuple[int, float, int]:
        inner = form.coding.partition(",")[0]
        return len(form.body), -offers.accept.q(inner), _CHEAPEST_FIRST.get(form.coding, 3)

    return rank


def _delta(material: Material, offers: Offers) -> Form | None:
    """The delta against the base that shares most with the body."""
    target = material.target
    if target is None or not offers.takes_delta or not material.may_delta or not material.bases:
        return None
    deltas = [ContextPackDelta.between(pack_of(base), target) for base in material.bases]
    best = max(deltas, key=lambda delta: delta.kept_chunks)
    unchanged = best.base_digest == best.target_digest
    return Form(DELTA, best.to_bytes(), "unchanged" if unchanged else "delta")


def pack_of(base: Base) -> ContextPack:
    """The pack of a base, made again where only its content was kept."""
    return base.pack if base.pack is not None else ContextPack.from_utf8(base.content)


def _packs(material: Material, offers: Offers) -> list[Form]:
    if material.target is None or not offers.takes_pack or not material.may_delta:
        return []
    if not (offers.asks_pack or not offers.accept.accepts("identity")):
        return []
    return _with_outer(Form(PACK, material.target.to_bytes(), "pack"), offers)


def _with_outer(form: Form, offers: Offers) -> list[Form]:
    forms = [form]
    if "gzip" in offers.outer:
        forms.append(Form(f"{form.coding}, gzip", gzip_encode(form.body, 9), form.why))
    if "zstd" in offers.outer:
        forms.append(Form(f"{form.coding}, zstd", zstd_encode(form.body), form.why))
    return forms


def _plain(material: Material, offers: Offers, why: str) -> list[Form]:
    """gzip and zstd of the whole body; what the upstream made of it already stands for its own coding."""
    forms = []
    came = material.came
    if came is not None:
        forms.append(Form(came.coding, came.body, "already-coded" if why == "no-base" else why))
    if offers.accept.absent:
        return forms
    taken = came.coding if came is not None else None
    if offers.accept.accepts("gzip") and taken != "gzip":
        forms.append(Form("gzip", gzip_encode(material.content, material.gzip_level), why))
    if offers.accept.accepts("zstd") and taken != "zstd":
        forms.append(Form("zstd", zstd_encode(material.content), why))
    return forms


def _no_delta(material: Material, offers: Offers, delta: Form | None) -> str:
    """One word for why the body goes in full."""
    if delta is not None:
        return "not-smaller"
    if offers.takes_delta and offers.bases and not material.bases:
        return "unknown-base"
    return "no-base"
