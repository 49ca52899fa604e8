"""The twin of a fault: the same traffic without it, in which the delta is really used on the second turn."""

from collections.abc import Callable
from typing import Any

from support.messages import FieldsLike, Request, as_fields
from support.packs import PackClient, Turn, pack_client
from support.texts import PATHS, answer, chat_request
from support.upstream import Reply


def growing(
    kind: str = "prepare",
    fields: FieldsLike = (),
    *,
    seed: int = 1,
    coded: Callable[[bytes], bytes] | None = None,
    **reply: Any,
) -> Callable[[Request], Reply]:
    """An upstream's answers: the turn that ``X-Turn`` names (the first without it) of a body that grows, with ``fields``.

    ``coded`` is applied to the body; name the coding in ``fields``.
    """

    def respond(request: Request) -> Reply:
        content_type, body = answer(kind, int(request.value("x-turn") or b"1"), seed)
        given = as_fields(fields)
        if not any(name.lower() == b"content-type" for name, _ in given):
            given.insert(0, (b"Content-Type", content_type.encode()))
        return Reply(fields=given, body=coded(body) if coded else body, **reply)

    return respond


async def turn_of(
    client: PackClient,
    kind: str,
    number: int,
    *,
    method: str = "POST",
    target: str | None = None,
    fields: FieldsLike = (),
    body: bytes | None = None,
    seed: int = 1,
    **more: Any,
) -> Turn:
    """One turn against a :func:`growing` upstream; its content is checked."""
    if body is None:
        body = chat_request(kind, number) if method in ("POST", "PUT", "PATCH") else b""
    given = [*as_fields(fields), (b"X-Turn", str(number).encode())]
    turn = await client.ask(method, target or PATHS[kind], body, given, **more)
    assert turn.status == 200, turn.response.body
    assert turn.content == answer(kind, number, seed)[1]
    return turn


async def uses_delta(
    gateway: Any, kind: str = "prepare", *, session: str | None = "twin", own: FieldsLike = (), **each: Any
) -> Turn:
    """Two turns; the second came as a delta (a plain route: as the very bytes of the upstream). Returns the second."""
    async with pack_client(gateway, session, fields=own) as client:
        await turn_of(client, kind, 1, **each)
        second = await turn_of(client, kind, 2, **each)
    if kind == "plain":
        assert not second.delta
    else:
        assert second.delta, f"no delta: {second.why}, coded {second.codings}"
        assert len(second.response.body) < len(second.content) / 5
    return second
