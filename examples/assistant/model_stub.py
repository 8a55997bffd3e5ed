"""A language model without a network: it understands five sentences, and calls the tool for each.

python examples/assistant/model_stub.py [PORT]
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PAUSE = float(os.environ.get("PAUSE", "0.02"))
"""Seconds between two words of an answer."""

SENTENCES = [
    (r"remind me to (?P<text>.+) (?P<when>(?:in|every|at) .+)", "remind"),
    (r"brief me at (?P<at>.+)", "daily_brief"),
    (r"what is planned", "list_reminders"),
    (r"forget (?P<id>\S+)", "cancel_reminder"),
    (r"mail (?P<to>\S+) about (?P<subject>.+?): (?P<body>.+)", "send_email"),
]


def reply(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the next reply: a tool call for a sentence that it knows, and the result of the tool as the answer."""
    last = messages[-1]
    if last["role"] == "tool":
        return {"role": "assistant", "content": last["content"]}
    for pattern, name in SENTENCES:
        if found := re.fullmatch(pattern, last["content"]):
            function = {"name": name, "arguments": json.dumps(found.groupdict())}
            return {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "1", "type": "function", "function": function}],
            }
    return {"role": "assistant", "content": f"You said: {last['content']}"}


def pieces(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a reply as a model sends it: word by word, or its tool calls."""
    if message.get("tool_calls"):
        yield {"tool_calls": [{"index": 0, **call} for call in message["tool_calls"]]}
    for word in re.findall(r"\s*\S+", message["content"] or ""):
        yield {"content": word}


class Handler(BaseHTTPRequestHandler):
    """POST /v1/chat/completions"""

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for delta in pieces(reply(asked["messages"])):
            body = json.dumps({"choices": [{"index": 0, "delta": delta}]})
            self.wfile.write(f"data: {body}\n\n".encode())
            time.sleep(PAUSE)
        self.wfile.write(b"data: [DONE]\n\n")

    def log_message(self, format: str, *args: Any) -> None:
        pass


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8757), Handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
        server.serve_forever()
