"""The agents: which package, which command line, and what keeps them to the fake model."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "turnhost" / "agents"
INSTALL_S = 600


@dataclass(frozen=True)
class Agent:
    name: str
    program: str
    """In the package's node_modules/.bin, or a path."""
    arguments: tuple[str, ...]
    """Before a prompt on stdin."""
    setup: Callable[[Path, str], dict[str, str]]
    """Writes the agent's files into a home and gives its environment; the second argument is the model's URL."""
    package: str = ""
    version: str = ""
    as_argument: tuple[str, ...] | None = None
    """Before a prompt as an argument, where that differs."""
    as_it_goes: tuple[str, ...] = ()
    """Makes it report while it works, where it prints whole messages otherwise."""
    secrets: tuple[str, ...] = ()
    """Variables of `setup` that `turnhost supervise` must be told to pass."""

    @property
    def folder(self) -> Path:
        return CACHE / f"{self.name}-{self.version}"

    def argv(self, *more: str) -> list[str]:
        return [self.path(), *self.arguments, *more]

    def argv_for_argument(self) -> list[str]:
        return [self.path(), *(self.arguments if self.as_argument is None else self.as_argument)]

    def path(self) -> str:
        return str(self.folder / "node_modules/.bin" / self.program) if self.package else self.program

    def install(self) -> None:
        """From npm, once; whole or not at all. Raises what npm says."""
        if not self.package or Path(self.path()).exists():
            return
        print(f"{self.name}: installing {self.package}@{self.version} into {self.folder}", file=sys.stderr, flush=True)
        half = self.folder.with_name(f".{self.folder.name}.{os.getpid()}")
        half.mkdir(parents=True)
        try:
            npm = ["npm", "install", "--prefix", str(half), "--no-audit", "--no-fund", "--loglevel=error"]
            subprocess.run([*npm, f"{self.package}@{self.version}"], check=True, timeout=INSTALL_S, stdout=sys.stderr)
            shutil.rmtree(self.folder, ignore_errors=True)
            half.rename(self.folder)
        finally:
            shutil.rmtree(half, ignore_errors=True)


def opencode(home: Path, model: str) -> dict[str, str]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",  # part of the program: nothing is fetched
        "options": {"baseURL": f"{model}/v1", "apiKey": "{env:FAKE_API_KEY}"},
        "models": {"fake": {"tool_call": True, "limit": {"context": 100_000, "output": 10_000}}},
    }
    config = {
        "provider": {"fake": provider},
        "enabled_providers": ["fake"],
        "model": "fake/fake",
        "small_model": "fake/fake",
        "permission": {"*": "allow"},
        "autoupdate": False,
        "share": "disabled",
    }
    write(home / ".config/opencode/opencode.json", json.dumps(config))
    return {"FAKE_API_KEY": "fake", "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}


def codex(home: Path, model: str) -> dict[str, str]:
    config = f"""
model = "fake"
model_provider = "fake"
check_for_update_on_startup = false
[features] # both look for more at github.com and chatgpt.com
plugins = false
apps = false
[analytics]
enabled = false
[model_providers.fake]
name = "fake"
base_url = "{model}/v1"
wire_api = "responses"
env_key = "FAKE_API_KEY"
request_max_retries = 0
stream_max_retries = 0
"""
    write(home / ".codex/config.toml", config)
    return {"FAKE_API_KEY": "fake"}


def gemini(home: Path, model: str) -> dict[str, str]:
    settings = {
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False},
        "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
    }
    write(home / ".gemini/settings.json", json.dumps(settings))
    return {"GEMINI_API_KEY": "fake", "GOOGLE_GEMINI_BASE_URL": model}


def stand_in(home: Path, model: str) -> dict[str, str]:
    return {"FAKE_API_KEY": "fake", "STAND_IN_BASE_URL": f"{model}/v1"}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


CODEX = ("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox")
# A named model: by default a small one is asked first which to take.
GEMINI = ("--yolo", "--skip-trust", "--model", "gemini-2.5-flash")

AGENTS = {
    agent.name: agent
    for agent in (
        Agent(
            name="opencode",
            package="opencode-ai",
            version="1.18.33",
            program="opencode",
            arguments=("run",),
            as_argument=("run", "--"),
            as_it_goes=("--format", "json"),
            setup=opencode,
            secrets=("FAKE_API_KEY",),
        ),
        Agent(
            name="codex",
            package="@openai/codex",
            version="0.171.0",
            program="codex",
            arguments=CODEX,
            as_argument=(*CODEX, "--"),
            as_it_goes=("--json",),
            setup=codex,
            secrets=("FAKE_API_KEY",),
        ),
        Agent(
            name="gemini",
            package="@google/gemini-cli",
            version="0.61.0",
            program="gemini",
            arguments=GEMINI,
            as_argument=(*GEMINI, "--prompt="),
            setup=gemini,
            secrets=("GEMINI_API_KEY",),
        ),
        Agent(
            name="stand-in",
            program=str(Path(__file__).with_name("stand_in.py")),
            arguments=(),
            setup=stand_in,
            secrets=("FAKE_API_KEY",),
        ),
    )
}
DEFAULT = ("opencode", "codex", "gemini")
