"""A language model without a network: an OpenAI-compatible endpoint with fixed answers.

    python examples/stub_model.py [PORT]

The program prints its address, and a line for each answered call, which a real model would charge for.
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
"""The tool calls, one for each turn, before the answer."""


def reply(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the next reply. The messages show the progress, because a model has no memory."""
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
        pass  # the program prints its own lines


if __name__ == "__main__":
    with ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8756), Handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/v1", flush=True)
        server.serve_forever()
