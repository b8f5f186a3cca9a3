"""weft.follow: logs as they are written, broken ones, and what they go to. wandb and mlflow are
stood in for by modules that note how they are called."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import types

import pytest
import weft

HEADER = {"event": "start", "run": "r1", "name": "small", "steps": 3}


def step(n, **more):
    return {"run": "r1", "step": n, "loss": 5.0 - n, **more}


def write(path, *lines):
    with open(path, "a") as f:
        for line in lines:
            f.write((line if isinstance(line, str) else json.dumps(line)) + "\n")


def test_a_log_of_a_run(tmp_path, small):
    log, got = tmp_path / "run.jsonl", []
    program = os.environ.get("WEFT_PROGRAM", "weft")
    run = subprocess.Popen([program, "run", "-q", str(small), "--log", str(log)])
    n = weft.follow(log, lambda i, m: got.append((i, m["loss"])), poll=0.05, timeout=60)
    assert run.wait() == 0
    assert n == 2 and [i for i, _ in got] == [0, 1] and all(loss > 0 for _, loss in got)


def test_lines_in_pieces(tmp_path):
    log, got = tmp_path / "run.jsonl", []

    def slowly():
        for piece in (json.dumps(HEADER) + "\n", '{"run": "r1", "st', 'ep": 0, "loss": 1}\n'):
            with open(log, "a") as f:
                f.write(piece)
            time.sleep(0.1)
        write(log, step(1), step(2))

    writer = threading.Thread(target=slowly)
    writer.start()
    assert weft.follow(log, lambda i, m: got.append(i), poll=0.02, timeout=20) == 3
    writer.join()
    assert got == [0, 1, 2]


def test_a_run_that_is_resumed_at_its_end(tmp_path):
    log, got = tmp_path / "run.jsonl", []
    write(log, {**HEADER, "resumed": {"checkpoint": "c/step-00000003", "step": 3}})
    assert weft.follow(log, lambda i, m: got.append(i), poll=0.01) == 0  # would wait for ever
    write(log, {**HEADER, "steps": 4, "resumed": {"checkpoint": "c/step-00000003", "step": 3}}, step(3))
    assert weft.follow(log, lambda i, m: got.append(i), poll=0.01) == 1


def test_a_run_that_was_killed(tmp_path):
    log = tmp_path / "run.jsonl"
    write(log, HEADER, step(0))
    with open(log, "a") as f:
        f.write('{"run": "r1", "step"')
    assert weft.follow(log, lambda i, m: None, wait=False) == 1
    assert weft.follow(log, lambda i, m: None, poll=0.01, timeout=0.05) == 1


def test_a_killed_run_that_goes_on(tmp_path):
    """weft run --append cuts off the half line, which may have been read by then."""
    log, got = tmp_path / "run.jsonl", []
    write(log, HEADER, step(0))
    whole = log.stat().st_size
    with open(log, "a") as f:
        f.write('{"run": "r1", "step": 1, "loss"')

    def goes_on():
        os.truncate(log, whole)
        write(log, {**HEADER, "run": "r2"}, step(1), step(2))

    writer = threading.Timer(0.2, goes_on)
    writer.start()
    assert weft.follow(log, lambda i, m: got.append(i), poll=0.01, timeout=20) == 3
    writer.join()
    assert got == [0, 1, 2]


@pytest.mark.parametrize("how", ["interrupted", "failed"])
def test_a_run_that_does_not_reach_its_end(tmp_path, small, how):
    log, program = tmp_path / "run.jsonl", os.environ.get("WEFT_PROGRAM", "weft")
    more = ["optimizer.lr=1000", "optimizer.weight_decay=1"] if how == "failed" else []
    with subprocess.Popen([program, "run", "-q", str(small), "-D", "steps=1000000", *more,
                           "--log", str(log)], stderr=subprocess.PIPE, text=True) as run:
        lines = []
        for line in weft.read_log(log, wait=True, poll=0.01, timeout=60):
            if how == "interrupted" and line.get("step") == 3:
                run.send_signal(signal.SIGINT)
            lines.append(line)
        said = run.stderr.read()
    assert run.returncode == (130 if how == "interrupted" else 1)
    assert lines[-1]["event"] == how and lines[-1]["text"] in said
    begun = time.monotonic()
    assert weft.follow(log, lambda i, m: None) == sum("step" in line for line in lines)
    assert time.monotonic() - begun < 5


def test_a_run_without_steps(tmp_path):
    write(tmp_path / "log", {**HEADER, "steps": 0}, {"run": "r1", "event": "done", "text": ""})
    assert weft.follow(tmp_path / "log", lambda i, m: None, poll=0.01) == 0


def test_streams_and_warnings(tmp_path):
    log, got = tmp_path / "run.jsonl", {}
    write(log, HEADER, {"run": "r1", "event": "warning", "text": "x"},
          step(0, sources=[{"name": "web", "loss": 3.5, "tokens": 7}], skipped=False))
    weft.follow(log, lambda i, m: got.update(m), wait=False)
    assert got == {"loss": 5.0, "sources/web/loss": 3.5, "sources/web/tokens": 7, "skipped": False}


@pytest.mark.parametrize(
    "line, why",
    [
        ("{broken", "this is no JSON"),
        ("[1]", 'it has no "run"'),
        ('{"step": 1}', 'it has no "run"'),
        ('{"run": "r1", "loss": 2}', 'has a number "step"'),
        ("\x00\x01", "this is no JSON"),
    ],
)
def test_a_broken_line_is_said_with_its_number(tmp_path, line, why):
    log, got = tmp_path / "run.jsonl", []
    write(log, HEADER, step(0), line, step(1))
    with pytest.raises(weft.LogError, match=r"run\.jsonl:3: .*" + why) as e:
        weft.follow(log, lambda i, m: got.append(i), wait=False)
    assert e.value.line == 3 and got == [0]


def test_a_log_that_is_not_there(tmp_path):
    with pytest.raises(weft.FileError, match="no.jsonl"):
        weft.follow(tmp_path / "no.jsonl", print, wait=False)
    with pytest.raises(weft.FileError, match="is not there after"):
        weft.follow(tmp_path / "no.jsonl", print, poll=0.01, timeout=0.03)


def test_what_a_log_cannot_go_to(tmp_path):
    with pytest.raises(weft.UsageError, match="none of wandb, mlflow, tensorboard"):
        weft.follow(tmp_path / "x", "wandbb")
    with pytest.raises(weft.UsageError, match="a name, a function or a Sink"):
        weft.follow(tmp_path / "x", 3)
    with pytest.raises(weft.UsageError, match="takes no options: project"):
        weft.follow(tmp_path / "x", print, project="p")


@pytest.mark.parametrize("name, package", [("wandb", "wandb"), ("mlflow", "mlflow")])
def test_a_missing_package_is_said(tmp_path, monkeypatch, name, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=f"pip install {package}"):
        weft.follow(tmp_path / "x", name)


def test_tensorboard_is_missing(tmp_path, monkeypatch):
    for name in ("torch", "torch.utils", "torch.utils.tensorboard", "tensorboardX"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match="pip install tensorboardX"):
        weft.follow(tmp_path / "x", "tensorboard")


def test_wandb(tmp_path, monkeypatch):
    calls = []
    run = types.SimpleNamespace(
        log=lambda metrics, step: calls.append((step, metrics)), finish=lambda: calls.append("end")
    )
    fake = types.ModuleType("wandb")
    fake.init = lambda **o: calls.append((o["project"], o["name"], o["config"]["run"])) or run
    monkeypatch.setitem(sys.modules, "wandb", fake)
    write(tmp_path / "log", HEADER, step(0))
    assert weft.follow(tmp_path / "log", "wandb", wait=False, project="p") == 1
    assert calls == [("p", "small", "r1"), (0, {"loss": 5.0}), "end"]


def test_mlflow(tmp_path, monkeypatch):
    calls, fake = [], types.ModuleType("mlflow")
    fake.start_run = lambda **o: calls.append(o)
    fake.log_params = lambda p: calls.append(p["run"])
    fake.log_metrics = lambda m, step: calls.append((step, m))
    fake.end_run = lambda: calls.append("end")
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    write(tmp_path / "log", HEADER, step(0))
    weft.follow(tmp_path / "log", "mlflow", wait=False)
    assert calls == [{"run_name": "small"}, "r1", (0, {"loss": 5.0}), "end"]


def test_a_sink_sees_every_run(tmp_path):
    calls = []
    sink = types.SimpleNamespace(start=lambda h: calls.append(h["run"]), finish=lambda: calls.append("end"),
                                 log=lambda i, m: calls.append(i))
    write(tmp_path / "log", HEADER, step(0), {**HEADER, "run": "r2"}, {**step(0), "run": "r2"})
    weft.follow(tmp_path / "log", sink, wait=False)
    assert calls == ["r1", 0, "r2", 0, "end"]
