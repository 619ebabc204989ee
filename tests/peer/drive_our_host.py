"""The public peer's own supervisor drives our host.

usage: drive_our_host.py COMPUTE_HOST_PROGRAM WORK_FOLDER

Prints one JSON line for each step that was seen; exits 0 only if all were. The Rust test reads the lines.
"""

import json
import os
import queue
import signal
import sys
import threading
from pathlib import Path

from tui_gateway.host_supervisor import HostSupervisor

DEADLINE = 60.0

program, work = sys.argv[1], Path(sys.argv[2])
home = str(work / "home")
os.environ["HERMES_HOME"] = home
Path(home).mkdir(parents=True, exist_ok=True)

rpc_lock = threading.Condition()
rpc_events = []


def step(name, **facts):
    print(json.dumps({"step": name, **facts}), flush=True)


def rpc_sink(message):
    with rpc_lock:
        rpc_events.append(message)
        rpc_lock.notify_all()


def texts(sid):
    return "".join(
        m["params"]["payload"].get("text", "")
        for m in rpc_events
        if m.get("method") == "event" and m["params"]["type"] == "message.delta" and m["params"]["session_id"] == sid
    )


def wait_for_text(sid):
    with rpc_lock:
        if not rpc_lock.wait_for(lambda: texts(sid), timeout=DEADLINE):
            raise SystemExit(f"no message.delta of {sid} within {DEADLINE} s; saw {rpc_events}")


def submit(supervisor, sid, request_id, **fields):
    done = queue.Queue()
    frame = {"sid": sid, "request_id": request_id, "agent": "scripted", **fields}
    supervisor.submit_turn(frame, on_complete=done.put)
    return done


supervisor = HostSupervisor(
    registry_path=work / "peer-registry.json",
    argv=[program, "--rpc-events"],
    cwd=work,
    rpc_sink=rpc_sink,
    heartbeat_secs=1,
    expected_build_sha="unknown",
    expected_hermes_home=home,
    autostart=False,
)
try:
    supervisor.start()
    step("hello", hello_pid=supervisor.hello["host_pid"], pid=supervisor.pid, home=supervisor.hello["hermes_home"])

    end = submit(supervisor, "s1", "t1", text="hello", delta_count=3, delay_s=0).get(timeout=DEADLINE)
    wait_for_text("s1")
    step("turn", end=end, text=texts("s1"))

    done = submit(supervisor, "s2", "t2", text="long", delta_count=1_000_000, delay_s=0.01)
    wait_for_text("s2")
    supervisor.interrupt("s2", request_id="i1")
    step("interrupted", end=done.get(timeout=DEADLINE))

    ack = supervisor.control("s1", route_name="session.reset", payload={"command": ""}, timeout=DEADLINE)
    step("reset", ack=ack)

    done = submit(supervisor, "s3", "t3", text="doomed", delta_count=1_000_000, delay_s=0.01)
    wait_for_text("s3")
    first_pid = supervisor.pid
    os.kill(first_pid, signal.SIGKILL)
    step("crash", end=done.get(timeout=DEADLINE))

    respawned = threading.Event()

    def watch():
        while not (supervisor.is_running() and supervisor.pid not in (0, first_pid) and supervisor.hello):
            if respawned.wait(0.02):
                return
        respawned.set()

    threading.Thread(target=watch, daemon=True).start()
    if not respawned.wait(DEADLINE):
        raise SystemExit("the peer's supervisor did not start our host again")
    end = submit(supervisor, "s4", "t4", text="again", delta_count=2, delay_s=0).get(timeout=DEADLINE)
    step("respawned", end=end, new_pid=supervisor.pid != first_pid)

    process = supervisor._proc
    supervisor.shutdown()
    step("shutdown", exit_code=process.wait(timeout=DEADLINE))
finally:
    supervisor.shutdown()
