"""The sample upstream as one aiohttp application."""

from aiohttp import web
from aiohttp.typedefs import Handler

from gateway.sample.asking import Refused
from gateway.sample.bodies import answer
from gateway.sample.chat import DIALECTS, Chat
from gateway.sample.documents import DOCUMENTS, turns
from gateway.sample.prepare import Prepare

_LARGEST_REQUEST = 64 * 2**20


def application(seed: int = 1, *, pace: float = 0.0, require_key: bool = False) -> web.Application:
    """Documents and chat, the same bytes for the same ``seed`` and request.

    ``pace`` is the pause between two events of a stream, in seconds. With ``require_key`` the chat routes answer 401 to
    callers that send none; any value will do, for the sample knows no accounts.
    """
    made = web.Application(middlewares=[_refusals], client_max_size=_LARGEST_REQUEST)
    made.add_routes([web.get("/", _index(seed)), *Prepare(seed).routes(), *Chat(seed, pace, require_key).routes()])
    return made


@web.middleware
async def _refusals(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Whatever no dialect has put into its own shape becomes ``{"error": sentence}``."""
    try:
        return await handler(request)
    except Refused as refused:
        return answer({"error": refused.message}, refused.status)
    except web.HTTPMethodNotAllowed as refused:
        response = answer({"error": f"{request.method} is not for this path"}, refused.status)
        response.headers["Allow"] = refused.headers["Allow"]
        return response
    except web.HTTPException as refused:
        return answer({"error": f"{refused.reason}; GET / lists what there is"}, refused.status)


def _index(seed: int) -> Handler:
    documents: list[dict[str, object]] = [
        {
            "path": f"/prepare/{document.name}",
            "about": document.about,
            "turns": len(turns(document.name, seed)),
            "etag": "strong" if document.strong_tag else "none",
            "cache_control": document.cache_control,
        }
        for document in DOCUMENTS
    ]
    chat = [dialect.path for dialect in DIALECTS]
    offered = {"service": "packhorse sample upstream", "seed": seed, "documents": documents, "chat": chat}
    page = _page(seed, documents, chat)

    async def index(request: web.Request) -> web.Response:
        if "json" in request.headers.get("Accept", ""):
            return answer(offered)
        return web.Response(text=page)

    return index


def _page(seed: int, documents: list[dict[str, object]], chat: list[str]) -> str:
    lines = [
        f"Packhorse sample upstream, seed {seed}. Invented people, no model, the same bytes for the same request.",
        "",
        'Documents: GET or POST <path>?turn=N, or POST /prepare {"document": ..., "turn": N}',
        *(
            f"  {item['path']:<30} turns 1 to {item['turns']:<3} ETag: {item['etag']:<7}"
            f" Cache-Control: {item['cache_control'] or 'none'}\n      {item['about']}"
            for item in documents
        ),
        "",
        "Echo: POST /echo answers with the body it got",
        "",
        'Chat, whole or with "stream": true; name a tool in the question and it is called',
        *(f"  POST {path}" for path in chat),
        "",
        "This page as JSON: Accept: application/json",
        "",
    ]
    return "\n".join(lines)
