"""One concern a file, each a genuine aiohttp middleware: ``async def (request, handler) -> response``.

A middleware here works in any aiohttp application. What it needs from outside (a store, counters, a clock) it takes as a
``Protocol``; nothing in this package imports :mod:`gateway` or :mod:`config`.
"""
