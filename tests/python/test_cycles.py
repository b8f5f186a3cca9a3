"""10,000 handles are opened and closed: plans, wrong ones, programs, runs and sweeps, in threads.
What is lost shows as memory, open files, threads or objects of Python."""

import gc
import os
import resource
import threading
import time

import pytest
import weft

TINY = """local weft = require "weft"
return weft.plan {
  model = function(g)
    local function w() return g:param("w", { { "vocab", 8 }, { "hidden", 4 } }) end
    local x = g:unit("embed", function() return g:embedding(g:tokens(), w()) end)
    return g:unit("head", function() return g:cross_entropy(g:linear(x, w()), g:labels()) end)
  end,
  batch = { global = 1, seq = 2 }, data = weft.synthetic {},
}
"""

CYCLES, THREADS = 10_000, 2
SWEEPS = 10
RUNS, PROGRAMS, WRONG = 8, 6, 2  # beside each plan


@pytest.fixture
def tiny(tmp_path):
    path = tmp_path / "tiny.lua"
    path.write_text(TINY)
    (tmp_path / "wrong.lua").write_text("return 1")
    return path


def _plan(path, number):
    """Opens and closes a plan, what belongs to it and wrong plans; returns how many handles."""
    plan = weft.load(path)
    for i in range(RUNS):
        run = plan.open(threads=1)
        if i % 2:
            run.close()  # the others are dropped
    for _ in range(PROGRAMS):
        assert len(plan.program(0)) > 0
    del run
    if number % 2:
        plan.close()
    for _ in range(WRONG):
        with pytest.raises(weft.PlanError):
            weft.load(path.parent / "wrong.lua")
    with pytest.raises(weft.PlanError):
        weft.load(path, set={"batch.seq": 0})
    return 1 + RUNS + PROGRAMS + WRONG + 1


def _cycles(path, n):
    """As many handles as `n`, in threads; returns how many."""
    done, failed = [0] * THREADS, []

    def work(t):
        try:
            number = t
            while done[t] < n // THREADS:
                done[t] += _plan(path, number)
                number += 1
        except BaseException as e:
            failed.append(e)
            raise

    threads = [threading.Thread(target=work, args=(t,)) for t in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed
    return sum(done)


def _held():
    """What this process has: bytes, files, threads, objects of Python."""
    gc.collect()
    with open("/proc/self/statm") as f:
        resident = int(f.read().split()[1]) * resource.getpagesize()
    return (resident, len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task")),
            len(gc.get_objects()))


def test_ten_thousand_cycles_lose_nothing(tiny):
    began = time.process_time()
    _cycles(tiny, CYCLES // 10)
    assert len(weft.sweep(tiny, over={"batch.seq": [2, 4]})) == 2
    before = _held()
    opened = _cycles(tiny, CYCLES)
    for _ in range(SWEEPS):
        weft.sweep(tiny, over={"batch.seq": [2, 4]})
    after = _held()
    assert opened >= CYCLES
    print(f"{opened} handles in {time.process_time() - began:.1f} s of processor time; memory "
          f"{before[0] >> 10} KiB before, {after[0] >> 10} KiB after")
    # A plan holds 60 KiB and more: one lost of sixteen, or 200 bytes of each handle, is more than this.
    assert after[0] - before[0] < 2 << 20
    assert after[1:3] == before[1:3]
    assert after[3] - before[3] < 100
