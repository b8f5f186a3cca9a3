"""weft.sweep: scripts, grids of Python, errors; rows as lists of dicts and in pandas."""

import builtins
import os
import signal
import threading
import time
from fractions import Fraction

import pytest
import weft


def test_a_grid_of_python(small):
    rows = weft.sweep(
        small, over={"mesh.tp": [1, 2, 3], "schedule": ["gpipe", "1f1b"], "train.steps": [2]}, keep=3
    )
    assert (rows.points, rows.judged, rows.legal, rows.illegal) == (6, 6, 4, 2)
    assert len(rows) == 3 and not rows.interrupted
    assert {row["mesh.tp"] for row in rows} <= {1, 2}
    assert {row["schedule"] for row in rows} <= {"gpipe", "1f1b"}
    assert rows[0]["peak_gib"] <= rows[1]["peak_gib"]
    assert rows.reasons[0]["path"] == "mesh.tp" and rows.reasons[0]["count"] == 2
    limited = weft.sweep(small, over={"mesh.tp": [1, 2]}, max_gib=rows[0]["peak_gib"] * 1.01)
    assert limited.memory + limited.legal == 2


def test_a_script(tmp_path, small):
    script = tmp_path / "Suche ü.lua"
    script.write_text(
        'local weft = require "weft"\nprint "not a row"\n'
        'weft.sweep { plan = arg[1], over = { { "mesh.tp", 1, 2 } }, score = "bubble" }\n'
    )
    rows = weft.sweep(script, str(small))
    assert sorted(row["mesh.tp"] for row in rows) == [1, 2]
    with pytest.raises(weft.UsageError, match="keep, max_gib"):
        weft.sweep(script, keep=3)


def test_values_of_lua(small):
    odd = 'a "quoted"\\ name \u00e4'
    rows = weft.sweep(small, over={"name": [odd], "strategy": [{"1": "zero"}, "zero"]}, keep=2)
    assert rows[0]["name"] == odd
    for wrong in (object(), float("nan")):
        with pytest.raises(weft.UsageError, match="a value of a grid is"):
            weft.sweep(small, over={"mesh.tp": [wrong]})


def test_axes_are_lists(small):
    for wrong in ({"mesh.tp": 2}, {"schedule": "1f1b"}, {"strategy": {"1": "zero"}}):
        with pytest.raises(weft.UsageError, match=r"a list of values is needed: \["):
            weft.sweep(small, over=wrong)
    with pytest.raises(weft.UsageError, match="a dict is needed"):
        weft.sweep(small, over=["mesh.tp"])
    rows = weft.sweep(small, over={"batch.seq": range(16, 48, 16)})
    assert sorted(row["batch.seq"] for row in rows) == [16, 32]


def test_none_is_no_value(small):
    for values in (["full", None], [None, "full"], iter(["full", None])):
        with pytest.raises(weft.UsageError, match=r"over\['recompute'\] has None"):
            weft.sweep(small, over={"recompute": values})
    for wrong in ([["zero", None]], [{"1": ["zero", None]}]):
        with pytest.raises(weft.UsageError, match="a list with None in it"):
            weft.sweep(small, over={"strategy": wrong})
    with pytest.raises(weft.UsageError, match="a list with None in it"):
        weft.load(small, set={"strategy": ["zero", None]})
    with pytest.raises(weft.UsageError, match="the key None"):
        weft.load(small, set={"mesh": {None: 2}})


def test_numbers_of_other_packages(small):
    class Eight(int):  # as numpy's, whose repr is not a number of Lua
        def __repr__(self):
            return "int64(8)"

    rows = weft.sweep(small, over={"batch.seq": [Eight(8)], "optimizer.clip": [Fraction(1, 2)]})
    assert rows[0]["batch.seq"] == 8 and rows[0]["optimizer.clip"] == 0.5


def test_errors(tmp_path, small, plans):
    with pytest.raises(weft.FileError) as e:
        weft.sweep(tmp_path / "no.lua", over={"mesh.tp": [1]})
    assert str(e.value) == f"{tmp_path}/no.lua: error: cannot be opened: No such file or directory [file]"
    wrong = tmp_path / "wrong.lua"
    wrong.write_text(small.read_text().replace("batch =", "bacth ="))
    with pytest.raises(weft.PlanError) as e:
        weft.sweep(wrong, over={"mesh.tp": [1]})
    assert "traceback" not in str(e.value) and str(e.value).startswith(f"{wrong}:")
    with pytest.raises(weft.PlanError, match="it is of plans"):
        weft.sweep(small)
    with pytest.raises(weft.PlanError, match="did you mean 'mesh'"):
        weft.sweep(small, over={"mehs.tp": [1]})
    with pytest.raises(weft.PlanError, match="the point is no plan") as e:
        weft.sweep(small, over={"mesh.tp": [3]})
    assert e.value.diagnostics
    with pytest.raises(weft.PlanError) as e:
        weft.sweep(small, over={"mesh.tpp": [1]})
    assert str(e.value) == "error: a plan has no field 'mesh.tpp' (did you mean 'tp'?) [plan]"
    with pytest.raises(weft.FileError, match="no.lua"):
        weft.sweep(tmp_path / "no.lua")
    with pytest.raises(weft.PlanError, match="made no sweep"):
        weft.sweep(plans / "quickstart.lua")


class Alarm(Exception):
    pass


def _alarm(number, frame):
    raise Alarm


def _leaves_none():
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


LONG = {"batch.seq": range(16, 16 * 40000, 16), "mesh.tp": [1, 2]}


def test_a_handler_that_raises_ends_the_program(small):
    before = signal.signal(signal.SIGALRM, _alarm)
    try:
        with pytest.raises(Alarm):
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            weft.sweep(small, over=LONG)
    finally:
        signal.signal(signal.SIGALRM, before)
    _leaves_none()


def test_ctrl_c_for_this_process_alone(small):
    """As an editor sends it: the program hears of it, and its rows are kept."""
    def interrupt(main=threading.main_thread().ident):
        child, tasks = [], []
        while len(tasks) < 2:  # its sweep has begun when it has more threads
            time.sleep(0.05)
            with open(f"/proc/self/task/{os.getpid()}/children") as f:
                child = f.read().split()
            tasks = os.listdir(f"/proc/{child[0]}/task") if child else []
        time.sleep(0.5)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    rows = weft.sweep(small, over=LONG, threads=2)
    assert rows.interrupted and rows.judged < rows.points
    _leaves_none()


def test_pandas(small):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = weft.check(small).memory.to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.groupby("pp")["bytes"].sum()) == list(
        sum(r["bytes"] for r in weft.check(small).memory if r["pp"] == pp) for pp in (0, 1)
    )


def test_no_pandas(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **more):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ImportError, match="pip install pandas"):
        weft.Rows([{"a": 1}]).to_pandas()
