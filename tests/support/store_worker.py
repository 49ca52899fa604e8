"""A process that keeps bases until it is told otherwise: ``python -m support.store_worker FILE NAME COUNT``.

Prints ``open``, waits for a line, then keeps COUNT exchanges and prints how many are written after each tenth; at the end what is
degraded, or ``sound``. COUNT 0 goes on until it is killed.
"""

import asyncio
import itertools
import sys
from pathlib import Path

from support.stores import base, owner, sqlite_at


def text(name: str, number: int) -> str:
    """What exchange ``number`` of that worker keeps: 8 KB that no other has."""
    return f"{name} {number} " * 800


async def work(folder: Path, name: str, count: int) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    store = sqlite_at(folder)
    await store.open()
    for number in range(1, count + 1) if count else itertools.count(1):
        store.keep(owner(f"session {number % 7}", name), "prepare", [base(text(name, number))])
        if number % 10 == 0:
            await store.settled()
            print(number, flush=True)
    print(store.degraded() or "sound", flush=True)
    await store.close()


if __name__ == "__main__":
    asyncio.run(work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])))
