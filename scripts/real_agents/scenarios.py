"""What is played with each agent, and what is expected of it.

A scenario gives a few words for the table; what it expected and did not see is a `NotAsExpected`.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .agents import CACHE, Agent
from .driver import MARKER, Json, NotAsExpected, Turnhost, expect, expect_nothing_left, left
from .fake_model import DONE, GAP_S, WORDS, FakeModel, Scene

# A tool whose result is in no request before it ran.
TOOL = """echo ran > marker
expr 1234 '*' 5678
"""
RESULT = str(1234 * 5678)
# A tool that goes on for ever, with a grandchild of another session that carries no marker in its environment.
LONG_TOOL = """env -i setsid sleep 86400.{nonce} &
echo ran > marker
sleep 86401.{nonce}
"""
# From the end of the host to the end of all that it had started. The guard promises 2 s; the rest is for the machine.
SWEEP_S = 10.0


@dataclass
class Stage:
    """One scenario with one agent: folders of its own, a model of its own, a nonce that marks its processes."""

    agent: Agent
    turnhost: str
    deadline_s: float
    scene: Scene
    tool: str = ""
    nonce: str = field(default_factory=lambda: str(secrets.randbelow(9 * 10**15) + 10**15))
    prompt: str = "Do what you are told."

    def __enter__(self) -> Stage:
        CACHE.mkdir(parents=True, exist_ok=True)  # not in /tmp: codex writes no helpers there
        self.home = Path(tempfile.mkdtemp(prefix="run-", dir=CACHE))
        self.work = self.home / "work"
        self.work.mkdir()
        # In a file, because agents look into the command itself and refuse some.
        (self.work / "tool.sh").write_text(self.tool.format(nonce=self.nonce))
        self.model = FakeModel(self.scene, command="sh ./tool.sh").__enter__()
        self.started: list[Turnhost] = []
        return self

    def __exit__(self, *_: object) -> None:
        for one in self.started:
            one.kill()
        self.model.__exit__()
        try:
            expect_nothing_left(self.nonce, SWEEP_S)
        finally:
            shutil.rmtree(self.home, ignore_errors=True)

    @property
    def marker(self) -> Path:
        return self.work / "marker"

    def env(self) -> dict[str, str]:
        """Of turnhost. The model is also the proxy, which refuses: nothing gets out, and it is known who tried."""
        proxies = {name: self.model.url for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy")}
        direct = {name: "127.0.0.1,localhost" for name in ("NO_PROXY", "no_proxy")}
        base = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", MARKER: self.nonce}
        return base | proxies | direct | self.agent.setup(self.home, self.model.url)

    def run(self, *more: str) -> Turnhost:
        """`turnhost run`, with the prompt on the agent's stdin."""
        argv = [self.turnhost, "run", "--json", "--cwd", str(self.work), self.prompt, "--", *self.agent.argv(*more)]
        return self.start(argv)

    def supervise(self) -> Turnhost:
        """`turnhost supervise` with one turn, the prompt as the agent's last argument."""
        passed = [option for name in self.agent.secrets for option in ("--env-pass", name)]
        argv = [self.turnhost, "supervise", "--no-registry", *passed, "--", self.turnhost, "host"]
        started = self.start(argv)
        agent = {"name": "exec", "argv": self.agent.argv_for_argument(), "prompt": "arg"}
        turn = {"sid": "s", "request_id": "t", "text": self.prompt, "cwd": str(self.work), "agent": agent}
        started.send({"id": "1", "op": "submit_turn"} | turn)
        return started

    def start(self, argv: list[str]) -> Turnhost:
        self.started.append(Turnhost(argv, self.work, self.env(), self.deadline_s))
        return self.started[-1]


def streams(stage: Stage) -> str:
    """Text of a model that talks comes while it talks, and exit status 0 is the turn's end."""
    turn = stage.run(*stage.agent.as_it_goes)
    ended, frame = turn.ending()
    expect(frame["type"] == "turn.end" and not frame["interrupted"], f"a turn.end, not {short(frame)}")
    expect(turn.exit_code() == 0, f"exit code 0, not {turn.process.returncode}")
    deltas = list(turn.frames("delta"))
    expect(turn.text().count(WORDS[-1].strip()) >= 1, f"the model's last word in {turn.text()!r}")
    expect(frame["final_response"] == turn.text(), "the answer is what was streamed")
    expect(stage.prompt in stage.model.asked[0].prompted, "the prompt reached the model")
    ahead = ended - deltas[0][0]
    expect(ahead > GAP_S * len(WORDS) / 2, f"output while the model talks, not {ahead:.1f} s before the end")
    expect_nothing_left(stage.nonce, SWEEP_S)
    return f"{len(deltas)} deltas, first {ahead:.1f} s before the end"


def interrupted(stage: Stage) -> str:
    """Ctrl+C while the model says nothing."""
    turn = stage.run()
    turn.until("a request to the model", lambda: stage.model.asked)
    return interrupt(stage, turn)


def interrupted_tool(stage: Stage) -> str:
    """Ctrl+C while the tool runs."""
    turn = stage.run()
    turn.until("a tool and its grandchild", lambda: stage.marker.exists() and len(tool_processes(stage)) == 2)
    return interrupt(stage, turn)


def interrupt(stage: Stage, turn: Turnhost) -> str:
    start = time.monotonic()
    turn.process.send_signal(signal.SIGINT)
    ended, frame = turn.ending()
    took = ended - start
    expect(frame["type"] == "turn.end" and frame["interrupted"], f"an interrupted turn.end, not {short(frame)}")
    expect(turn.exit_code() == 130, f"exit code 130, not {turn.process.returncode}")
    expect_nothing_left(stage.nonce, SWEEP_S)
    return f"ended after {took:.1f} s"


def runs_a_tool(stage: Stage) -> str:
    """The shell command of a tool call runs, and the model gets its output. The prompt looks like an option."""
    stage.prompt = "-x is what you do not do"
    turn = stage.supervise()
    _, frame = turn.ending()
    expect(frame["type"] == "turn.end" and not frame["interrupted"], f"a turn.end, not {short(frame)}")
    expect(stage.marker.exists(), "the marker file of the tool")
    expect(any(RESULT in result for result in stage.model.tool_results()), f"{RESULT} in {stage.model.tool_results()}")
    expect(DONE in turn.text(), f"what the model said after the tool in {turn.text()!r}")
    expect(stage.prompt in stage.model.asked[0].prompted, "the prompt reached the model")
    expect(turn.exit_code() == 0, f"exit code 0, not {turn.process.returncode}")
    expect_nothing_left(stage.nonce, SWEEP_S)
    return f"ran, {len(stage.model.asked)} requests"


def host_killed(stage: Stage) -> str:
    """SIGKILL of the host while the tool runs."""
    turn = stage.supervise()
    turn.until("a tool and its grandchild", lambda: stage.marker.exists() and len(tool_processes(stage)) == 2)
    host = turn.host_pid()
    killed = time.monotonic()
    os.kill(host, signal.SIGKILL)
    _, frame = turn.ending()
    expect(frame["type"] == "turn.error" and frame["reason"] == "crash", f"turn.error crash, not {short(frame)}")
    expect(frame["signal_name"] == "SIGKILL", f"SIGKILL, not {frame['signal_name']}")
    # The supervisor lives, and may have a new host by now: it is the old one's tree that must be gone.
    tree = turn.until("the end of the tool", lambda: "gone" if not tool_processes(stage) else None)
    took = time.monotonic() - killed
    expect(turn.exit_code() == 0, f"exit code 0, not {turn.process.returncode}")
    expect(len(turn.endings()) == 1, f"one ending, not {turn.endings()}")
    expect_nothing_left(stage.nonce, SWEEP_S)
    return f"crash once, tool {tree} after {took:.1f} s"


def refused(stage: Stage) -> str:
    """The model refuses the key: the program fails, and the turn says how."""
    turn = stage.run()
    _, frame = turn.ending()
    expect(frame["type"] == "turn.error" and frame["reason"] == "agent_exit", f"turn.error agent_exit, not {short(frame)}")
    expect(frame["exit_code"] not in (0, None), f"an exit code that says so, not {frame['exit_code']}")
    said = "\n".join(frame["stderr_tail"])
    expect("not known here" in said, f"the model's message in the tail of stderr, not {said!r}")
    expect(turn.exit_code() == 1, f"exit code 1, not {turn.process.returncode}")
    expect_nothing_left(stage.nonce, SWEEP_S)
    return f"agent_exit {frame['exit_code']}, {len(frame['stderr_tail'])} lines of stderr"


def short(frame: Json) -> Json:
    """What people want to see of a turn's end that is not the one expected."""
    short = {name: frame[name] for name in ("type", "reason", "message", "interrupted") if name in frame}
    return short | {"stderr_tail": frame.get("stderr_tail", [])[-5:]}


def tool_processes(stage: Stage) -> list[str]:
    return [command for command in left(stage.nonce).values() if "sleep" in command]


@dataclass(frozen=True)
class Scenario:
    name: str
    play: Callable[[Stage], str]
    scene: Scene
    tool: str = ""


SCENARIOS = {
    one.name: one
    for one in (
        Scenario("streams", streams, Scene.TEXT),
        Scenario("runs a tool", runs_a_tool, Scene.TOOL, TOOL),
        Scenario("interrupt in silence", interrupted, Scene.SILENCE),
        Scenario("interrupt in a tool", interrupted_tool, Scene.TOOL, LONG_TOOL),
        Scenario("host killed in a tool", host_killed, Scene.TOOL, LONG_TOOL),
        Scenario("model refuses", refused, Scene.REFUSE),
    )
}


@dataclass
class Outcome:
    agent: str
    scenario: str
    ok: bool
    what: str
    seconds: float
    outside: list[str]


def play(agent: Agent, scenario: Scenario, turnhost: str, deadline_s: float) -> Outcome:
    start = time.monotonic()
    outside: list[str] = []
    try:
        with Stage(agent, turnhost, deadline_s, scenario.scene, scenario.tool) as stage:
            outside = stage.model.outside
            ok, what = True, scenario.play(stage)
    except NotAsExpected as failed:
        ok, what = False, f"expected {failed}"
    return Outcome(agent.name, scenario.name, ok, what, round(time.monotonic() - start, 1), sorted(set(outside)))
