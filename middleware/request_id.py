"""A name for each exchange, so that every later line can say which one it speaks of."""

import itertools
import secrets

from aiohttp import web

from middleware.exchange import exchange_of
from middleware.problems import Handler

_start = secrets.token_hex(4)
_count = itertools.count(1)


@web.middleware
async def request_id(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Unique in this process and, with high probability, among all."""
    exchange_of(request).id = f"{_start}-{next(_count):x}"
    return await handler(request)
