"""Listeners: every kind of address, TLS, what a killed process leaves behind, and the sentence where one cannot be had."""

import asyncio
import errno
import os
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from support.certificates import Authority, authority
from support.client import ask, connect
from support.gateways import ROOT, gateway_for, settings
from support.upstream import Reply, upstream

from config.addresses import Listen, parse_listen
from config.schema import Configuration, Tls
from gateway.aiohttp_seams import bound_port
from gateway.listeners import CannotListen, _sentence, listen_on, tls_context
from gateway.service import running


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ca"))


def tls_of(ca: Authority) -> dict[str, str]:
    certificate, key = ca.certificate("localhost", "127.0.0.1")
    return {"certificate": str(certificate), "key": str(key)}


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "[::1]:0", "localhost:0"])
async def test_tcp_on_both_families(listen: str) -> None:
    async with upstream(Reply(200, [], b"ok")) as up, gateway_for(up, listen=listen) as gateway:
        assert gateway.port > 0
        assert gateway.url.endswith(f":{gateway.port}")
        assert (await ask(gateway, "GET", "/")).body == b"ok"
        if listen.startswith("["):
            assert gateway.url == f"http://[::1]:{gateway.port}"


async def test_every_address_is_shown_as_one_that_can_be_asked() -> None:
    async with upstream(Reply(200, [], b"ok")) as up, gateway_for(up, listen="0.0.0.0:0") as gateway:
        assert gateway.url == f"http://127.0.0.1:{gateway.port}"
        assert (await ask(gateway, "GET", "/")).body == b"ok"


async def test_the_admin_plane_listens_where_it_is_told(tmp_path: Path) -> None:
    for listen in ("[::1]:0", f"unix:{tmp_path}/admin"):
        async with gateway_for("http://127.0.0.1:1", admin={"listen": listen}) as gateway:
            assert (await ask(gateway.admin_url, "GET", "/livez")).status == 200
    async with gateway_for("http://127.0.0.1:1", admin={"listen": "off"}) as gateway:
        assert gateway.admin_url == ""


# Unix sockets


async def test_a_unix_socket_serves_and_may_be_had_again(tmp_path: Path) -> None:
    path = tmp_path / "gw.sock"
    async with upstream(Reply(200, [], b"ok")) as up:
        for _ in range(2):
            async with gateway_for(up, listen=f"unix:{path}") as gateway:
                assert (gateway.url, gateway.port) == (f"unix:{path}", 0)
                assert (await ask(gateway.url, "GET", "/")).body == b"ok"
                assert path.is_socket()


async def test_the_socket_file_of_a_killed_process_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "gw.sock"
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
        killed.listen()
    assert path.is_socket()
    async with upstream(Reply(200, [], b"ok")) as up, gateway_for(up, listen=f"unix:{path}") as gateway:
        assert (await ask(gateway.url, "GET", "/")).body == b"ok"


async def test_a_live_socket_is_left_to_whom_it_belongs(tmp_path: Path) -> None:
    path = tmp_path / "gw.sock"
    async with upstream(Reply(200, [], b"ok")) as up, gateway_for(up, listen=f"unix:{path}") as first:
        with pytest.raises(CannotListen, match=f"listen: unix:{path} is taken by another program"):
            async with gateway_for(up, listen=f"unix:{path}"):
                raise AssertionError("two gateways on one socket")
        assert (await ask(first.url, "GET", "/")).body == b"ok", "the first still serves"


async def test_a_busy_socket_is_live_too(tmp_path: Path) -> None:
    """A listener whose backlog is full answers nobody just now; its file is not ours to remove."""
    path = tmp_path / "gw.sock"
    with socket.socket(socket.AF_UNIX) as busy, socket.socket(socket.AF_UNIX) as waiting:
        busy.bind(str(path))
        busy.listen(0)
        waiting.connect(str(path))
        with pytest.raises(CannotListen, match="is taken by another program"):
            async with gateway_for("http://127.0.0.1:1", listen=f"unix:{path}"):
                raise AssertionError("the socket was taken over")
        assert path.is_socket()


async def test_a_file_that_is_no_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("precious")
    with pytest.raises(CannotListen):
        async with gateway_for("http://127.0.0.1:1", listen=f"unix:{path}"):
            raise AssertionError("a file was taken over")
    assert path.read_text() == "precious"


# TLS


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_tls_with_a_certificate(ca: Authority, version: ssl.TLSVersion) -> None:
    context = ca.client()
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with upstream(Reply(200, [], b"ok")) as up, gateway_for(up, tls=tls_of(ca)) as gateway:
        assert gateway.url == f"https://127.0.0.1:{gateway.port}"
        async with connect(gateway, tls=context) as client:
            assert (await client.ask("GET", "/")).body == b"ok"
            tls = client.transport.get_extra_info("ssl_object")
            assert tls.version() == {"TLSv1_2": "TLSv1.2", "TLSv1_3": "TLSv1.3"}[version.name]
            assert tls.selected_alpn_protocol() == "http/1.1"


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1 is deprecated:DeprecationWarning")
async def test_older_tls_and_plain_text_are_refused(ca: Authority) -> None:
    context = ca.client()
    context.minimum_version = ssl.TLSVersion.TLSv1_1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    async with upstream(Reply(200, [], b"ok")) as up, gateway_for(up, tls=tls_of(ca)) as gateway:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            async with connect(gateway, tls=context):
                raise AssertionError("TLS 1.1 was spoken")
        async with connect(gateway.port) as client:
            await client.send(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"HTTP/1.1 200" not in await client.to_end()
        async with connect(gateway, tls=ca.client()) as client:
            assert (await client.ask("GET", "/")).body == b"ok", "others are served on"
        assert len(up.requests) == 1


async def test_tls_on_a_unix_socket(ca: Authority, tmp_path: Path) -> None:
    loop = asyncio.get_running_loop()
    async with upstream(Reply(200, [], b"ok")) as up, gateway_for(up, tls=tls_of(ca), listen=f"unix:{tmp_path}/s") as gateway:
        path = gateway.url.removeprefix("unix:")
        transport, protocol = await loop.create_unix_connection(_Reading, path, ssl=ca.client(), server_hostname="localhost")
        transport.write(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        await asyncio.wait_for(protocol.ended.wait(), 4)
        assert protocol.data.endswith(b"ok")


class _Reading(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, error: BaseException | None) -> None:
        self.ended.set()


def test_without_tls_there_is_no_context(ca: Authority) -> None:
    assert tls_context(None) is None
    context = tls_context(Tls(**tls_of(ca)))
    assert context is not None
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2


# Where one cannot be had


def taken() -> socket.socket:
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    holder.listen()
    return holder


async def refusal(address: Listen) -> str:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        raise AssertionError

    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    try:
        with pytest.raises(CannotListen) as refused:
            await listen_on(runner, address, None, "listen")
        assert isinstance(refused.value.__cause__, OSError)
        return str(refused.value)
    finally:
        await runner.cleanup()


async def test_the_sentence_says_which_why_and_what_to_do(tmp_path: Path) -> None:
    with taken() as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        sentence = await refusal(parse_listen(address))
        assert sentence == (
            f"listen: {address} is taken by another program; stop that one, or choose another address (port 0: any free one)"
        )
    elsewhere = await refusal(parse_listen("192.0.2.1:0"))
    assert elsewhere.startswith("listen: cannot listen on 192.0.2.1:0: ")
    assert "assign requested address" in elsewhere
    assert "cannot listen on unix:" in await refusal(Listen(path=f"{tmp_path}/no/such/folder"))
    assert "no-such-host.invalid" in await refusal(parse_listen("no-such-host.invalid:0"))


def test_a_port_that_needs_a_privilege() -> None:
    sentence = _sentence(parse_listen("127.0.0.1:1"), "listen", PermissionError(errno.EACCES, "Permission denied"))
    assert "no permission to listen on 127.0.0.1:1; ports under 1024 need a privilege" in sentence


async def test_bound_port_is_the_real_one(tmp_path: Path) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        raise AssertionError

    runner = web.ServerRunner(web.Server(handler))
    await runner.setup()
    tcp = await listen_on(runner, parse_listen("127.0.0.1:0"), None, "listen")
    unix = await listen_on(runner, Listen(path=f"{tmp_path}/s"), None, "listen")
    assert (bound_port(tcp), bound_port(unix)) == (runner.addresses[0][1], 0)
    await runner.cleanup()


@pytest.mark.parametrize("which", ["listen", "admin.listen"])
async def test_a_gateway_that_cannot_listen_leaves_nothing_open(which: str) -> None:
    before = len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())
    with taken() as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        over: dict[str, Any] = {"listen": address} if which == "listen" else {"admin": {"listen": address}}
        configuration = Configuration.model_validate(settings("http://127.0.0.1:1", **over))
        with pytest.raises(CannotListen, match=f"^{which}: {address} is taken"):
            async with running(configuration):
                raise AssertionError("it listens on a taken port")
    assert (len(os.listdir("/proc/self/fd")), len(asyncio.all_tasks())) == before


@pytest.mark.parametrize("which", ["--listen", "--admin-listen"])
def test_serve_exits_1_with_the_sentence(which: str) -> None:
    with taken() as holder:
        address = f"127.0.0.1:{holder.getsockname()[1]}"
        free = {"--listen": "127.0.0.1:0", "--admin-listen": "127.0.0.1:0", which: address}
        options = [word for pair in free.items() for word in pair]
        done = subprocess.run(
            [sys.executable, "-m", "gateway", "serve", "--upstream", "http://127.0.0.1:1", *options],
            cwd=ROOT, capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
    name = which.removeprefix("--").replace("-", ".")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith(f"packhorse: {name}: {address} is taken by another program")
    assert "Traceback" not in done.stderr
