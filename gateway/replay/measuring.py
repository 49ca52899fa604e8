"""One form at a time over real sockets: ask for every turn, count what came, rebuild it, compare it.

Theory of operation. A pass is one form over all turns, in a session of its own. Its state is the pack of the turn
before, made here from the text rebuilt here. A turn counts only once its text is proven: equal byte for byte to what
the upstream was known to hold and, where the gateway named a digest, equal to that. The first thing that is not ends
the replay with the turn's number; nothing is skipped, retried or averaged.
"""

import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, DummyCookieJar
from multidict import CIMultiDict
from yarl import URL

from ctxpack import ContextPack
from gateway.replay.forms import Broken, Form, undo

_TIMEOUT = ClientTimeout(total=None, sock_connect=10, sock_read=120)
_OWN_FIELDS = ("Accept", "Accept-Encoding", "Content-Type", "User-Agent")


class ReplayFailed(Exception):
    """A turn that did not come, or did not come back to its text. The message names turn and form."""


@dataclass(frozen=True)
class Turn:
    """One request of a replay."""

    path: str
    """Path and query, as sent."""
    text: bytes | None
    """What the answer must hold; None to take what the raw form gets."""
    body: bytes | None = None
    """Body of a POST; None for a GET."""
    content_type: str = "text/plain; charset=utf-8"


@dataclass(frozen=True)
class Arrival:
    """What one turn cost the client's link, downwards."""

    turn: int
    """From 1."""
    body: int
    """Bytes of content after transfer decoding."""
    head: int
    """Bytes of status line and fields."""
    coding: str
    """``Content-Encoding``, ``identity`` where there is none."""
    text: bytes = field(repr=False)
    """The rebuilt text, proven."""


class Client:
    """A client that undoes every coding itself. To be used as a context manager."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        """``url`` is the gateway's, with any path that comes before the turns'; ``headers`` go with every request."""
        self._url = url.rstrip("/")
        self._headers = dict(headers or {})
        self._run = secrets.token_hex(6)

    async def __aenter__(self) -> "Client":
        """Open the connection pool."""
        self._session = ClientSession(
            auto_decompress=False, skip_auto_headers=_OWN_FIELDS, cookie_jar=DummyCookieJar(), timeout=_TIMEOUT
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self._session.close()

    async def run(self, form: Form, turns: Sequence[Turn]) -> AsyncIterator[Arrival]:
        """Ask for every turn in one form, in order. Raises `ReplayFailed` at the first that is not proven."""
        held: ContextPack | None = None
        for number, turn in enumerate(turns, 1):
            try:
                arrival = await self._exchange(form, number, turn, held)
            except Broken as error:
                raise ReplayFailed(f"turn {number}, {form.name}: {error}") from error
            except (ClientError, OSError, TimeoutError) as error:
                said = str(error) or type(error).__name__
                raise ReplayFailed(f"turn {number}, {form.name}: no answer from {self._url}: {said}") from error
            held = ContextPack.from_utf8(arrival.text) if form.bases == "last" else None
            yield arrival

    async def _exchange(self, form: Form, number: int, turn: Turn, held: ContextPack | None) -> Arrival:
        url = URL(self._url + turn.path, encoded=True)
        headers = self._fields(form, turn, held)
        method = "GET" if turn.body is None else "POST"
        async with self._session.request(method, url, data=turn.body, headers=headers, allow_redirects=False) as answer:
            body = await answer.read()
        if answer.status != 200:
            raise Broken(f"{method} {turn.path} was answered {answer.status}: {body[:200].decode(errors='replace')}")
        listed = answer.headers.get("Content-Encoding", "identity").lower()
        codings = [coding.strip() for coding in listed.split(",")]
        text = undo(body, codings, held)
        _prove(text, turn.text, answer.headers.get("Ctxpack-Digest"))
        return Arrival(number, len(body), _head_bytes(answer), ", ".join(codings), text)

    def _fields(self, form: Form, turn: Turn, held: ContextPack | None) -> CIMultiDict[str]:
        headers = CIMultiDict(
            {
                "User-Agent": "packhorse-replay",
                "Accept-Encoding": form.accept,
                "Packhorse-Session": f"replay-{self._run}-{form.key}",
                "Packhorse-Link": "metered",
            }
        )
        if form.bases == "none":
            headers["Ctxpack-Base"] = "none"
        elif held is not None:
            headers["Ctxpack-Base"] = held.digest
        if turn.body is not None:
            headers["Content-Type"] = turn.content_type
        headers.update(self._headers)
        return headers


def _prove(text: bytes, expected: bytes | None, digest: str | None) -> None:
    if expected is not None and text != expected:
        raise Broken(f"the answer is not the text of this turn: {len(text)} bytes instead of {len(expected)}, or altered")
    if digest is not None and digest != ContextPack.from_utf8(text).digest:
        raise Broken("Ctxpack-Digest is not the digest of the text")


def _head_bytes(answer: ClientResponse) -> int:
    """Status line, fields and the empty line, as every server writes them (one space after the colon)."""
    fields = sum(len(name) + len(value) + 4 for name, value in answer.raw_headers)
    return len(f"HTTP/1.1 {answer.status} {answer.reason}\r\n") + fields + 2
