"""The load: a process of its own that takes jobs as lines of JSON and prints what it found. ``python -m benchmarks.load``

Closed loop: each connection has one request under way, and the next is sent when the answer is whole. Every request asks for the
next turn of a meeting and names the turn before as the base it holds, as a client of Packhorse does; every server gets the very
same requests. Bodies are put aside as they come, a sample of them, and rebuilt after the window, so that checking costs the
measurement nothing.
"""

import asyncio
import gc
import itertools
import re
import statistics
import sys
import time
import zlib

import uvloop

from benchmarks.connection import Connection, unchunked
from benchmarks.documents import TURNS, turns
from benchmarks.jobs import Found, Job
from benchmarks.processes import cpu_seconds
from ctxpack import ContextPack, ContextPackDelta, apply_delta

_CODING = re.compile(rb"\r\ncontent-encoding: *([^\r]+)", re.IGNORECASE)
_EVERY = 17
"""One answer of so many is a sample; prime, so that all turns come up."""
_GRACE = 10.0
"""Seconds after which a job that has not ended is given up."""


class Load:
    """One job under way."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.turns = turns(job.size)
        link = b"Packhorse-Link: normal\r\n" if job.normal_link else b""
        common = b"Host: bench\r\nAccept: text/markdown\r\nAccept-Encoding: ctxpack.delta.v1, gzip\r\n" + link
        self._first = [b"GET %b HTTP/1.1\r\n%b" % (turn.path.encode(), common) for turn in self.turns]
        digests = [b"", *(turn.digest.encode() for turn in self.turns)]
        self._later = [b"%bCtxpack-Base: %b\r\n" % pair for pair in zip(self._first, digests, strict=False)]
        self._numbers = itertools.count()
        self._asked = self._answered = 0
        self.connections: list[Connection] = []
        self.finished = asyncio.Event()
        self.measuring = self.stopped = False
        self.latencies: list[float] = []
        self.bytes = self.deltas = 0
        self.samples: list[tuple[int, bytes, bytes]] = []
        self.error = ""

    def open(self, number: int) -> Connection:
        """A connection; they begin at different turns, so that they do not all start meetings at once."""
        connection = Connection(self.ask, self.answered, self.failed)
        self._new_session(connection)
        connection.turn = number * TURNS // self.job.connections
        self.connections.append(connection)
        return connection

    def _new_session(self, connection: Connection) -> None:
        connection.session = b"Packhorse-Session: %b-%d\r\n\r\n" % (self.job.name.encode(), next(self._numbers))
        connection.turn, connection.fresh = 0, True

    def ask(self, connection: Connection) -> bytes | None:
        """The next request of a connection."""
        if self.stopped or self._asked == self.job.requests:
            if self._answered == self._asked:
                self.finished.set()
            return None
        self._asked += 1
        request = (self._first if connection.fresh else self._later)[connection.turn]
        return request + connection.session

    def answered(self, connection: Connection, seconds: float, head: bytes, body: memoryview) -> None:
        """Note it, and go on to the next turn."""
        self._answered += 1
        if self.measuring:
            self.latencies.append(seconds)
            self.bytes += len(body)
            self.deltas += b"ctxpack.delta.v1" in head
            if len(self.latencies) % _EVERY == 1 and len(self.samples) < self.job.samples:
                self.samples.append((connection.turn, head, bytes(body)))
        connection.fresh = False
        connection.turn += 1
        if connection.turn == TURNS or self.job.requests is not None:
            turn = connection.turn % TURNS
            self._new_session(connection)
            connection.turn = turn if self.job.requests is not None else 0

    def failed(self, why: str) -> None:
        """A figure would mean nothing any more."""
        self.error = self.error or why
        self.stopped = True
        self.finished.set()

    def verify(self, found: Found) -> None:
        """Rebuild the samples as a client would, from what it holds and nothing else."""
        for turn, head, body in self.samples:
            coding = (_CODING.search(head) or (b"", b"identity"))[1].decode()
            content = unchunked(body) if b"chunked" in head else body
            base = ContextPack.from_utf8(self.turns[turn - 1].body) if turn else None
            if _rebuilt(content, coding, base) != self.turns[turn].body:
                found.error = f"turn {turn} in {coding} came out as another text"
                return
            found.verified += 1
            found.codings[coding] = found.codings.get(coding, 0) + 1


def _rebuilt(body: bytes, codings: str, base: ContextPack | None) -> bytes:
    for coding in reversed(codings.split(", ")):
        if coding == "gzip":
            body = zlib.decompress(body, wbits=31)
        elif coding == "ctxpack.delta.v1":
            assert base is not None
            body = apply_delta(base, ContextPackDelta.from_bytes(body)).content_bytes
        elif coding != "identity":
            raise ValueError(f"{coding} was not asked for")
    return body


async def run(job: Job) -> Found:
    """Do one job."""
    load = Load(job)
    load.measuring = job.requests is not None
    loop = asyncio.get_running_loop()
    for number in range(job.connections):
        await loop.create_connection(lambda number=number: load.open(number), "127.0.0.1", job.port)  # type: ignore[misc]
    if job.warm:
        await _pause(load, job.warm)
    gc.collect()
    gc.disable()
    cpu, main_cpu = cpu_seconds(job.pids), cpu_seconds(job.pids, main_only=True)
    others = cpu_seconds(job.load_pids) + time.process_time()
    begun = time.perf_counter()
    load.measuring = True
    await _pause(load, job.seconds)
    load.measuring = False
    seconds = time.perf_counter() - begun
    cpu, main_cpu = cpu_seconds(job.pids) - cpu, cpu_seconds(job.pids, main_only=True) - main_cpu
    others = cpu_seconds(job.load_pids) + time.process_time() - others
    gc.enable()
    load.stopped = True
    for connection in load.connections:
        connection.close()
    found = _summary(load, seconds)
    found.server_busy, found.load_busy = cpu / seconds, others / seconds
    if found.requests:
        found.server_cpu_ms, found.server_main_ms = cpu / found.requests * 1000, main_cpu / found.requests * 1000
    return found


async def _pause(load: Load, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await load.finished.wait()
    except TimeoutError:
        return


def _summary(load: Load, seconds: float) -> Found:
    latencies, count = load.latencies, len(load.latencies)
    found = Found(requests=count, seconds=seconds, error=load.error)
    if count < 2:
        found.error = found.error or "nothing was answered in the window"
        return found
    found.p50_ms = statistics.median(latencies) * 1000
    found.p95_ms = statistics.quantiles(latencies, n=20, method="inclusive")[-1] * 1000
    found.body_bytes = load.bytes / count
    found.deltas = load.deltas
    if not found.error:
        load.verify(found)
    return found


async def _bounded(job: Job) -> Found:
    try:
        return await asyncio.wait_for(run(job), job.warm + job.seconds + _GRACE)
    except (OSError, TimeoutError, ValueError, zlib.error) as error:
        return Found(error=f"{type(error).__name__}: {error}")


def main() -> None:
    """Take jobs until standard input ends."""
    for line in sys.stdin:
        sys.stdout.write(uvloop.run(_bounded(Job.read(line))).line() + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
