"""What the load process is asked to do, and what it found: the two messages between it and the measuring process."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Job:
    """One window of load against one server. Times are seconds."""

    port: int
    size: str
    """Class of document."""
    connections: int
    warm: float
    """Load that is not measured, before the window."""
    seconds: float
    """Length of the window; for a count of requests, the most it may take."""
    name: str
    """Begins the names of the sessions of this window, so that no other window continues them."""
    normal_link: bool = False
    """Say ``Packhorse-Link: normal``."""
    requests: int | None = None
    """End after so many requests instead of after ``seconds``; each is then a session of its own."""
    pids: tuple[int, ...] = ()
    """Processes of the server, for their CPU time."""
    load_pids: tuple[int, ...] = ()
    """Processes on the other core beside the load itself."""
    samples: int = 12
    """Most bodies that are rebuilt and compared after the window."""

    def line(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, line: str) -> "Job":
        """From one."""
        fields: dict[str, Any] = json.loads(line)
        return cls(**{**fields, "pids": tuple(fields["pids"]), "load_pids": tuple(fields["load_pids"])})


@dataclass(slots=True)
class Found:
    """What one window showed. ``error`` is set where the figures are not to be used."""

    requests: int = 0
    seconds: float = 0.0
    p50_ms: float = 0.0
    p95_ms: float = 0.0
    server_cpu_ms: float = 0.0
    """CPU time of the server's processes for each request."""
    server_main_ms: float = 0.0
    """What of it their main threads used: of the gateway, the event loop without its background threads."""
    server_busy: float = 0.0
    """Share of the window for which the server's processes had a core."""
    load_busy: float = 0.0
    """The same for load and upstream, which share the other core."""
    body_bytes: float = 0.0
    """Body bytes of an answer as they crossed, on average."""
    deltas: int = 0
    """Answers of the window that were deltas."""
    verified: int = 0
    """Bodies that were rebuilt and compared, byte for byte."""
    error: str = ""
    codings: dict[str, int] = field(default_factory=dict)
    """Content-Encoding of the verified bodies."""

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds if self.seconds else 0.0

    def line(self) -> str:
        """As one line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, line: str) -> "Found":
        """From one."""
        return cls(**json.loads(line))
