"""Which class of link the client is on: weak, metered or normal (contract 3, order of evidence)."""

from typing import Annotated, Literal

from aiohttp import web
from multidict import CIMultiDictProxy
from pydantic import AfterValidator

from middleware.exchange import exchange_of
from middleware.forwarded import inside, networks
from middleware.problems import Handler
from middleware.settings import Settings

LinkClass = Literal["weak", "metered", "normal"]
CLASSES = ("weak", "metered", "normal")


def _network(value: str) -> str:
    networks([value])
    return value


Network = Annotated[str, AfterValidator(_network)]
"""A client network in CIDR notation, such as ``10.0.0.0/8`` or ``2001:db8::/32``."""


class NetworkLink(Settings):
    """A client network and its link class."""

    cidr: Network
    """Client addresses."""
    link: LinkClass
    """Their class."""


class Link(Settings):
    """What is known of the client's link. The client's own word (``Packhorse-Link``) and its hints come first."""

    assume: LinkClass = "metered"
    """Class where nothing else is known."""
    networks: tuple[NetworkLink, ...] = ()
    """Classes by client network; the first that matches."""


@web.middleware
class LinkClassifier:
    """Classifies by the client's word, its hints, the route, its network, and last the assumption."""

    def __init__(self, link: Link, route_link: LinkClass | None) -> None:
        self._assume = link.assume
        self._route = route_link
        self._networks = [(networks([entry.cidr]), entry.link) for entry in link.networks]

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        exchange = exchange_of(request)
        exchange.link, exchange.link_evidence = self.classify(request.headers, exchange.peer)
        return await handler(request)

    def classify(self, headers: CIMultiDictProxy[str], address: str | None) -> tuple[LinkClass, str]:
        """Class and the evidence that decided."""
        said = headers.getall("Packhorse-Link", ())
        if len(said) == 1 and (word := said[0].strip().lower()) in CLASSES:
            return word, "said"  # type: ignore[return-value]
        hinted = hints(headers)
        if hinted is not None:
            return hinted, "hint"
        if self._route is not None:
            return self._route, "route"
        for nets, link in self._networks:
            if inside(address, nets):
                return link, "network"
        return self._assume, "assumed"


def hints(headers: CIMultiDictProxy[str]) -> LinkClass | None:
    """What client hints say: they can make a link weak or metered, never normal.

    ``Save-Data: on`` is metered. ``ECT`` other than 4g, ``Downlink`` under 1 Mbit/s or ``RTT`` over 400 ms is weak
    (Network Information API: 3g starts at 270 ms and ends at 0.7 Mbit/s).
    """
    if headers.get("ECT", "4g").strip().strip('"').lower() in ("slow-2g", "2g", "3g"):
        return "weak"
    downlink, rtt = _number(headers.get("Downlink")), _number(headers.get("RTT"))
    if (downlink is not None and downlink < 1.0) or (rtt is not None and rtt > 400):
        return "weak"
    if headers.get("Save-Data", "").strip().lower() in ("on", "?1"):
        return "metered"
    return None


def _number(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None
