"""A model server on loopback that says what a scene tells it to.

It speaks what the agents speak: OpenAI chat completions, OpenAI responses, Gemini; streamed or whole. A request that
offers a shell tool is the agent's own turn and gets the scene; any other (a title, a summary, a route) gets one word.
What the agent's turns asked is kept. As a proxy it refuses, and keeps who was to be reached.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]

# Names that agents give to the tool that runs a shell command.
SHELL_TOOLS = ("bash", "exec_command", "shell_command", "shell", "local_shell", "run_shell_command")


class Scene(Enum):
    """What the model does with the agent's turn."""

    TEXT = "text"
    """Says WORDS, one at a time, GAP_S apart."""
    TOOL = "tool"
    """Has `command` run in the agent's shell, then says DONE."""
    SILENCE = "silence"
    """Takes the request and says nothing until the agent goes away."""
    REFUSE = "refuse"
    """Answers every request with `refuse_with`."""


WORDS = [f"word-{number} " for number in range(8)]
GAP_S = 0.25
DONE = "The command is done."


@dataclass
class Asked:
    """One request of an agent's own turn."""

    tool_results: list[str]
    prompted: str
    """Everything that was sent, as text: where a prompt is looked for."""


@dataclass
class FakeModel:
    """The server. `with FakeModel(Scene.TEXT) as model: …`; nothing is left of it afterwards."""

    scene: Scene
    command: str = ""
    refuse_with: int = 401
    asked: list[Asked] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    """Hosts that an agent wanted to reach through the proxy that this server pretends to be."""

    def __enter__(self) -> FakeModel:
        self.over = threading.Event()
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler(self))
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.server.shutdown()
        self.server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def tool_results(self) -> list[str]:
        """What the agents reported of their tools."""
        return [result for asked in self.asked for result in asked.tool_results]


@dataclass
class Call:
    """A tool call that the model makes."""

    name: str
    arguments: Json


Part = str | Call


def parts(model: FakeModel, asked: Asked | None, tools: Json) -> Iterator[Part]:
    """What the model says to one request, in time."""
    if asked is None:
        yield "Title"
    elif model.scene is Scene.SILENCE:
        model.over.wait()
    elif model.scene is Scene.TOOL and not asked.tool_results:
        name = next(name for name in SHELL_TOOLS if name in tools)
        yield Call(name, shell_arguments(tools[name], model.command))
    elif model.scene is Scene.TOOL:
        yield DONE
    else:
        for word in WORDS:
            yield word
            time.sleep(GAP_S)


def shell_arguments(schema: Json, command: str) -> Json:
    """Arguments of a shell tool by its schema: a command, and what else it insists on."""
    properties: Json = schema.get("properties", {})
    arguments: Json = {}
    for name, kind in properties.items():
        if name in ("command", "cmd"):
            arguments[name] = ["sh", "-c", command] if kind.get("type") in ("array", "ARRAY") else command
        elif name in schema.get("required", []):
            arguments[name] = "runs a command"
    return arguments


class Chat:
    """OpenAI chat completions."""

    def tools(self, body: Json) -> Json:
        return {tool["function"]["name"]: tool["function"].get("parameters", {}) for tool in body.get("tools", [])}

    def results(self, body: Json) -> list[str]:
        return [json.dumps(one["content"]) for one in body.get("messages", []) if one.get("role") == "tool"]

    def events(self, said: Iterator[Part]) -> Iterator[Json | str]:
        def chunk(delta: Json, finish: str | None = None) -> Json:
            choice = {"index": 0, "delta": delta, "finish_reason": finish}
            return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "fake", "choices": [choice]}

        yield chunk({"role": "assistant", "content": ""})
        finish = "stop"
        for part in said:
            if isinstance(part, Call):
                finish = "tool_calls"
                function = {"name": part.name, "arguments": json.dumps(part.arguments)}
                yield chunk({"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": function}]})
            else:
                yield chunk({"content": part})
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        yield chunk({}, finish) | {"usage": usage}
        yield "[DONE]"

    def whole(self, said: Iterator[Part]) -> Json:
        text = "".join(part for part in said if isinstance(part, str))
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
        return {"id": "c", "object": "chat.completion", "created": 1, "model": "fake", "choices": [choice], "usage": usage}


class Responses:
    """OpenAI responses."""

    def tools(self, body: Json) -> Json:
        named = [tool for tool in body.get("tools", []) if tool.get("type") == "function"]
        return {tool["name"]: tool.get("parameters", {}) for tool in named}

    def results(self, body: Json) -> list[str]:
        given = body.get("input", [])
        return [json.dumps(one["output"]) for one in given if one.get("type") == "function_call_output"]

    def events(self, said: Iterator[Part]) -> Iterator[Json | str]:
        usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
        response: Json = {"id": "r", "object": "response", "status": "in_progress", "output": []}
        yield {"type": "response.created", "response": response}
        text = ""
        message: Json = {"id": "m", "type": "message", "role": "assistant", "content": []}
        for part in said:
            if isinstance(part, Call):
                arguments = json.dumps(part.arguments)
                item = {"id": "f", "type": "function_call", "call_id": "call_1", "name": part.name, "arguments": arguments}
                yield {"type": "response.output_item.done", "output_index": 0, "item": item}
                continue
            if not text:
                yield {"type": "response.output_item.added", "output_index": 0, "item": message}
            text += part
            yield {"type": "response.output_text.delta", "item_id": "m", "output_index": 0, "content_index": 0, "delta": part}
        if text:
            done = message | {"content": [{"type": "output_text", "text": text, "annotations": []}]}
            yield {"type": "response.output_item.done", "output_index": 0, "item": done}
        yield {"type": "response.completed", "response": response | {"status": "completed", "usage": usage}}

    def whole(self, said: Iterator[Part]) -> Json:
        return [event for event in self.events(said) if isinstance(event, dict)][-1]["response"]


class Gemini:
    """Gemini generateContent and streamGenerateContent."""

    def tools(self, body: Json) -> Json:
        declared = [one for tool in body.get("tools", []) for one in tool.get("functionDeclarations", [])]
        return {one["name"]: one.get("parametersJsonSchema", one.get("parameters", {})) for one in declared}

    def results(self, body: Json) -> list[str]:
        given = [part for content in body.get("contents", []) for part in content.get("parts", [])]
        return [json.dumps(part["functionResponse"]) for part in given if "functionResponse" in part]

    def events(self, said: Iterator[Part]) -> Iterator[Json | str]:
        def chunk(part: Json, finish: str | None) -> Json:
            candidate: Json = {"index": 0, "content": {"role": "model", "parts": [part]}}
            if finish:
                candidate["finishReason"] = finish
            usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
            return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "fake"}

        for part in said:
            if isinstance(part, Call):
                yield chunk({"functionCall": {"name": part.name, "args": part.arguments}}, None)
            else:
                yield chunk({"text": part}, None)
        yield chunk({"text": ""}, "STOP")

    def whole(self, said: Iterator[Part]) -> Json:
        text = "".join(part for part in said if isinstance(part, str))
        return next(event for event in self.events(iter([text])) if isinstance(event, dict))


Dialect = Chat | Responses | Gemini


def dialect_of(path: str) -> Dialect | None:
    """Which dialect a request is in, if it asks a model at all."""
    path = path.partition("?")[0]
    if path.endswith("/chat/completions"):
        return Chat()
    if path.endswith("/responses"):
        return Responses()
    if path.endswith((":generateContent", ":streamGenerateContent")):
        return Gemini()
    return None


def handler(model: FakeModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def do_CONNECT(self) -> None:
            model.outside.append(self.path)
            self.answer(403, {"error": "no way out"})

        def do_GET(self) -> None:
            self.refuse_page()

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("content-length", 0)))
            dialect = dialect_of(self.path)
            if dialect is None or self.path.startswith("http"):
                return self.refuse_page()
            body: Json = json.loads(raw)
            tools = dialect.tools(body)
            asked = None
            if any(name in tools for name in SHELL_TOOLS):
                asked = Asked(dialect.results(body), raw.decode())
                model.asked.append(asked)
            if model.scene is Scene.REFUSE:
                error = {"code": model.refuse_with, "message": "the key is not known here", "status": "UNAUTHENTICATED"}
                return self.answer(model.refuse_with, {"error": error})
            said = parts(model, asked, tools)
            if body.get("stream") or "streamGenerateContent" in self.path:
                self.stream(dialect.events(said))
            else:
                self.answer(200, dialect.whole(said))

        def refuse_page(self) -> None:
            if self.path.startswith("http"):  # as a proxy
                model.outside.append(self.path)
            self.answer(404, {"error": {"message": "not here"}})

        def answer(self, status: int, body: Json) -> None:
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def stream(self, events: Iterator[Json | str]) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            self.close_connection = True
            try:
                for event in events:
                    name = f"event: {event['type']}\n" if isinstance(event, dict) and "type" in event else ""
                    data = event if isinstance(event, str) else json.dumps(event)
                    self.wfile.write(f"{name}data: {data}\n\n".encode())
                    self.wfile.flush()
            except OSError:
                pass  # The agent went away, which is what an interrupt is for.

    return Handler
