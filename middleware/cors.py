"""Pages of other origins that use a Context Pack receiver (WHATWG Fetch, CORS): preflights for the gateway's own fields.

The upstream is asked first. What it allows stays as it is and is extended by our fields; where it knows nothing of CORS, the
gateway answers for the origins it was given. Without ``cors.origins`` this middleware changes nothing.
"""

from aiohttp import web
from multidict import CIMultiDict

from middleware.body import Body
from middleware.exchange import exchange_of
from middleware.fields import tokens
from middleware.negotiation import merge_vary
from middleware.problems import Handler
from middleware.settings import Settings

REQUEST_FIELDS = ("Ctxpack-Accept", "Ctxpack-Base", "Packhorse-Session", "Packhorse-Link", "Packhorse-Debug")
RESPONSE_FIELDS = ("Content-Encoding", "Ctxpack-Digest", "ETag", "Packhorse-Session", "Packhorse-Why", "Server-Timing")
_MAX_AGE = "7200"
_PREFLIGHT_VARY = ("Origin", "Access-Control-Request-Method", "Access-Control-Request-Headers")


class Cors(Settings):
    """Pages of other origins that use a Context Pack receiver."""

    origins: tuple[str, ...] = ()
    """Origins for which the gateway answers preflights for its own fields and exposes its response fields; ``*`` for any."""


@web.middleware
class CrossOrigin:
    """The middleware."""

    def __init__(self, cors: Cors) -> None:
        self._origins = frozenset(origin.lower() for origin in cors.origins)
        self._any = "*" in cors.origins

    async def __call__(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        origin = request.headers.get("Origin")
        if origin is None or not (self._any or origin.lower() in self._origins):
            return await handler(request)
        exchange_of(request).cors_allowed = True
        response = await handler(request)
        if response.prepared:
            return response
        if request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers:
            return await self._preflight(request, response, origin)
        headers = response.headers
        self._allow(headers, origin)
        exposed = [name for name in RESPONSE_FIELDS if name in headers]
        if exposed:
            headers["Access-Control-Expose-Headers"] = _merged(headers, "Access-Control-Expose-Headers", exposed)
        return response

    async def _preflight(self, request: web.Request, response: web.StreamResponse, origin: str) -> web.StreamResponse:
        asked = tokens(request.headers.getall("Access-Control-Request-Headers", ()))
        ours = [name for name in REQUEST_FIELDS if name.lower() in asked]
        if response.status >= 300 or "Access-Control-Allow-Origin" not in response.headers:
            if isinstance(response, web.Response) and isinstance(response.body, Body):
                await response.body.close()
            answered = web.Response(status=204)
            method = request.headers["Access-Control-Request-Method"]
            answered.headers["Access-Control-Allow-Methods"] = method
            answered.headers["Access-Control-Allow-Headers"] = ", ".join(
                tokens(request.headers.getall("Access-Control-Request-Headers", ()))
            )
            answered.headers["Access-Control-Max-Age"] = _MAX_AGE
            self._allow(answered.headers, origin, vary=_PREFLIGHT_VARY)
            return answered
        if ours and response.headers.get("Access-Control-Allow-Headers", "").strip() != "*":
            response.headers["Access-Control-Allow-Headers"] = _merged(response.headers, "Access-Control-Allow-Headers", ours)
        return response

    def _allow(self, headers: "CIMultiDict[str]", origin: str, vary: tuple[str, ...] = ("Origin",)) -> None:
        """Let the page read the response, unless the upstream has decided about that itself."""
        if "Access-Control-Allow-Origin" not in headers:
            headers["Access-Control-Allow-Origin"] = origin
            if not self._any:
                headers["Access-Control-Allow-Credentials"] = "true"
        merged = merge_vary(headers.getall("Vary", ()), vary)
        if merged is not None:
            headers.popall("Vary", None)
            headers["Vary"] = merged


def _merged(headers: "CIMultiDict[str]", name: str, added: "list[str] | tuple[str, ...]") -> str:
    present = headers.popall(name, [])
    known = set(tokens(present))
    return ", ".join([*present, *(item for item in added if item.lower() not in known)])
