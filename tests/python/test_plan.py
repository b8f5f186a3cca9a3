"""weft.check, plans, programs and runs."""

import array
import collections
import copy
import gc
import json
import os
import pickle
import subprocess
import threading
from pathlib import Path

import pytest
import weft
from weft.plan import INSTRUCTIONS


def test_check_says_what_the_program_says(plans):
    said = weft.check(plans / "quickstart.lua")
    out = subprocess.run(
        [os.environ.get("WEFT_PROGRAM", "weft"), "check", "--json", str(plans / "quickstart.lua")],
        stdout=subprocess.PIPE, check=True,
    ).stdout
    result = json.loads(out)["result"]
    assert (said.name, said.parameters) == (result["name"], result["parameters"])
    assert said.memory_bytes == result["memory_bytes"]
    assert said.proof == result["proof"]
    assert {**said.mesh, "world": said.world} == result["mesh"]
    assert said.diagnostics == []
    for pp in (0, 1):
        assert 0 < sum(row["bytes"] for row in said.memory if row["pp"] == pp) <= said.memory_bytes
    assert {"parameters", "gradients", "activations"} <= {row["name"] for row in said.memory}


def test_a_wrong_plan_raises_all_that_is_wrong(plans):
    path = plans / "quickstart.lua"
    fields = {"mesh.tp": 3, "train.step": 4, "optimizer.clip": -1}
    with pytest.raises(weft.PlanError) as e:
        weft.check(path, set=fields)
    found = e.value.diagnostics
    assert {d.path for d in found} >= {"mesh.tp", "train.step", "optimizer.clip"}
    assert all(isinstance(d, weft.Diagnostic) and d.severity == "error" for d in found)
    assert [d.suggestion for d in found if d.path == "train.step"] == ["steps"]
    out = subprocess.run(
        [os.environ.get("WEFT_PROGRAM", "weft"), "check", str(path)]
        + [word for key, v in fields.items() for word in ("--set", f"{key}={v}")],
        stderr=subprocess.PIPE, check=False,
    ).stderr.decode()
    assert out.splitlines()[:-1] == str(e.value).splitlines()


def test_check_reads_the_files(small, plans):
    text = small.read_text()
    small.write_text(text.replace("weft.synthetic {}", 'weft.text "none.txt"'))
    with pytest.raises(weft.FileError, match="no file matches"):
        weft.check(small)
    weft.load(small).close()
    (small.parent / "none.txt").write_text("0123456789" * 5)
    program = os.environ.get("WEFT_PROGRAM", "weft")
    for path in (small, plans / "gpt_7b_zero.lua", plans / "families.lua"):
        out = subprocess.run([program, "check", "--json", str(path)], stdout=subprocess.PIPE, check=True)
        want = [weft.Diagnostic.of_json(d) for d in json.loads(out.stdout)["diagnostics"]]
        assert weft.check(path).diagnostics == want
        assert want or path != small  # of samples that are seen more than once
    with weft.load(small) as plan:
        for _ in range(2):
            plan._check_files()
            assert plan.diagnostics == weft.check(small).diagnostics


def test_errors_by_kind(tmp_path, small):
    with pytest.raises(weft.FileError, match="no.lua"):
        weft.check(tmp_path / "no.lua")
    with pytest.raises(weft.UsageError, match="expected a dict"):
        weft.load(small, set="mesh.tp=2")
    with pytest.raises(weft.UsageError, match="nothing"):
        weft.load(small, define={"nothing": 1})
    (tmp_path / "loop.lua").write_text("while true do end")
    with pytest.raises(weft.LimitError):
        weft.check(tmp_path / "loop.lua")
    (tmp_path / "syntax.lua").write_text("return weft.plan {")
    with pytest.raises(weft.PlanError) as e:
        weft.check(tmp_path / "syntax.lua")
    assert e.value.diagnostics[0].line == 1
    assert issubclass(weft.PlanError, weft.WeftError)


def test_fields_are_values_of_python(small):
    fields = {"mesh": {"tp": 1, "dp": 2}, "name": None, "strategy": ["zero"], "optimizer.lr": 0.5,
              "packed": {"size": 16, "eot": 0, "alone": True}, "schedule": "gpipe"}
    with weft.load(small, set=fields) as plan:
        assert (plan.world, plan.mesh["tp"]) == (2, 1)
        with plan.changed({"mesh": {"tp": 2}, "name": '"5"'}) as other:
            assert (other.world, other.name) == (2, "5")
    with weft.load(small, set={"checkpoint": {"dir": small.parent / "runs"}}) as plan:
        assert plan.world == 4
    with pytest.raises(weft.UsageError, match="a value of a field is a set"):
        weft.check(small, set={"mesh": {1}})


def test_paths_are_no_expressions(small):
    for name in ("2024/11", "nil", "10", "true"):
        with weft.load(small, set={"checkpoint.dir": Path(name)}, define={"steps": 3}) as plan:
            assert plan.changed({"name": Path(name)}).name == name
    with pytest.raises(weft.UsageError, match="a value of a field is bytes; give a str"):
        weft.load(small, set={"name": b"abc"})
    rows = weft.sweep(os.fsencode(small), over={"mesh.tp": [1, 2]})
    assert rows.legal == 2


def test_epochs_say_how_long_a_run_is(small):
    (small.parent / "a.txt").write_text("0123456789" * 20)
    text = small.read_text().replace("weft.synthetic {}", 'weft.text "a.txt"')
    small.write_text(text.replace("{ steps = weft.var(\"steps\", 2) }", "{ epochs = 2 }"))
    with weft.load(small) as plan, plan.open(threads=1) as run:
        assert plan.steps == 0
        run.init()
        assert len(list(run.steps())) == 6  # 12 windows of 16, twice, by four
    falls = {"optimizer.lr": "weft.cosine { max = 1e-2, min = 0, warmup = 1 }"}
    with weft.load(small, set=falls) as plan:
        rates = []
        for given in ((), ([1] * 64, [2] * 64)):
            with plan.changed([]) as fresh, fresh.open(threads=1) as run:
                run.init()
                rates.append(run.step(3, *given).lr)
        assert rates[0] == rates[1] < 1e-2


def test_a_plan_and_its_programs(small):
    with weft.load(small, define={"steps": 7}) as plan:
        assert (plan.name, plan.world, plan.steps) == ("small", 4, 7)
        assert (plan.sequences, plan.tokens, plan.microbatches) == (4, 16, 4)
        assert plan.mesh["tp"] == 2
        assert sum(row["count"] for row in plan.parameter_list()) == plan.parameters
        assert plan.memory_bytes(0) <= plan.peak_bytes
        assert [row["stage"] for row in plan.stages()] == [0, 1]
        assert {row["axis"] for row in plan.comm(3)} >= {"tp"}
        assert plan.rank(3)["rank"] == 3
        program = plan.program(3)
        assert (program.rank, program.world) == (3, 4)
        assert program.arena_bytes == plan.memory_bytes(3)
        assert len(program) == len(list(program)) > len(program.of("RECV")) > 0
        assert sum(len(program.of(code)) for code in INSTRUCTIONS) == len(program)
        with pytest.raises(weft.UsageError, match="no instruction 'SENDS' .did you mean 'SEND'"):
            program.of("SENDS")
        assert "rank 3 of 4" in program.text and program.bodies
        other = plan.changed({"mesh.tp": 1})
        assert (other.world, other.steps) == (2, 7)
        for wrong in (lambda: plan.program(4), lambda: plan.rank(-1), lambda: plan.memory_bytes(9)):
            with pytest.raises(weft.UsageError, match="there is no rank"):
                wrong()
    with pytest.raises(weft.UsageError, match="is closed"):
        plan.memory()
    assert "closed" in repr(plan)
    plan.close()


def test_a_step_on_the_clock(plans, small):
    with weft.load(plans / "llama3_8b.lua") as plan:
        said = plan.sim()
        assert 0.2 < said["mfu"] < 1 and said["low"] <= said["seconds"] <= said["high"]
        assert len(said["pipeline"]) == plan.mesh["pp"]
        faster = plan.changed({"recompute": "none"}).sim()
        assert faster["seconds"] <= said["seconds"] and faster["gpu_bytes"] >= said["gpu_bytes"]
    with weft.load(small) as plan, pytest.raises(weft.PlanError, match="plan.cluster"):
        plan.sim()
    long = {
        "model": 'weft.model "llama3-70b"', "cluster": "h100-sxm", "precision": "bf16",
        "mesh.tp": 1, "mesh.pp": 1, "batch.global": 512, "batch.micro": 32, "batch.seq": 1 << 20,
    }
    with weft.load(small, set=long) as plan, pytest.raises(weft.PlanError, match="days of work"):
        plan.sim()


class Row:
    """As a row of a tensor of torch is."""

    def __float__(self):
        raise RuntimeError("a Tensor with 2 elements cannot be converted to Scalar")


def test_a_run_trains(small):
    with weft.load(small) as plan, plan.open(threads=1) as run:
        run.init()
        steps = list(run.steps())
        assert [s.step for s in steps] == [0, 1] and steps[0].tokens == 4 * 16
        norm = run.get("model.norm.weight")
        assert len(run.get("model.norm.weight", "grad")) == len(norm)
        run.set("model.norm.weight", [2.0] * len(norm))
        assert set(run.get("model.norm.weight")) == {2.0}
        with pytest.raises(weft.UsageError, match="values of type f"):
            run.set("model.norm.weight", [1.0])
        with pytest.raises(weft.UsageError, match="takes numbers, or a buffer of f32"):
            run.set("model.norm.weight", [Row()] * len(norm))
        with pytest.raises(weft.UsageError, match="no parameter"):
            run.get("head")
        with pytest.raises(weft.UsageError, match="none of param, grad"):
            run.get("model.norm.weight", "momentum")
    with pytest.raises(weft.UsageError, match="is closed"):
        run.step(2)


def test_steps_on_tokens_of_ones_own(small):
    with weft.load(small) as plan, plan.open(threads=1) as run:
        with pytest.raises(weft.UsageError, match="needs an init, a load or a resume"):
            run.step(0)
        run.init()
        n = plan.sequences * plan.tokens
        tokens = [i % 7 for i in range(n)]
        labels = tokens[1:] + [-100]
        step = run.step(0, tokens, labels)
        assert step.tokens == n - 1
        run.init()
        wide = array.array("q", tokens)
        assert run.step(0, memoryview(wide), array.array("i", labels)).loss == step.loss
        for one in (bytes(tokens), memoryview(array.array("H", tokens)).cast("B").cast("H", (4, 16))):
            run.init()
            assert run.step(0, one, labels).loss == step.loss
        for wrong, why in (
            ((tokens, None), "needs both"),
            ((tokens[1:], labels), f"4 sequences of 16, {n} ids, got {n - 1}"),
            (([0.5] * n, labels), "tokens takes token ids"),
            (([1 << 40] * n, labels), "tokens takes token ids"),
            (([10 ** 6] * n, labels), "1000000"),
        ):
            with pytest.raises(weft.UsageError, match=why):
                run.step(1, *wrong)


def test_states_have_lengths_of_their_own(small):
    of = {"optimizer": "weft.adafactor { lr = 1e-3 }"}
    with weft.load(small, set=of) as plan, plan.open(threads=1) as run:
        run.init()
        run.step(0)
        (shape,) = [p["shape"] for p in plan.parameter_list() if p["name"] == "lm_head.weight"]
        factors = run.get("lm_head.weight", "moment1")
        assert len(factors) == sum(shape) < len(run.get("lm_head.weight"))
        run.set("lm_head.weight", [0.5] * sum(shape), "moment1")
        assert set(run.get("lm_head.weight", "moment1")) == {0.5}
        with pytest.raises(weft.UsageError, match="keeps 1 state"):
            run.get("lm_head.weight", "moment2")


KEPT = """local weft = require 'weft'
return weft.plan {
  model = weft.model { 'llama', hidden_size = 16, intermediate_size = 24, num_hidden_layers = 2,
                       num_attention_heads = 2, num_key_value_heads = 2, vocab_size = 256 },
  mesh = { tp = 2 }, batch = { global = 2, micro = 1, seq = 8 },
  optimizer = weft.adamw { lr = 1e-2 },
  data = weft.text { 'a.txt', val_fraction = 0.25 },
  checkpoint = { dir = 'ckpt' },
  train = { steps = 4, eval_every = 2, eval_batches = 2 },
}
"""


def test_a_run_is_kept(tmp_path):
    (tmp_path / "a.txt").write_text("weft trains what a plan says, " * 60)
    path = tmp_path / "kept.lua"
    path.write_text(KEPT)
    with weft.load(path) as plan, plan.open(threads=1) as run:
        assert run.resume() == 0
        before = run.evaluate()
        assert before.tokens == 2 * 2 * 8 and 5 < before.loss < 6
        losses = []
        for step in run.steps():
            losses.append(step.loss)
            if step.step == 1:
                run.save(2)
        assert run.evaluate(1).tokens == 2 * 8 and run.evaluate().loss < before.loss
        run.export(tmp_path / "out")
        last = run.get("lm_head.weight")
    assert (tmp_path / "out" / "config.json").exists()
    with weft.load(path) as plan, plan.open(threads=1) as run:
        assert run.resume() == 2
        assert [step.loss for step in run.steps(start=2)] == losses[2:]
        assert run.get("lm_head.weight") == last
        run.load(tmp_path / "out")
        assert run.get("lm_head.weight") == last
    with weft.load(path, set={"optimizer.lr": 2e-2}) as plan, plan.open(threads=1) as run:
        with pytest.warns(UserWarning, match="optimizer.lr"):
            assert run.resume(tmp_path / "ckpt") == 2
        with pytest.raises(weft.FileError):
            run.resume(tmp_path / "none")


class Index:
    """As numpy's integers are."""

    def __init__(self, n):
        self.n = n

    def __index__(self):
        return self.n


def test_arguments_that_c_does_not_have(small, capfd):
    with weft.load(small) as plan, plan.open(threads=1) as run:
        with pytest.raises(weft.UsageError, match="no parameters yet"):
            run.step(0)
        run.init()
        assert run.step(Index(1)).step == 1
        for wrong in (1.5, "1", None):
            for call in (run.step, plan.rank, plan.memory_bytes, plan.program):
                with pytest.raises(TypeError):
                    call(wrong)
        for call, bits in ((run.step, 64), (plan.rank, 32), (plan.memory_bytes, 32)):
            with pytest.raises(weft.UsageError, match=f"has more than {bits} bits"):
                call(1 << 70)
        for name, call in (("threads", plan.open), ("ranks", plan.verify)):
            with pytest.raises(weft.UsageError, match=f"{name} is 4294967296, which"):
                call(**{name: 1 << 32})
    with pytest.raises(weft.UsageError, match="world is 4294967296"):
        weft.load(small, world=1 << 32)
    for call in (weft.load, weft.sweep):
        with pytest.raises(weft.UsageError, match=r"a list of paths is needed: \['/data'\]"):
            call(small, data="/data")
    assert capfd.readouterr().err == ""


def test_a_plan_closes_its_runs(small):
    plan = weft.load(small)
    run = plan.open(threads=1)
    plan.close()
    with pytest.raises(weft.UsageError, match="is closed"):
        run.init()


def test_verify(small):
    with weft.load(small) as plan:
        result = plan.verify(steps=1)
        assert result.ranks == 4 and result.steps == 1 and result.tensors > 0
        assert result.param <= result.tolerance


def test_plans_in_threads(small):
    names = []

    def one():
        with weft.load(small) as plan:
            names.append((plan.name, len(plan.program(0))))

    threads = [threading.Thread(target=one) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(names) == 4 and len(set(names)) == 1


class Counted:
    """A library that counts the calls of its functions."""

    def __init__(self, library):
        self.counted, self.calls = library, collections.Counter()

    def __getattr__(self, name):
        function = getattr(self.counted, name)

        def counted(*arguments):
            self.calls[name] += 1
            return function(*arguments)

        return counted


def test_nothing_is_lost(small, monkeypatch):
    """Plans that are closed, dropped, wrong, or left in a circle with their run: each handle is
    freed once. test_cycles.py looks at the memory of many more."""
    lib = Counted(weft._native.loaded())
    monkeypatch.setattr(weft._native, "_loaded", lib)
    n = 200
    for i in range(n):
        plan = weft.load(small)
        if i % 4 == 0:
            plan.close()
            plan.close()
        if i % 4 == 1:
            circle = [plan.open(threads=1)]
            circle.append(circle)
            gc.collect()
        if i % 4 == 2:
            with pytest.raises(weft.PlanError):
                weft.load(small, set={"mesh.tp": 3})
    del plan, circle
    gc.collect()
    assert lib.calls["weft_plan_load"] == lib.calls["weft_plan_free"] == n + n // 4
    assert lib.calls["weft_run_open"] == lib.calls["weft_run_close"] == n // 4


def test_the_package_is_that_of_the_library():
    assert weft.__version__ == weft._native.text(weft._native.loaded().weft_version())
    assert os.path.exists(os.path.dirname(weft.__file__) + "/py.typed")


def test_iterators_are_read_once(small):
    with weft.load(small, set=(f for f in ["mesh.tp=1"]), define=iter(["steps=7"])) as plan:
        assert (plan.mesh["tp"], plan.steps) == (1, 7)
        with plan.changed(f for f in ["mesh.pp=1"]) as other:
            assert (other.world, other.steps) == (1, 7)
            with other.changed([]) as again:
                assert again.world == 1
    with pytest.raises(weft.UsageError, match="got 4 in it"):
        weft.load(small, set=[4])


def test_texts_end_where_those_of_c_do(small):
    path = f"{small}\0zzz"
    with weft.load(small) as plan, plan.open(threads=1) as run:
        for call in (lambda: weft.load(path), lambda: weft.load(small, set=["mesh.tp=2\0 4"]),
                     lambda: weft.load(small, set={"name": "a\0b"}),
                     lambda: weft.load(small, define=["steps=2\0"]),
                     lambda: weft.sweep(path, over={"mesh.tp": [1]}), lambda: weft.sweep(path),
                     lambda: weft.sweep(small, over={"mesh.tp": [1]}, data=["/data\0"]),
                     lambda: weft.load(small, data=["/data\0"]), lambda: run.load(path),
                     lambda: run.resume(path), lambda: run.export(path)):
            with pytest.raises(weft.UsageError, match="has a NUL"):
                call()
        with pytest.raises(weft.UsageError, match="a parameter has a NUL"):
            run.get("model.norm.weight\0")


def test_numbers_below_zero(small):
    with weft.load(small) as plan:
        for name, text in (("ranks", "-5 ranks"), ("steps", "-5 steps"), ("tolerance", "of -5")):
            with pytest.raises(weft.UsageError, match=text):
                plan.verify(**{name: -5})
        with pytest.raises(weft.UsageError, match="of nan"):
            plan.verify(tolerance=float("nan"))
        for wrong in (-1, 4):
            with pytest.raises(weft.UsageError, match=f"there is no rank {wrong}"):
                plan.comm(wrong)
            with pytest.raises(weft.UsageError, match=f"there is no rank {wrong}"):
                plan.rank(wrong)
    for name in ("world", "memory_limit"):
        with pytest.raises(weft.UsageError, match="-1"):
            weft.load(small, **{name: -1})


def test_parameters_are_set_from_buffers(small):
    numpy = pytest.importorskip("numpy", reason="numpy is not installed")
    with weft.load(small) as plan, plan.open(threads=1) as run:
        run.init()
        name, shape = next((p["name"], p["shape"]) for p in plan.parameter_list() if len(p["shape"]) == 2)
        values = numpy.arange(shape[0] * shape[1], dtype="float32").reshape(shape)
        for given in (values, values.reshape(-1), values.reshape(-1, 1), values.ravel().tolist(),
                      values.astype(">f4").ravel(), values.astype("float64").ravel()):
            run.set(name, numpy.zeros(shape, "float32"))
            run.set(name, given)
            assert numpy.array_equal(numpy.frombuffer(run.get(name), "float32").reshape(shape), values)
        values.flags.writeable = False
        run.set(name, values)
        for wrong in (values.T, values.astype("float64")):
            with pytest.raises(weft.UsageError, match="a buffer of f32 in C order"):
                run.set(name, wrong)
        with pytest.raises(weft.UsageError, match="values of type f"):
            run.set(name, values[:1])


def test_errors_go_to_other_processes():
    given = [weft.Diagnostic("code", "message", "error")]
    kinds = {weft.WeftError, *weft.errors.BY_STATUS.values()}
    errors = [kind("a text", given) for kind in kinds] + [weft.LogError("run.jsonl", 3, "is none")]
    for error in errors:
        for other in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):
            assert (type(other), str(other)) == (type(error), str(error))
            assert (other.args, vars(other)) == (error.args, vars(error))
    assert (other.path, other.line) == ("run.jsonl", 3)
