"""Drives `turnhost run` and `turnhost supervise`, and looks for what they leave behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

Json = dict[str, Any]
MARKER = "TURNHOST_REAL_AGENTS"
POLL_S = 0.02


class NotAsExpected(Exception):
    """What a scenario expected and did not see."""


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise NotAsExpected(what)


class Turnhost:
    """A running turnhost that writes JSON lines. Everything of it has the marker in its environment."""

    def __init__(self, argv: list[str], cwd: Path, env: dict[str, str], deadline_s: float) -> None:
        self.deadline = time.monotonic() + deadline_s
        self.lines: list[tuple[float, Json]] = []
        self.process = subprocess.Popen(
            argv, cwd=cwd, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        self.errors = bytearray()
        self.readers = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for reader in self.readers:
            reader.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            self.lines.append((time.monotonic(), json.loads(line)))

    def _read_errors(self) -> None:
        assert self.process.stderr
        for line in self.process.stderr:
            self.errors += line

    def send(self, operation: Json) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(operation).encode() + b"\n")
        self.process.stdin.flush()

    def until(self, what: str, found: Callable[[], Any]) -> Any:
        """Waits until `found` gives something that is true, and gives it."""
        while True:
            ended = self.process.poll() is not None and not any(reader.is_alive() for reader in self.readers)
            if result := found():
                return result
            if ended or time.monotonic() > self.deadline:
                why = f"turnhost exited {self.process.returncode}" if ended else "time is up"
                said = self.errors.decode(errors="replace")[-500:]
                raise NotAsExpected(f"{what}: {why}; stderr {said!r}; last {[line for _, line in self.lines[-2:]]}")
            time.sleep(POLL_S)

    def frames(self, kind: str) -> Iterator[tuple[float, Json]]:
        """Frames of the turn, each with the time at which it came."""
        for at, line in list(self.lines):
            if line.get("event") == "turn" and line["frame"]["type"] == kind:
                yield at, line["frame"]

    def endings(self) -> list[tuple[float, Json]]:
        return [*self.frames("turn.end"), *self.frames("turn.error")]

    def ending(self) -> tuple[float, Json]:
        return self.until("the end of the turn", lambda: next(iter(self.endings()), None))

    def text(self) -> str:
        return "".join(frame["text"] for _, frame in self.frames("delta"))

    def host_pid(self) -> int:
        def found() -> int | None:
            states = [line for _, line in list(self.lines) if line.get("event") == "state"]
            return states[-1]["pid"] if states and states[-1]["state"] == "ready" else None

        return self.until("a host that is ready", found)

    def exit_code(self) -> int:
        """Waits for the end; `supervise` ends with its input."""
        assert self.process.stdin
        self.process.stdin.close()
        self.until("the end of turnhost", lambda: self.process.poll() is not None)
        for reader in self.readers:
            reader.join(timeout=max(0.0, self.deadline - time.monotonic()))
        return self.process.returncode

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def left(nonce: str) -> dict[int, str]:
    """Processes with the marker in their environment, or with the nonce in their command line, which a tool's
    processes have whatever became of their environment. Zombies are none."""
    found = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit() or int(folder.name) == os.getpid():
            continue
        try:
            command = (folder / "cmdline").read_bytes()
            environment = (folder / "environ").read_bytes()
        except OSError:
            continue  # gone, or not ours
        if command and (nonce.encode() in command or f"{MARKER}={nonce}".encode() in environment):
            found[int(folder.name)] = command.replace(b"\0", b" ").decode(errors="replace").strip()[:120]
    return found


def expect_nothing_left(nonce: str, within_s: float) -> float:
    """Gives the time that it took. What is left then is killed, so that it disturbs nothing else."""
    start = time.monotonic()
    while remaining := left(nonce):
        if time.monotonic() > start + within_s:
            for pid in remaining:
                os.kill(pid, signal.SIGKILL)
            raise NotAsExpected(f"left behind after {within_s:.0f} s: {remaining}")
        time.sleep(POLL_S)
    return time.monotonic() - start
