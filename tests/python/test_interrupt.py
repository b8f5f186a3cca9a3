"""Ctrl-C and other signals in long calls: a call that returns is over, whatever came meanwhile."""

import itertools
import signal
import threading
import time

import pytest
import weft
from weft._native import Interruptible

MAIN = threading.main_thread().ident


class Call:
    """A function as those of the library: it runs until it is told to stop, and for a while
    longer. Meanwhile it sends signals to the caller."""

    def __init__(self, long, signals, number=signal.SIGINT):
        self.long, self.signals, self.number, self.ended = long, signals, number, False

    def __call__(self, error):
        for _ in range(self.signals):
            signal.pthread_kill(MAIN, self.number)
            time.sleep(0.001)
        end = time.monotonic() + (5 if self.signals else 0)
        while not self.long.flag.value and time.monotonic() < end:
            time.sleep(0.001)
        time.sleep(0.1)
        self.ended = True
        return 8 if self.long.flag.value else 0


@pytest.mark.parametrize("signals", [1, 2, 100])
def test_a_call_that_returns_is_over(signals):
    long = Interruptible()
    call = Call(long, signals)
    with pytest.raises(KeyboardInterrupt):
        long.call(call)
    assert call.ended and long.flag.value == 0
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    call = Call(long, 0)
    assert long.call(call)[0] == 0 and call.ended


class Alarm(Exception):
    pass


def _alarm(number, frame):
    raise Alarm


@pytest.mark.parametrize("signals", [1, 2])
def test_other_signals_end_it_by_what_they_raise(monkeypatch, signals):
    long = Interruptible()
    call = Call(long, signals, signal.SIGALRM)
    before = signal.signal(signal.SIGALRM, _alarm)
    try:
        with pytest.raises(Alarm):
            long.call(call)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert call.ended and long.flag.value == 0


def test_a_handler_of_the_caller_stays():
    long, heard = Interruptible(), []
    before = signal.signal(signal.SIGINT, lambda number, frame: heard.append(number))
    try:
        call = Call(long, 1)
        stop = threading.Timer(0.2, lambda: setattr(long.flag, "value", 1))
        stop.start()
        assert long.call(call)[0] == 8  # of the timer: the handler has not stopped it
    finally:
        signal.signal(signal.SIGINT, before)
    assert heard == [signal.SIGINT] and call.ended


def test_a_thread_that_cannot_start(monkeypatch):
    long = Interruptible()

    def none(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", none)
    with pytest.raises(RuntimeError, match="new thread"):
        long.call(lambda error: 0)
    assert long.flag.value == 0


class Late:
    """A library that is interrupted when it has opened a run."""

    def __init__(self, library):
        self.real, self.opened, self.closed = library, 0, 0

    def __getattr__(self, name):
        return getattr(self.real, name)

    def weft_run_open(self, *arguments):
        status = self.real.weft_run_open(*arguments)
        self.opened += 1
        signal.pthread_kill(MAIN, signal.SIGINT)
        time.sleep(0.05)
        return status

    def weft_run_close(self, handle):
        self.closed += 1
        self.real.weft_run_close(handle)


def test_ctrl_c_leaves_no_open_run(small, monkeypatch):
    late = Late(weft._native.loaded())
    monkeypatch.setattr(weft._native, "_loaded", late)
    with weft.load(small) as plan:
        with pytest.raises(KeyboardInterrupt):
            plan.open(threads=1)
        assert (late.opened, late.closed) == (1, 1)
    assert late.closed == 1


def test_a_handler_that_raises_leaves_ctrl_c_as_it_was(monkeypatch):
    """Also where it comes before the call has begun."""
    def takes(handler, real=weft._native._takes_interrupts):
        real(handler)
        raise Alarm

    monkeypatch.setattr(weft._native, "_takes_interrupts", takes)
    with pytest.raises(Alarm):
        Interruptible().call(lambda error: 0)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def _state(plan, steps, interrupt=None):
    """Parameters and moments after so many steps, or when the signal comes that waits for an event."""
    with plan.open(threads=1) as run:
        run.init()
        if interrupt is None:
            for _ in run.steps(steps):
                pass
            return _all(plan, run)
        taken = 0
        with pytest.raises(KeyboardInterrupt) as e:
            for step in run.steps():
                taken = step.step + 1
                interrupt.set()
        taken += str(e.value) == "the call was done"
        state, ended = _all(plan, run), str(e.value) == f"interrupted in step {taken}"
        for call in (run.init, lambda: run.step(0), run.resume, lambda: run.load("weights")) if ended else ():
            with pytest.raises(weft.RunError, match="an earlier step has ended this run"):
                call()
        if ended:
            with pytest.raises(weft.RunError, match="no gradients"):
                run.get("model.norm.weight", "grad")
        return state, taken


def _all(plan, run):
    return [run.get(row["name"], state) for row in plan.parameter_list() for state in ("param", "moment1")]


def _ctrl_c(after, begun):
    """A Ctrl-C so many seconds after what is interrupted has said that it has begun."""
    def sends():
        begun.wait()
        time.sleep(after)
        signal.pthread_kill(MAIN, signal.SIGINT)

    threading.Thread(target=sends, daemon=True).start()


def test_ctrl_c_in_a_run(small):
    with weft.load(small, set={"train.steps": 1000000, "checkpoint.dir": "ckpt"}) as plan:
        for i in range(6):
            begun = threading.Event()
            _ctrl_c(0.03 + 0.011 * i, begun)
            state, taken = _state(plan, None, begun)
            assert state == _state(plan, taken)


def test_ctrl_c_before_a_plan_is_loaded(plans):
    """Plans that are loaded one after the other, each time a signal later."""
    path = plans / "quickstart.lua"
    for i in range(8):
        begun = threading.Event()
        _ctrl_c(0.01 + 0.003 * i, begun)
        with pytest.raises(KeyboardInterrupt):
            for _ in itertools.count():
                weft.load(path).close()
                begun.set()
    assert weft.check(path).world == 8
