"""The running gateway: listeners, reload, drain.

Theory of operation. *starting*: services are opened, the pipeline is built, listeners are opened last, so that nothing is served
half-made. *serving*: each request goes to the pipeline that is current when it arrives; a reload builds a whole new pipeline and
swaps the reference, or changes nothing. *draining*: the data listener is closed, idle connections are closed, answers under way
finish within ``drain`` seconds, ``/readyz`` says 503 while ``/livez`` stays 200. *stopped*: what is left is cut, services close.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from config.addresses import Listen, parse_listen
from config.changes import changed_restart_keys
from config.errors import ConfigError
from config.schema import Configuration
from gateway import aiohttp_seams
from gateway.admin import Admin
from gateway.aiohttp_seams import bound_port
from gateway.listeners import listen_on, tls_context
from gateway.pipeline import build
from gateway.router import Router
from gateway.server import GatewayServer, Unrecorded
from gateway.services import Services, make_services

log = logging.getLogger("packhorse")

Loader = Callable[[], Configuration]


class Gateway:
    """One running gateway. Made by :func:`running`."""

    def __init__(self, configuration: Configuration, services: Services, loader: Loader | None) -> None:
        self.configuration = configuration
        self.services = services
        self.url = ""
        self.admin_url = ""
        self.port = 0
        self.drained = asyncio.Event()
        """Set once draining was asked for."""
        self.ended = asyncio.Event()
        """Set once the process should end."""
        self._loader = loader
        self._router: Router = build(configuration, services)
        self._server: GatewayServer | None = None
        self._runner: web.ServerRunner | None = None
        self._admin_runner: web.ServerRunner | None = None
        self._site: web.BaseSite | None = None
        self._started = False
        self._closing: asyncio.Task[None] | None = None
        self._stopping: asyncio.Task[None] | None = None

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Serve a request with the settings of this moment."""
        assert isinstance(request, web.Request)
        return await self._router(request)

    @property
    def draining(self) -> bool:
        """No new connections are taken."""
        return self.drained.is_set()

    def degraded(self) -> list[str]:
        """What does not work, in words."""
        store = self.services.store.degraded()
        return [f"store: {store}"] if store else []

    def end(self) -> None:
        """Drain, and end as soon as what is under way has."""
        self.ended.set()
        self.begin_drain()

    def begin_drain(self) -> None:
        """No new connections from now on; idle ones are closed. Ends after ``drain`` seconds, so that whoever asks ``/readyz``
        has the time to see it.
        """
        if self.drained.is_set():
            return
        self.drained.set()
        asyncio.get_running_loop().call_later(self.configuration.drain, self.ended.set)
        if self._site is not None and self._server is not None:
            if self._started:
                log.info("draining: answers under way have %g s", self.configuration.drain)
            self._server.drain()
            self._closing = asyncio.get_running_loop().create_task(self._site.stop())

    async def reload(self) -> list[str]:
        """Read the settings again and swap them as a whole; what was wrong, or nothing."""
        problems = self._swap()
        self.services.counters.reloaded(not problems)
        for problem in problems:
            log.error("reload refused, the settings stay as they were: %s", problem)
        if not problems:
            log.info("settings reloaded: %d routes", len(self.configuration.routes))
        return problems

    def _swap(self) -> list[str]:
        if self._loader is None:
            return ["there is no settings file to read again"]
        try:
            fresh = self._loader()
        except ConfigError as error:
            return [str(problem) for problem in error.problems]
        fixed = changed_restart_keys(self.configuration, fresh)
        if fixed:
            return [f"{key} changes only with a restart" for key in fixed]
        try:
            router = build(fresh, self.services)
        except (OSError, ValueError) as error:
            return [f"cannot be built: {type(error).__name__}"]
        self.configuration, self._router = fresh, router
        self.services.retune(fresh)
        return []

    async def start(self) -> None:
        """Open the listeners. Raises CannotListen."""
        configuration = self.configuration
        limits = configuration.limits
        recorder = self.services.recorder
        self._server = GatewayServer(self.handle, recorder=recorder, head_limit=limits.headers, keep_alive=limits.keep_alive)
        self._runner = web.ServerRunner(self._server, handle_signals=False)
        await self._runner.setup()
        address = parse_listen(configuration.listen)
        self._site = await listen_on(self._runner, address, tls_context(configuration.tls), "listen")
        self.port = bound_port(self._site)
        self.url = _url(address, self.port, "https" if configuration.tls else "http")
        if configuration.admin.listen != "off":
            await self._start_admin(parse_listen(configuration.admin.listen))
        self._started = True

    async def _start_admin(self, address: Listen) -> None:
        admin = Admin(self, self.configuration.admin.token)
        limits = self.configuration.limits
        server = GatewayServer(admin.handle, recorder=Unrecorded(), head_limit=limits.headers, keep_alive=limits.keep_alive)
        self._admin_runner = web.ServerRunner(server, handle_signals=False)
        await self._admin_runner.setup()
        site = await listen_on(self._admin_runner, address, None, "admin.listen")
        self.admin_url = _url(address, bound_port(site), "http")

    async def stop(self) -> None:
        """Drain, then close: answers under way have ``drain`` seconds. Once; a second call waits for the first."""
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        self.begin_drain()
        if self._closing is not None:
            await self._closing
        with suppress(TimeoutError):
            async with asyncio.timeout(self.configuration.drain):
                await self.services.in_flight.emptied()
        for server, runner in ((self._server, self._runner), (None, self._admin_runner)):
            if server is not None:
                await server.shutdown(0.1)
            if runner is not None:
                await runner.cleanup()
        await self.services.close()


def _url(address: Listen, port: int, scheme: str) -> str:
    if address.path is not None:
        return f"unix:{address.path}"
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address.host, address.host)  # noqa: S104
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


@asynccontextmanager
async def running(configuration: Configuration, loader: Loader | None = None) -> AsyncIterator[Gateway]:
    """A gateway that serves from here to the end of the block, and drains there. ``loader`` reads the settings for a reload.

    Raises CannotListen, with nothing left open.
    """
    aiohttp_seams.install()
    services = await make_services(configuration)
    try:
        gateway = Gateway(configuration, services, loader)
    except BaseException:
        await services.close()
        raise
    try:
        await gateway.start()
        yield gateway
    finally:
        await gateway.stop()
