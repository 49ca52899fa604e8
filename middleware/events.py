"""What the gateway knows of event streams (WHATWG HTML 9.2) and of how the providers end theirs."""

import re

_TERMINAL = re.compile(
    rb"(?:^|\n|\r)(?:data: ?\[DONE\]|event: ?(?:message_stop|response\.(?:completed|failed|incomplete)|error)\b[^\r\n]*)"
)
_DONE_TYPES = re.compile(rb'"type": ?"(?:message_stop|response\.(?:completed|failed|incomplete)|error)"')


def is_terminal(tail: bytes) -> bool:
    """Whether the last bytes of a stream hold its terminal event.

    OpenAI chat ends with ``data: [DONE]``, Responses with ``response.completed`` (``failed``, ``incomplete``), Anthropic
    with ``message_stop``; an ``error`` event ends any of them.
    """
    return bool(_TERMINAL.search(tail) or _DONE_TYPES.search(tail))
