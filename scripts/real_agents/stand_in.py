#!/usr/bin/env python3
"""The smallest agent that is one: a prompt, a model, a shell. It stands in for the real ones in the tests."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

SHELL = {
    "type": "object",
    "properties": {"command": {"type": "string"}, "why": {"type": "string"}},
    "required": ["command", "why"],
}


def ask(messages: list[dict[str, object]]) -> list[dict[str, str]]:
    """Prints what the model says as it comes, and gives the functions that it calls."""
    tool = {"type": "function", "function": {"name": "bash", "parameters": SHELL}}
    body = {"model": "fake", "stream": True, "messages": messages, "tools": [tool]}
    url = os.environ["STAND_IN_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    calls = []
    with urllib.request.urlopen(request) as answer:
        for line in answer:
            data = line.decode().removeprefix("data: ").strip()
            if data in ("", "[DONE]"):
                continue
            delta = json.loads(data)["choices"][0]["delta"]
            print(delta.get("content", ""), end="", flush=True)
            calls += [call["function"] for call in delta.get("tool_calls", [])]
    return calls


def main() -> int:
    prompt = sys.argv[1] if len(sys.argv) > 1 else sys.stdin.read()
    messages: list[dict[str, object]] = [{"role": "user", "content": prompt}]
    try:
        while calls := ask(messages):
            for call in calls:
                command = json.loads(call["arguments"])["command"]
                ran = subprocess.run(["sh", "-c", command], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
                messages.append({"role": "tool", "content": ran.stdout})
    except urllib.error.HTTPError as error:
        print(f"the model refused: {error.code} {error.read().decode()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


sys.exit(main())
