"""Makes schedules.txt, what PyTorch's pipeline schedules do, for check_schedules, and
lowered.csv, a table as PyTorch writes it with all that it adds, for check_schedule_csv.

By hand, with torch installed:
    python tests/oracle/schedules.py           (writes next to this file)

A line per schedule, ranks P and stages per rank v, with an entry for each number of
microbatches 1 .. 32: "-" where PyTorch refuses it, else two hashes of 32 bits, of the
table of actions and of the table with transfers. The tables are texts, a row per rank, as
`weft show schedule --csv` prints them. The constructors of the schedules decide what is
refused; orders are theirs, but for the two schedules with one stage per rank, whose
execution is recorded: their tables are only for show, and that of 1F1B is not what runs.
"""
import pathlib
import types

import torch.distributed.pipelining.schedules as S

RANKS, VIRTUAL, MICROBATCHES = range(1, 9), range(1, 5), range(1, 33)


class Stage:
    """As much of a pipeline stage as the schedules look at."""

    def __init__(self, index, rank, ranks, stages):
        self.stage_index, self.group_rank = index, rank
        self.group_size, self.num_stages = ranks, stages
        self.is_first, self.is_last = index == 0, index == stages - 1
        self.has_backward, self.submod, self.group, self.device = True, None, None, None
        self.log = []

    def get_fwd_recv_ops(self, mb):
        return []

    get_fwd_send_ops = get_bwd_recv_ops = get_bwd_send_ops = get_fwd_recv_ops

    def forward_one_chunk(self, mb, *args, **kwargs):
        self.log.append(S._Action(self.stage_index, S.F, mb))

    def backward_one_chunk(self, mb, *args, **kwargs):
        self.log.append(S._Action(self.stage_index, S.B, mb))

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


def executed(cls, ranks, m):
    """The order in which a schedule with one stage per rank runs."""
    table = {}
    for rank in range(ranks):
        stage = Stage(rank, rank, ranks, ranks)
        schedule = cls(stage, m)
        schedule._check_inputs = lambda *a: ([()] * m, [{}] * m)
        schedule._initialize_stage = lambda *a, **k: None
        schedule._maybe_compute_loss = schedule._maybe_get_loss = lambda *a, **k: None
        schedule._update_losses = lambda *a, **k: None
        schedule._finalize_gradients = False
        schedule._step_microbatches(return_outputs=False)
        table[rank] = stage.log
    return table


def make(cls, ranks, virtual, m):
    """A schedule with several stages per rank; that of rank 0 has the tables of all."""
    stages = [Stage(k * ranks, 0, ranks, ranks * virtual) for k in range(virtual)]
    return cls(stages, m)


def ordered(cls, ranks, virtual, m):
    schedule = make(cls, ranks, virtual, m)
    return {r: [a for a in schedule.pipeline_order[r] if a is not None]
            for r in range(ranks)}


SCHEDULES = {
    "gpipe": (S.ScheduleGPipe, [1]),
    "1f1b": (S.Schedule1F1B, [1]),
    "looped_bfs": (S.ScheduleLoopedBFS, VIRTUAL),
    "interleaved_1f1b": (S.ScheduleInterleaved1F1B, VIRTUAL),
    "zero_bubble": (S.ScheduleInterleavedZeroBubble, VIRTUAL),
    "zbv": (S.ScheduleZBVZeroBubble, [2]),
    "dualpipe_v": (S.ScheduleDualPipeV, [2]),
}


def with_transfers(table, ranks, virtual):
    where = {a.stage_index: r for r, row in table.items() for a in leaves(row)}
    rows = {r: list(row) for r, row in table.items()}
    return S._add_send_recv(rows, where.__getitem__, ranks * virtual)


def leaves(row):
    for a in row:
        yield from a.sub_actions or (a,)


def text(table):
    return "".join(",".join(map(str, table[r])) + "\n" for r in sorted(table))


def fnv(s):
    h = 0xCBF29CE484222325
    for c in s.encode():
        h = (h ^ c) * 0x100000001B3 % 2**64
    return f"{(h ^ h >> 32) % 2**32:08x}"


def entry(name, ranks, virtual, m):
    cls = SCHEDULES[name][0]
    try:
        if issubclass(cls, S.PipelineScheduleSingle):
            table = executed(cls, ranks, m)
        else:
            table = ordered(cls, ranks, virtual, m)
    except (ValueError, AssertionError):
        return "-"
    return fnv(text(table)) + fnv(text(with_transfers(table, ranks, virtual)))


def main():
    S._batch_p2p = lambda *a, **k: types.SimpleNamespace()
    S._wait_batch_p2p = S._wait_and_release_fwd_send = lambda *a, **k: None
    lines = []
    for name, (_, virtuals) in SCHEDULES.items():
        for ranks in RANKS:
            for virtual in virtuals:
                row = [entry(name, ranks, virtual, m) for m in MICROBATCHES]
                lines.append(f"{name} {ranks} {virtual} {' '.join(row)}\n")
                print(name, ranks, virtual, sum(e != "-" for e in row), "of", len(row))
    here = pathlib.Path(__file__).resolve().parent
    (here / "schedules.txt").write_text("".join(lines))
    lowered = make(S.ScheduleDualPipeV, 2, 2, 5)
    lowered._dump_csv(here / "lowered.csv", format="compute_comms")


if __name__ == "__main__":
    main()
