"""The client's link: what the client holds is not sent again.

Request half: a request body the gateway must read is read and checked, the names of bases are looked up, and validators of our
making are mapped back. Response half: a body that is complete in time is decoded, made into the form that is smallest for this
client, and, once written out in full, kept as a base of its session. Everything else passes as it came.

Theory of operation. A response is *untouched* (no body of its own, partial, ``no-transform``, an unknown coding), *passed* (an
event stream, too large, not complete in time, a good link, nothing the client takes), or *whole*. Only whole ones are coded and
kept. A base is handed to the store by the body's own end, so what a client may not have received never becomes one. The request
body of the exchange becomes a base with it. Nothing here waits for the store.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from aiohttp import web

from ctxpack import ContextPack, ContextPackError
from middleware import passing, validators
from middleware.body import Body, collect, set_body
from middleware.codings import DECODABLE, CodingError, decode, parse_codings
from middleware.conditional import TagMemory, own_tag
from middleware.exchange import Exchange, exchange_of
from middleware.forms import Chosen, Form, Material, choose
from middleware.keeping import RequestBase, off_loop, pack_with_digest
from middleware.limits import Limits
from middleware.link import LinkClass
from middleware.negotiation import AcceptEncoding, delta_allowed, merge_vary
from middleware.offers import Offers, offers_of
from middleware.problems import Handler, Problem
from middleware.settings import Seconds, Settings, Size
from middleware.stores import Base, BaseStore
from middleware.undoing import undone, upstream_lied
from middleware.uploads import UploadReader

VARY = ("Accept-Encoding", "Available-Dictionary", "Ctxpack-Base", "Ctxpack-Accept")
_OF_THE_CODING = ("Content-MD5", "Content-Digest", "Repr-Digest", "Digest", "Accept-Ranges")
"""Fields that speak of the bytes of one coding (RFC 9530, RFC 9110 14.3): they go when the coding changes."""
_LIKELY_RATIO = 6
"""Decoded to coded, for guessing how long decoding takes."""
_PASSED_AS_MEASURED = ("streamed", "too-small", "too-large")
"""Why a body was passed, where that is the body's own nature: no other request would have had it coded, so Vary says nothing."""


class Deltas(Settings):
    """When and how the client's link is spared."""

    links: tuple[LinkClass, ...] = ("weak", "metered")
    """Classes of link on which bodies are coded."""
    min_bytes: Size = 256
    """Smaller bodies pass as they are."""
    max_bytes: Size = 16 * 2**20
    """Larger bodies pass as they are."""
    wait: Seconds = 0.5
    """How long to wait for a body to be complete before it is passed on as it comes."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """One response in hand, with what its request said."""

    request: web.Request
    exchange: Exchange
    offers: Offers
    held: dict[str, Base]
    """The bases that were named and held when the request came, by name: in use, whatever the store does meanwhile."""
    response: web.Response
    codings: tuple[str, ...]
    """Those the upstream applied."""

    @property
    def taken(self) -> bool:
        """Whether the client takes the body as the upstream coded it."""
        return bool(self.codings) and passing.takes_all(self.offers, self.codings)


@web.middleware
@dataclass(frozen=True, slots=True)
class DeltaCoder:
    """The middleware of one route."""

    settings: Deltas
    limits: Limits
    gzip_level: int
    store: BaseStore
    uploads: UploadReader
    tags: TagMemory
    explain_always: bool = False
    """Send ``Packhorse-Why`` and ``Server-Timing`` to clients that did not ask, too."""

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = exchange_of(request)
        offers = offers_of(request)
        await self._read_upload(request, exchange, offers)
        held = self._hold(exchange, offers)
        validators.to_upstream(exchange, self.tags)
        if offers.takes_part:
            _offer_what_can_be_undone(request, exchange)
        response = await handler(request)
        if not isinstance(response, web.Response) or response.prepared:
            return response
        codings = parse_codings(response.headers.getall("Content-Encoding", ()))
        turn = _Turn(request, exchange, offers, held, response, codings)
        try:
            await self._down(turn)
        except BaseException:
            if isinstance(response.body, Body):
                await response.body.close()
            raise
        return response

    async def _read_upload(self, request: web.Request, exchange: Exchange, offers: Offers) -> None:
        """Read what must be decoded, and what may become a base."""
        if not request.body_exists:
            return
        coded = "Content-Encoding" in request.headers
        length = request.content_length
        may_become_base = exchange.owner is not None and (offers.takes_part or exchange.opted_in)
        if coded or (may_become_base and length is not None and length <= self.settings.max_bytes):
            decoded = await self.uploads.read(request, exchange)
            if decoded and may_become_base:
                exchange.request_base = RequestBase(decoded)
            if coded and decoded is not None and exchange.kind != "prepare":
                _refuse_binary(request, decoded)
        elif may_become_base and length is None:
            exchange.copy_upload = self.settings.max_bytes

    async def _down(self, turn: _Turn) -> None:
        response = turn.response
        if response.status == 304:
            validators.weaken_as_asked(turn.request, response)
            _vary(response)
            return
        why = passing.untouched(turn.request, response)
        if why is None and response.compression:  # a service of aiohttp's that codes the body itself, later
            why = "already-coded"
        if why is None and not (DECODABLE.issuperset(turn.codings) and len(turn.codings) <= self.limits.layers):
            why = "already-coded"
        if why is None:
            why = self._passes(turn) or await self._whole(turn)
            if why is None:
                return
            if turn.codings and not turn.taken:
                self._undo_as_it_comes(turn)
            elif why not in _PASSED_AS_MEASURED:
                _vary(response)
            if passing.is_stream(response):
                response.headers.setdefault("X-Accel-Buffering", "no")  # a proxy in front would hold events back
        self._explain(turn, why)

    def _passes(self, turn: _Turn) -> str | None:
        """Why the body is not even waited for, or None."""
        offers, response = turn.offers, turn.response
        if passing.is_stream(response):
            return "streamed"
        if turn.exchange.link not in self.settings.links:
            return "link-normal"
        length = passing.declared_length(response)
        if length is not None and length > self.settings.max_bytes:
            return "too-large"
        if offers.takes_part or turn.exchange.opted_in or (turn.codings and not turn.taken):
            return None
        if turn.codings:
            return None if validators.wants_tag(turn.request, response) else "already-coded"
        if length is not None and length < self.settings.min_bytes:
            return "too-small"
        wanted = offers.taken.made or validators.wants_tag(turn.request, response)
        return None if wanted or not offers.taken.identity else "no-base"

    async def _whole(self, turn: _Turn) -> str | None:
        """Code a body that is complete in time. None once that is done, else why it passes as it comes."""
        came = await collect(turn.response, limit=self.settings.max_bytes, wait=self.settings.wait)
        turn.exchange.upstream_done_at = time.perf_counter()
        if came is None:
            return "streamed"
        content = await self._decoded(came, turn) if came else b""
        if content is None:
            return "too-large"
        bases = self._bases(turn)
        try:
            target = await self._packed(turn, content, bases)
        except ContextPackError:
            return "not-text"
        turn.exchange.original, turn.exchange.decoded = len(content), content
        material = self._material(turn, content, target, bases, Form(", ".join(turn.codings), came, "already-coded"))
        if len(content) >= self.settings.min_bytes and self._answer_unchanged(turn, material):
            return None
        if material.came is not None and not turn.offers.takes_part:
            chosen = Chosen(material.came, None)  # the upstream's own coding reaches a client that takes it
        elif len(content) < self.settings.min_bytes:
            chosen = Chosen(material.came or Form("identity", content, "too-small"), None)
        else:
            chosen = await off_loop(len(content), choose, material, turn.offers)
        self._send(turn, material, chosen, await _request_bases(turn.exchange))
        return None

    async def _decoded(self, came: bytes, turn: _Turn) -> bytes | None:
        """The body uncoded; None where it is too large to be read here and passes as it is."""
        codings, limits = turn.codings, self.limits
        if not codings:
            return came
        limit = self.settings.max_bytes
        undo = partial(decode, came, codings, limit=limit, ratio=limits.ratio, layers=limits.layers)
        try:
            return await off_loop(len(came) * _LIKELY_RATIO, undo)
        except CodingError as error:
            if error.kind == "too_large" or (turn.taken and error.kind == "ratio"):
                return None
            raise upstream_lied(error) from error

    async def _packed(self, turn: _Turn, content: bytes, bases: Sequence[Base]) -> ContextPack | None:
        """The pack of the content where somebody asks for it. Raises ContextPackError for what is not text, asked or not."""
        if not (turn.offers.taken.ctxpack or turn.exchange.opted_in or validators.wants_tag(turn.request, turn.response)):
            if not passing.is_text(content):
                raise ContextPackError("invalid_utf8", "the body is not UTF-8")
            return None
        after = next((base.pack for base in bases if base.pack is not None), None)
        return await off_loop(len(content), pack_with_digest, content, after)

    def _material(self, turn: _Turn, content: bytes, target: ContextPack | None, bases: Sequence[Base], came: Form) -> Material:
        headers = turn.request.headers
        origin = headers.get("Origin")
        ours = origin if turn.exchange.cors_allowed else None  # the upstream's word is not overruled
        allowed = turn.response.headers.get("Access-Control-Allow-Origin", ours)
        may_delta = delta_allowed(headers.get("Sec-Fetch-Site"), headers.get("Sec-Fetch-Mode"), origin, allowed)
        return Material(content, target, bases, came if turn.taken else None, may_delta, self.gzip_level)

    def _hold(self, exchange: Exchange, offers: Offers) -> dict[str, Base]:
        """The named bases that are in memory; the disk is asked for the others, which may come before the answer does."""
        if exchange.owner is None or not offers.bases:
            return {}
        scope = exchange.owner.scope
        held = {name: base for name in offers.bases if (base := self.store.find(scope, name)) is not None}
        if len(held) < len(offers.bases):
            self.store.fetch(scope, [name for name in offers.bases if name not in held])
        return held

    def _bases(self, turn: _Turn) -> Sequence[Base]:
        """Those of the named bases that are held for this caller, in its order."""
        names, owner = turn.offers.bases, turn.exchange.owner
        if owner is None:
            turn.exchange.lookups = ["unknown"] * len(names)
            return ()
        found = {name: turn.held.get(name) or self.store.find(owner.scope, name) for name in names}
        turn.exchange.lookups = ["hit" if found[name] else self.store.lookup(owner.scope, name) for name in names]
        return [base for base in found.values() if base is not None]

    def _answer_unchanged(self, turn: _Turn, material: Material) -> bool:
        """The seed's 304-style check: the client's tag of our making still fits."""
        if material.target is None or not validators.wants_tag(turn.request, turn.response):
            return False
        tag = own_tag(material.target.digest)
        turn.response.headers["ETag"] = tag
        if not validators.asked_with(turn.request, tag):
            return False
        _not_modified(turn.response)
        _vary(turn.response)
        turn.exchange.original = turn.exchange.decoded = None
        self._explain(turn, "unchanged")
        return True

    def _send(self, turn: _Turn, material: Material, chosen: Chosen, requests: Sequence[Base]) -> None:
        form, response = chosen.form, turn.response
        headers = response.headers
        turn.exchange.gzip_size = chosen.gzip_size
        if form is not material.came and (form.coding != "identity" or turn.codings):
            headers.popall("Content-Encoding", None)
            if form.coding != "identity":
                headers["Content-Encoding"] = form.coding
            for name in _OF_THE_CODING:
                headers.popall(name, None)
            validators.weaken(turn.exchange, response, self.tags)
        if len(form.body) != passing.declared_length(response):
            headers.popall("Content-Length", None)
        self._replace_body(turn, form, material, requests)
        if material.target is not None and turn.offers.taken.ctxpack:
            headers["Ctxpack-Digest"] = material.target.digest
        if len(material.content) >= self.settings.min_bytes:
            _vary(response)
        self._explain(turn, form.why)

    def _replace_body(self, turn: _Turn, form: Form, material: Material, requests: Sequence[Base]) -> None:
        """Send the form, and keep the content as a base once it was written out in full."""
        exchange, response, target = turn.exchange, turn.response, material.target
        body = Body(form.body)
        if isinstance(response.body, Body):
            body.on_end = response.body.on_end
        no_store = any(passing.cache_control(headers).no_store for headers in (response.headers, turn.request.headers))
        may_be_kept = turn.offers.takes_part or exchange.opted_in
        if target is not None and may_be_kept and 200 <= response.status < 300 and not no_store:
            bases = [Base(target.content_bytes, (target.digest,), target), *requests]

            def delivered(error: BaseException | None) -> None:
                if error is None and exchange.owner is not None:
                    self.store.keep(exchange.owner, exchange.route, bases)

            body.on_end.append(delivered)
        set_body(response, body)

    def _undo_as_it_comes(self, turn: _Turn) -> None:
        """Decode piece by piece for a client that cannot; an event stream stays one event at a time."""
        response = turn.response
        body = response.body
        assert isinstance(body, Body)
        replacement = undone(body, turn.codings, self.limits)
        for name in ("Content-Encoding", "Content-Length", *_OF_THE_CODING):
            response.headers.popall(name, None)
        validators.weaken(turn.exchange, response, self.tags)
        _vary(response)
        set_body(response, replacement)

    def _explain(self, turn: _Turn, why: str) -> None:
        exchange = turn.exchange
        exchange.why = why
        if turn.offers.asks_why or self.explain_always:
            turn.response.headers["Packhorse-Why"] = why
            done = exchange.upstream_done_at or (exchange.sent_upstream_at + exchange.upstream_seconds)
            added = time.perf_counter() - exchange.started - (done - exchange.sent_upstream_at)
            turn.response.headers.add("Server-Timing", f"packhorse;dur={max(0.0, added) * 1000:.2f}")


def _offer_what_can_be_undone(request: web.Request, exchange: Exchange) -> None:
    """The answer will be read here, so the upstream is offered no coding the gateway cannot undo (fault C16)."""
    offered = AcceptEncoding.parse(request.headers.getall("Accept-Encoding", ())).forwarded(DECODABLE)
    if offered is not None:
        exchange.outgoing["Accept-Encoding"] = offered


async def _request_bases(exchange: Exchange) -> Sequence[Base]:
    """The request as a base, where it was read and is text."""
    if exchange.request_base is not None:
        return await exchange.request_base.bases()
    if exchange.copy_upload and exchange.request_decoded:  # its last bytes may have come only now
        return await RequestBase(exchange.request_decoded).bases()
    return ()


def _refuse_binary(request: web.Request, decoded: bytes) -> None:
    """A coded chat body that claims to be JSON and is no text: the fault is the client's, and it is told."""
    if request.content_type == "application/json" and not passing.is_text(decoded):
        raise Problem("bad-request", "the request body, decoded, is not UTF-8 and so not JSON (RFC 8259 8.1)")


def _vary(response: web.Response) -> None:
    headers = response.headers
    merged = _merged_vary(tuple(headers.getall("Vary", ())))
    if merged is not None:
        headers["Vary"] = merged


@lru_cache(maxsize=256)
def _merged_vary(lines: tuple[str, ...]) -> str | None:
    return merge_vary(lines, VARY)


def _not_modified(response: web.Response) -> None:
    """Make it a 304 (RFC 9110 15.4.5)."""
    response.set_status(304)
    response.body = None
    for name in ("Content-Length", "Content-Encoding", "Content-Type", "Transfer-Encoding", *_OF_THE_CODING):
        response.headers.popall(name, None)
