"""What /metrics says, parsed as Prometheus would."""

from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families
from support.channel import eventually
from support.client import ask
from support.messages import Response

Key = tuple[str, frozenset[tuple[str, str]]]


@dataclass
class Scrape:
    """``samples`` by name and labels."""

    response: Response
    samples: dict[Key, float]

    def total(self, name: str, **labels: str) -> float:
        """Sum of all samples of that name with those labels (0 where there is none)."""
        wanted = set(labels.items())
        return sum(value for (sample, given), value in self.samples.items() if sample == name and wanted <= given)

    def by(self, name: str, label: str, **labels: str) -> dict[str, float]:
        """The same, by one label's values; zeroes left out."""
        out: dict[str, float] = {}
        for (sample, given), value in self.samples.items():
            if sample == name and set(labels.items()) <= given and value:
                key = dict(given)[label]
                out[key] = out.get(key, 0) + value
        return out

    def series(self, prefix: str = "packhorse_") -> set[Key]:
        return {key for key in self.samples if key[0].startswith(prefix)}


def parse(text: str) -> dict[Key, float]:
    samples: dict[Key, float] = {}
    families = set()
    for family in text_string_to_metric_families(text):
        assert family.name not in families, f"{family.name} is there twice"
        families.add(family.name)
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in samples, f"sample {key} is there twice"
            samples[key] = sample.value
    return samples


async def scrape(gateway: Any) -> Scrape:
    response = await ask(gateway.admin_url, "GET", "/metrics")
    assert response.status == 200
    return Scrape(response, parse(response.body.decode()))


async def counted(gateway: Any, name: str, at_least: float = 1, **labels: str) -> Scrape:
    """A scrape in which that sum has been reached: counters are written when an exchange ends, a moment after its last byte."""
    last: list[Scrape] = []

    async def reached() -> bool:
        last[:] = [await scrape(gateway)]
        return last[0].total(name, **labels) >= at_least

    await eventually(reached)
    return last[0]
