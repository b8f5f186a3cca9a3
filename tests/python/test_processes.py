"""Runs at the end of a process, and in one that was forked: no thread of theirs is waited for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import weft

PACKAGE = str(Path(weft.__file__).resolve().parents[1])
OPENED = """
import os, sys, threading
import weft
plan = weft.load(sys.argv[1], define={"steps": 1000000}, set=sys.argv[2:])
run = plan.open(threads=1)
run.init()
run.step(0)
"""


def _ends(small, code, *fields):
    """What it prints; it must end by itself, in order."""
    paths = [PACKAGE, *filter(None, [os.environ.get("PYTHONPATH")])]
    ended = subprocess.run(
        [sys.executable, "-c", OPENED + code, str(small), *fields], capture_output=True, text=True,
        timeout=60, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.parametrize("attempt", range(4))
def test_a_process_ends_in_the_middle_of_a_step(small, attempt):
    code = """
begun = threading.Event()
def train():
    for step in run.steps(start=1):
        begun.set()
threading.Thread(target=train, daemon=True).start()
begun.wait()
print("ends", flush=True)
"""
    long = ("batch.global=16", "batch.seq=64")  # so that the end falls into a step
    assert _ends(small, code, *long) == "ends\n"


def test_a_handler_in_the_middle_of_a_step(small):
    """It is told that a call is under way, whatever it calls; what it raises ends the step. The
    signal comes from the thread that computes the step, which goes on when it was heard."""
    code = """
import signal
heard, main = threading.Event(), threading.main_thread().ident
class Signalled:
    def __init__(self, library):
        self.module = library
    def __getattr__(self, name):
        return getattr(self.module, name)
    def weft_run_step(self, *arguments):
        signal.pthread_kill(main, signal.SIGUSR1)
        heard.wait()
        return self.module.weft_run_step(*arguments)
calls = [lambda: run.save(1), lambda: run.get("model.norm.weight"), lambda: run.step(2),
         lambda: plan.name, run.close, plan.close]
def handler(number, frame):
    for i, call in enumerate(calls):
        try:
            call()
            print("call", i, "went on", flush=True)
        except weft.UsageError as e:
            print("told", "note that it came" in str(e), flush=True)
    heard.set()
    if asked == 2:
        run.save(1)
signal.signal(signal.SIGUSR1, handler)
run._lib = Signalled(run._lib)
for asked in (1, 2):
    heard.clear()
    try:
        run.step(asked)
        print("step", asked, flush=True)
    except weft.UsageError:
        print("not saved", flush=True)
run.save(1)
run.close()
plan.close()
"""
    long = ("batch.global=32", "batch.seq=64", f"checkpoint={{ dir = '{small.parent}/saved' }}")
    told = "told True\n" * 6
    assert _ends(small, code, *long) == told + "step 1\n" + told + "not saved\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_ends_without_the_runs(small):
    code = """
if os.fork() == 0:
    sys.exit(0)
child, status = os.wait()
print("ended", status, flush=True)
run.step(1)
"""
    assert _ends(small, code) == "ended 0\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_fork_is_told_whose_the_run_is(small):
    code = """
if os.fork() == 0:
    for call in (lambda: run.step(1), run.init, lambda: run.get("model.norm.weight")):
        try:
            call()
        except weft.UsageError as e:
            print("told", "open another one here" in str(e), flush=True)
    print(plan.world, "ranks", flush=True)
    with plan.open(threads=1) as other:
        other.init()
        print("step", other.step(0).step, flush=True)
    run.close()
    plan.close()
    sys.exit(0)
print("ended", os.wait()[1], flush=True)
run.step(1)
plan.close()
"""
    assert _ends(small, code) == "told True\n" * 3 + "4 ranks\nstep 0\nended 0\n"
