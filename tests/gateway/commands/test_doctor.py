"""The doctor against real servers: sockets that answer, refuse, keep silent, talk nonsense, or show a wrong certificate."""

import asyncio
import socket
import ssl
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import orjson
import pytest
from support.certificates import Authority, authority

from config.loader import load
from config.schema import Configuration, Route, UpstreamTls
from gateway.commands import doctor
from gateway.commands.findings import Finding
from gateway.commands.machine_probes import probe_machine
from gateway.commands.upstream_probe import probe_route

OK = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
Command = Callable[..., tuple[int, str, str]]


class Upstream:
    """Answers every connection with the same bytes and keeps what it was asked."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.asked: list[bytes] = []
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.asked.append(await reader.readuntil(b"\r\n\r\n"))
        if self.answer is None:
            await reader.read()  # until the client leaves
        else:
            writer.write(self.answer)
        writer.close()
        self.left.set()


@asynccontextmanager
async def upstream(answer: bytes | None, tls: ssl.SSLContext | None = None) -> AsyncIterator[tuple[str, Upstream]]:
    served = Upstream(answer)
    server = await asyncio.start_server(served.serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", served


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority(tmp_path_factory.mktemp("ca"))


async def probe(url: str, *, patience: float = 5.0, **route: object) -> list[Finding]:
    return await probe_route(Route.model_validate({"name": "r", "upstream": url} | route), patience=patience, head_limit=1000)


def last(findings: list[Finding]) -> tuple[str, str]:
    return findings[-1].what, findings[-1].state


async def test_an_upstream_that_answers_is_asked_one_head_and_nothing_else() -> None:
    async with upstream(OK) as (address, served):
        findings = await probe(f"http://{address}/base", host="api.example")
    assert [(f.what, f.state) for f in findings] == [
        ("route r: name", "ok"),
        ("route r: connection", "ok"),
        ("route r: HEAD", "ok"),
    ]
    assert served.asked == [b"HEAD /base HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\nAccept: */*\r\n\r\n"]


@pytest.mark.parametrize(
    ("answer", "state", "detail"),
    [
        (b"HTTP/1.1 503 Busy\r\n\r\n", "degraded", "status 503"),
        (b"HTTP/1.1 401 No\r\nX: " + b"x" * 600 + b"\r\n\r\n", "degraded", "head of 620 bytes"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 2000 + b"\r\n\r\n", "failed", "head of"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "failed", "not HTTP/1"),
        (b"", "failed", "not HTTP/1"),
        (None, "degraded", "no answer within 0.2 s"),
    ],
)
async def test_what_an_upstream_answers(answer: bytes | None, state: str, detail: str) -> None:
    async with upstream(answer) as (address, served):
        findings = await probe(f"http://{address}", patience=0.2)
        await asyncio.wait_for(served.left.wait(), 5)
    assert last(findings) == ("route r: HEAD", state)
    assert detail in findings[-1].detail
    assert findings[-1].advice


async def test_an_upstream_that_is_not_there() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound and not listening: refused
        findings = await probe(f"http://127.0.0.1:{held.getsockname()[1]}")
    assert last(findings) == ("route r: connection", "failed")
    assert findings[-1].advice


async def test_a_name_nobody_has() -> None:
    findings = await probe("http://nobody.invalid")
    assert [(f.what, f.state) for f in findings] == [("route r: name", "failed")]


async def test_certificates_are_verified(made: Authority) -> None:
    trusted = UpstreamTls(ca=made.ca)
    async with upstream(OK, made.server("127.0.0.1")) as (address, served):
        good = await probe(f"https://{address}", tls=trusted)
        unknown = await probe(f"https://{address}")
        named = await probe(f"https://{address}", tls=UpstreamTls(ca=made.ca, server_name="other.example"))
    assert [f.state for f in good] == ["ok", "ok", "ok", "ok"]
    assert "verified, TLSv1." in good[2].detail
    for findings in (unknown, named):
        assert last(findings) == ("route r: certificate", "failed")
        assert "tls.ca" in findings[-1].advice
    assert len(served.asked) == 1


async def test_https_to_a_plain_port(made: Authority) -> None:
    async with upstream(OK) as (address, _):
        findings = await asyncio.wait_for(probe(f"https://{address}", patience=0.3), 5)
    assert last(findings) == ("route r: certificate", "failed")
    assert "http://" in findings[-1].advice


async def test_a_unix_upstream(tmp_path: Path) -> None:
    served, path = Upstream(OK), tmp_path / "s.sock"
    async with await asyncio.start_unix_server(served.serve, path):
        assert last(await probe(f"unix:{path}")) == ("route r: HEAD", "ok")
    assert served.asked[0].startswith(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n")
    path.unlink(missing_ok=True)
    assert last(await probe(f"unix:{path}")) == ("route r: socket", "failed")


def machine(**overrides: object) -> dict[str, Finding]:
    free = {"listen": "127.0.0.1:0", "admin.listen": "127.0.0.1:0", "upstream": "http://u"}
    given = {key.replace("__", "."): value for key, value in overrides.items()}
    configuration: Configuration = load(None, environ={}, overrides=free | given)
    return {finding.what: finding for finding in probe_machine(configuration)}


def test_a_machine_in_order(tmp_path: Path) -> None:
    found = machine(store__kind="sqlite", store__path=f"{tmp_path}/deep/s.sqlite3", bases__total_bytes=1)
    assert {what: finding.state for what, finding in found.items() if what != "open files"} == {
        "store": "ok", "store: space": "ok", "coding zstd": "ok", "coding br": "ok", "listen": "ok", "admin.listen": "ok",
    }  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_a_store_in_disorder(tmp_path: Path) -> None:
    file = tmp_path / "s.sqlite3"
    file.write_bytes(b"this is no database, whatever its name says" * 100)
    file.chmod(0o644)
    file.with_name("s.sqlite3.key").write_bytes(b"x" * 32)
    file.with_name("s.sqlite3.key").chmod(0o640)
    found = machine(store__kind="sqlite", store__path=str(file), bases__total_bytes=2**62)
    for what, advice in (
        ("store: space", "bases.total_bytes"),
        ("store: mode", "chmod 600"),
        ("store: key", "chmod 600"),
        ("store: file", "aside"),
    ):
        assert found[what].state == "degraded"
        assert advice in found[what].advice
    assert stat.S_IMODE(file.stat().st_mode) == 0o644


def test_ports_in_use_by_a_stranger(tmp_path: Path) -> None:
    path = tmp_path / "s.sock"
    with socket.socket() as taken, socket.socket(socket.AF_UNIX) as taken_path:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        taken_path.bind(str(path))
        taken_path.listen()
        found = machine(listen=f"127.0.0.1:{taken.getsockname()[1]}", admin__listen=f"unix:{path}")
    assert [found[key].state for key in ("listen", "admin.listen")] == ["failed", "failed"]
    assert "address already in use" in found["listen"].detail
    assert found["listen"].advice == "stop what listens there, or change listen"


async def test_ports_in_use_by_a_gateway_that_is_up() -> None:
    async with upstream(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok") as (address, served):
        found = await asyncio.to_thread(machine, admin__listen=address)
    assert served.asked[0].startswith(b"GET /livez ")
    assert found["admin.listen"] == Finding("admin.listen", "ok", f"{address} is in use by a gateway that is up")


def test_the_command_tells_states_first_and_fails_when_something_did(command: Command) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}"
        environ = {"PACKHORSE_LISTEN": "127.0.0.1:0", "PACKHORSE_ADMIN__LISTEN": "off"}
        code, out, _ = command(doctor, "--upstream", url, **environ)
        json_code, json_out, _ = command(doctor, "--upstream", url, "--json", **environ)
    assert code == json_code == 1
    failed = [line for line in out.splitlines() if line.startswith("failed")]
    assert len(failed) == 1
    assert failed[0].startswith("failed    route chat-completions and 4 more: connection")
    assert "connection refused -> is the service running" in failed[0]
    assert {finding["state"] for finding in orjson.loads(json_out)} >= {"ok", "failed"}


def test_on_a_terminal_it_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    doctor._print_table([Finding("route [bold]r", "failed", "no", "look [/bold] there"), Finding("store", "ok", "fine")])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines == ["what found what to do", "route [bold]r failed no look [/bold] there", "store ok fine"]


def test_settings_that_cannot_be_used(command: Command) -> None:
    assert command(doctor)[0] == 2
