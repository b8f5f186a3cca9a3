"""weft.report, weft.diff and weft.best: what the program says of plans, as values of Python."""

import pytest
import weft

H100 = """local weft = require "weft"
return weft.plan {
  name = "h", model = weft.model "llama3-8b", mesh = { world = 8 }, cluster = "h100-sxm",
  batch = { global = 64, micro = 1, seq = 4096 }, optimizer = weft.adamw { lr = 1e-4 },
  precision = "bf16", strategy = weft.var("strategy", "fsdp2"), train = { steps = 2 },
  data = weft.synthetic {},
}
"""


@pytest.fixture
def h100(tmp_path):
    path = tmp_path / "-h 100.lua"
    path.write_text(H100)
    return path


def test_report(small, h100):
    r = weft.report(small)
    assert r.fits and r.verdict == "fits" and r.world == 4 and r.mesh == {"pp": 2, "tp": 2}
    assert r.gpu["assumed"] and r.memory["worst_bytes"] == weft.check(small).memory_bytes
    r = weft.report(h100, define={"strategy": "ddp"})
    assert not r.fits and r.verdict == "too_large" and not r.gpu["assumed"]
    assert r.nearest and all("peak_bytes" in row for row in r.nearest)
    one = weft.report(small, set={"mesh": {"world": 1}})
    assert one.mesh == {} and one.world == 1


def test_report_of_other_settings(tmp_path):
    path = tmp_path / "ds.json"
    path.write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}')
    r = weft.report(path, model="llama3-8b", world=8, gpu="h200")
    assert r.world == 8 and r.gpu["name"] == "h200"


def test_what_is_wrong_is_raised(small, tmp_path):
    with pytest.raises(weft.PlanError, match="3 does not divide") as e:
        weft.report(small, set={"mesh.tp": 3})
    assert e.value.diagnostics[0].path == "mesh.tp"
    with pytest.raises(weft.PlanError, match="3 does not divide"):
        weft.diff(small, changes={"mesh.tp": 3})
    with pytest.raises(weft.PlanError, match="the clock needs the GPU"):
        weft.best(small)
    for ask in (weft.report, weft.best, lambda p: weft.diff(p, p)):
        with pytest.raises(weft.FileError, match="No such file"):
            ask(tmp_path / "gone.lua")


def test_diff(small, tmp_path):
    d = weft.diff(small, changes={"mesh.tp": 1})
    assert not d.same and d.fields == [{"path": "mesh.tp", "from": "2", "to": "1"}]
    assert {"name": "ranks", "from": 4, "to": 2} in d.figures and "the clock needs" in d.unknown
    other = tmp_path / "other.lua"
    other.write_text(small.read_text())
    assert weft.diff(small, other).same
    assert weft.diff(small, other, set={"mesh.tp": 1}).same
    assert not weft.diff(small, other, changes={"mesh.tp": 1}).same
    with pytest.raises(weft.UsageError, match="with another one, or with changes"):
        weft.diff(small)


def test_best(h100, tmp_path, monkeypatch):
    few = {"tp": [1, 2], "micro": [1], "recompute": ["none"]}
    out = tmp_path / "found.lua"
    found = weft.best(h100, over=few, clock=4, keep=2, output=out)
    assert len(found) == 2 and found.on_the_clock == 4 and not found.interrupted
    assert found[0]["seconds"] <= found[1]["seconds"] and "behind" in found[1]
    for row in found:
        assert weft.load(h100, set=row["fields"]).mesh["tp"] == row["layout"]["tp"]
    assert weft.diff(out, h100, changes=found[0]["fields"]).same
    with pytest.raises(weft.FileError, match="found.lua"):
        weft.best(h100, over=few, clock=1, output=out)
    monkeypatch.chdir(tmp_path)
    assert len(weft.best(h100.name, over=few, memory=2)) == 0


def test_values_of_a_search(small):
    for wrong in ({"tp": 2}, {"recompute": "none"}, {"tp": {1: 2}}):
        with pytest.raises(weft.UsageError, match="a list of values is needed"):
            weft.best(small, over=wrong)
    with pytest.raises(weft.UsageError, match="has a NUL"):
        weft.report(small, gpu="h\0")
