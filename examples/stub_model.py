"""A language model that needs no network: it speaks like an OpenAI-compatible endpoint, and always says the same.

    python examples/stub_model.py [PORT]

It prints the address to call, and a line for each call that it answered: what a model would be paid for.
"""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PLAN = [
    ("search", {"query": "sqlite write-ahead log"}),
    ("search", {"query": "sqlite synchronous full"}),
    ("buy", {"report": "durability-2026"}),
]
"""The tools it asks for, one a turn. Then it answers."""


def reply(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """What it says next. Like any model it remembers nothing: how far it is stands in the messages."""
    seen = [message["content"] for message in messages if message["role"] == "tool"]
    if len(seen) == len(PLAN):
        return {"role": "assistant", "content": f"Of {len(seen)} sources the last one says: {seen[-1]}"}
    name, arguments = PLAN[len(seen)]
    function = {"name": name, "arguments": json.dumps(arguments)}
    call = {"id": f"call_{len(seen)}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


class Handler(BaseHTTPRequestHandler):
    """POST /v1/chat/completions"""

    calls = 0

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        message = reply(asked["messages"])
        said = message["content"] or message["tool_calls"][0]["function"]
        Handler.calls += 1
        print(f"call {Handler.calls}, of {len(asked['messages'])} messages: {said}", flush=True)
        body = json.dumps({"choices": [{"index": 0, "message": message}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass  # it has said what there is to say


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8756), Handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
        server.serve_forever()
