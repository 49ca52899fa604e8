"""The forms a complete body can be sent in, and which of them is the smallest (contract 3). Pure.

Identity always competes. gzip and zstd compete where the client takes them, unless a delta came out under a tenth of the body.
So no body is larger than identity, nor, short of that tenth, than gzip would have made it. The one exception is asked for by
name: ``Ctxpack-Base: none`` from a client that takes packs is answered with a pack, the seed's first turn.
"""

from collections.abc import Sequence
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
        return Chosen(_smallest(forms, offers), None)
    gzip_size = None
    if delta is None or len(delta.body) * 10 >= len(material.content):
        plain = _plain(material, offers, why=_no_delta(material, offers, delta))
        gzip_size = next((len(form.body) for form in plain if form.coding == "gzip"), None)
        forms += plain
    identity = Form("identity", material.content, _no_delta(material, offers, delta))
    if offers.taken.identity:
        forms.append(identity)
    if not forms:
        return Chosen(Form("identity", material.content, "not-acceptable"), gzip_size)
    return Chosen(_smallest(forms, offers), gzip_size)


def _smallest(forms: list[Form], offers: Offers) -> Form:
    least = min(len(form.body) for form in forms)
    equal = [form for form in forms if len(form.body) == least]
    if len(equal) == 1:
        return equal[0]
    accept = offers.taken.accept
    return min(equal, key=lambda form: (-accept.q(form.coding.partition(",")[0]), _CHEAPEST_FIRST.get(form.coding, 3)))


def _delta(material: Material, offers: Offers) -> Form | None:
    """The delta against the base that shares most with the body."""
    target = material.target
    if target is None or not offers.taken.delta or not material.may_delta or not material.bases:
        return None
    deltas = [ContextPackDelta.between(pack_of(base), target) for base in material.bases]
    best = max(deltas, key=lambda delta: delta.kept_chunks)
    unchanged = best.base_digest == best.target_digest
    return Form(DELTA, best.to_bytes(), "unchanged" if unchanged else "delta")


def pack_of(base: Base) -> ContextPack:
    """The pack of a base, made again where only its content was kept."""
    return base.pack if base.pack is not None else ContextPack.from_utf8(base.content)


def _packs(material: Material, offers: Offers) -> list[Form]:
    if material.target is None or not offers.taken.pack or not material.may_delta:
        return []
    if not (offers.asks_pack or not offers.taken.identity):
        return []
    return _with_outer(Form(PACK, material.target.to_bytes(), "pack"), offers)


def _with_outer(form: Form, offers: Offers) -> list[Form]:
    forms = [form]
    if "gzip" in offers.taken.outer:
        forms.append(Form(f"{form.coding}, gzip", gzip_encode(form.body, 9), form.why))
    if "zstd" in offers.taken.outer:
        forms.append(Form(f"{form.coding}, zstd", zstd_encode(form.body), form.why))
    return forms


def _plain(material: Material, offers: Offers, why: str) -> list[Form]:
    """gzip and zstd of the whole body, and what the upstream had made of it, which may be the worse gzip."""
    forms = []
    came = material.came
    if came is not None:
        forms.append(Form(came.coding, came.body, "already-coded" if why == "no-base" else why))
    made = offers.taken.made
    if "gzip" in made:
        forms.append(Form("gzip", gzip_encode(material.content, material.gzip_level), why))
    if "zstd" in made:
        forms.append(Form("zstd", zstd_encode(material.content), why))
    return forms


def _no_delta(material: Material, offers: Offers, delta: Form | None) -> str:
    """One word for why the body goes in full."""
    if delta is not None:
        return "not-smaller"
    if offers.taken.delta and offers.bases and not material.bases:
        return "unknown-base"
    return "no-base"
