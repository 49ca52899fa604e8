"""The comparison with gzip: three sizes of the same bodies, within a budget, and everything else counted as skipped."""

import gzip
import random
import threading
import time
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.comparison import BURST, QUEUE_BYTES, QUEUE_COUNT, TOO_LARGE, GzipComparison
from gateway.metric_table import SKIPS

ROUTES = st.sampled_from(["chat", "prepare"])


class Ledger:
    """What the comparison reported, under a lock of its own."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.results: list[tuple[str, str, int, int, int]] = []
        self.skips: list[tuple[str, str]] = []

    def result(self, route: str, direction: str, original: int, sent: int, gzipped: int) -> None:
        with self.lock:
            self.results.append((route, direction, original, sent, gzipped))

    def skip(self, route: str, reason: str) -> None:
        with self.lock:
            self.skips.append((route, reason))

    @property
    def ends(self) -> int:
        return len(self.results) + len(self.skips)


def comparison(ledger: Ledger, level: int = 6, share: float = 1.0, **clocks: object) -> GzipComparison:
    return GzipComparison(level, share, ledger.result, ledger.skip, **clocks)  # type: ignore[arg-type]


def test_the_size_is_what_gzip_makes_of_the_body() -> None:
    ledger = Ledger()
    bodies = [b"", b"a", b"minutes of the meeting\n" * 4000, random.Random(1).randbytes(700_000)]
    compared = comparison(ledger, level=9)
    for body in bodies:
        compared.offer("prepare", "down", body, 7, None)
    assert compared.drained(10)
    compared.close()
    assert ledger.results == [("prepare", "down", len(b), 7, len(gzip.compress(b, 9, mtime=0))) for b in bodies]
    assert ledger.skips == []


def test_a_known_size_costs_nothing_and_needs_no_thread() -> None:
    ledger = Ledger()
    compared = comparison(ledger, share=0)
    before = threading.active_count()
    compared.offer("chat", "up", b"x" * 100, 90, 31)
    assert threading.active_count() == before
    assert ledger.results == [("chat", "up", 100, 90, 31)]
    compared.close()


def test_offer_returns_at_once_and_the_event_loops_thread_does_not_compress() -> None:
    ledger = Ledger()
    compared = comparison(ledger)
    body = random.Random(2).randbytes(8 * 2**20)
    begun = time.thread_time()
    compared.offer("chat", "down", body, 1, None)
    assert time.thread_time() - begun < 0.02
    assert compared.drained(20)
    compared.close()
    assert len(ledger.results) == 1


def test_no_share_means_nothing_is_compressed() -> None:
    ledger = Ledger()
    compared = comparison(ledger, share=0)
    compared.offer("chat", "down", b"text" * 1000, 10, None)
    compared.close()
    assert (ledger.results, ledger.skips) == ([], [("chat", "budget")])


def test_other_settings_take_effect_at_once() -> None:
    ledger = Ledger()
    now = 0.0
    compared = comparison(ledger, level=1, share=0, clock=lambda: now)
    body = b"a line of some length\n" * 3000
    compared.offer("chat", "down", body, 10, None)
    compared.tune(9, 0.5)
    now = 1.0
    compared.offer("chat", "down", body, 10, None)
    assert compared.drained(5)
    compared.tune(9, 0)
    compared.offer("chat", "down", body, 10, None)
    compared.close()
    assert ledger.results == [("chat", "down", len(body), 10, len(gzip.compress(body, 9, mtime=0)))]
    assert ledger.skips == [("chat", "budget")] * 2


def test_larger_bodies_than_the_limit_are_skipped() -> None:
    ledger = Ledger()
    compared = comparison(ledger)
    compared.offer("chat", "down", bytes(TOO_LARGE + 1), 10, None)
    compared.offer("chat", "down", bytes(TOO_LARGE), 10, None)
    assert compared.drained(20)
    compared.close()
    assert ledger.skips == [("chat", "too-large")]
    assert ledger.results == [("chat", "down", TOO_LARGE, 10, len(gzip.compress(bytes(TOO_LARGE), 6, mtime=0)))]


def test_the_queue_is_bounded_by_count_and_by_bytes() -> None:
    for body, most in ((b"small", QUEUE_COUNT), (bytes(TOO_LARGE), QUEUE_BYTES // TOO_LARGE)):
        ledger = Ledger()
        hold, held = threading.Event(), threading.Event()

        def stuck(hold: threading.Event = hold, held: threading.Event = held) -> float:
            held.set()
            hold.wait(20)
            return 0.0

        compared = comparison(ledger, cpu_clock=stuck)
        compared.offer("chat", "down", b"the one being worked on", 1, None)
        assert held.wait(5)
        for _ in range(most + 3):
            compared.offer("chat", "down", body, 1, None)
        assert ledger.skips == [("chat", "busy")] * 3
        compared_threads = [t for t in threading.enumerate() if t.name == "gzip-comparison"]
        assert len(compared_threads) == 1, "one worker, however much there is to do"
        begun = time.monotonic()
        compared.close(0.2)
        assert time.monotonic() - begun < 2, "close is bounded even while the worker hangs"
        assert ledger.skips == [("chat", "busy")] * (3 + most)
        hold.set()
        compared_threads[0].join(5)
        assert not compared_threads[0].is_alive()


def test_after_close_everything_is_skipped() -> None:
    ledger = Ledger()
    compared = comparison(ledger)
    compared.close()
    compared.offer("chat", "down", b"late", 1, None)
    assert ledger.skips == [("chat", "busy")]
    compared.close()


def test_close_interrupts_a_long_body() -> None:
    ledger = Ledger()
    compared = comparison(ledger, level=9)
    compared.offer("chat", "down", random.Random(3).randbytes(TOO_LARGE // 2) * 2, 1, None)
    time.sleep(0.05)
    begun = time.monotonic()
    compared.close(5)
    assert time.monotonic() - begun < 2
    assert ledger.ends == 1


def test_real_cpu_time_stays_within_the_share() -> None:
    ledger = Ledger()
    share = 0.05
    compared = comparison(ledger, share=share)
    words = " ".join(str(random.Random(4).random()) for _ in range(2000)).encode()
    body = words * (2**20 // len(words))
    begun_process, begun_thread, begun = time.process_time(), time.thread_time(), time.monotonic()
    while time.monotonic() - begun < 2.0:
        compared.offer("chat", "down", body, 1, None)
        time.sleep(0.002)
    assert compared.drained(5)
    used = time.process_time() - begun_process - (time.thread_time() - begun_thread)
    one = used / max(1, len(ledger.results))
    elapsed = time.monotonic() - begun
    compared.close()
    assert ledger.results, "some were compared"
    reasons = {reason for _, reason in ledger.skips}
    assert "budget" in reasons
    assert reasons <= {"budget", "busy"}
    assert used <= share * (elapsed + BURST) + 3 * one + 0.05


@settings(max_examples=40, deadline=None)
@given(
    share=st.floats(0.01, 1),
    costs=st.lists(st.floats(0, 2), min_size=1, max_size=40),
    pauses=st.lists(st.floats(0, 3), min_size=40, max_size=40),
)
def test_the_budget_holds_over_the_whole_run(share: float, costs: list[float], pauses: list[float]) -> None:
    """Whatever bodies cost and whenever they come, use stays under share x (time + burst) + one body. By clocks of its own."""
    now, used, worker_reads = 0.0, 0.0, 0
    queue = list(costs)

    def cpu_clock() -> float:
        nonlocal worker_reads, used
        worker_reads += 1
        if worker_reads % 2 == 0:
            used += queue[0]
        return used

    ledger = Ledger()
    compared = comparison(ledger, share=share, clock=lambda: now, cpu_clock=cpu_clock)
    for pause in pauses[: len(costs)]:
        compared.offer("chat", "down", b"body", 1, None)
        assert compared.drained(5)
        queue.append(queue.pop(0))
        assert used <= share * (now + BURST) + max(costs) + 1e-6
        now += pause
    compared.close()
    assert ledger.ends == len(costs)


@settings(max_examples=25, deadline=None)
@given(
    offers=st.lists(
        st.tuples(
            st.sampled_from(["chat", "prepare"]), st.binary(max_size=300), st.integers(0, 500), st.none() | st.integers(0, 500)
        ),
        max_size=60,
    ),
    share=st.sampled_from([0.0, 0.5, 1.0]),
)
def test_each_body_ends_exactly_once_and_whole(offers: list[tuple[str, bytes, int, int | None]], share: float) -> None:
    ledger = Ledger()
    compared = comparison(ledger, share=share)
    for route, body, sent, known in offers:
        compared.offer(route, "down", body, sent, known)
    assert compared.drained(10)
    compared.close()
    assert ledger.ends == len(offers)
    assert {reason for _, reason in ledger.skips} <= set(SKIPS)
    assert Counter(route for route, *_ in offers) == Counter(r[0] for r in ledger.results) + Counter(s[0] for s in ledger.skips)
    if share:
        expected = Counter((len(b), s, len(gzip.compress(b, 6, mtime=0)) if k is None else k) for _, b, s, k in offers)
        assert Counter(r[2:] for r in ledger.results) == expected
