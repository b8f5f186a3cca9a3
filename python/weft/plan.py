"""Plans, their programs and their runs, over the C API of weft.h.

A handle of weft is used by one thread at a time; a plan and its runs count as one, so they
share a lock."""

from __future__ import annotations

import array
import ctypes
import difflib
import json
import os
import sys
import warnings
import weakref
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from . import _native
from .errors import Diagnostic, UsageError, WeftError
from .literals import Fields, pairs
from .rows import Rows

__all__ = ["Check", "Evaluation", "Plan", "Program", "Run", "Step", "Verified", "check", "load"]

Path = Union[str, "os.PathLike[str]"]


@dataclass(frozen=True)
class Check:
    """What ``weft check`` says of a plan that is right."""

    name: str
    world: int  #: ranks
    mesh: Dict[str, int]  #: size of every axis
    parameters: int  #: elements of all of them
    microbatches: int
    memory_bytes: int  #: of the arena of the worst rank
    memory: Rows  #: columns ``pp``, ``name``, ``bytes``, ``note``
    proof: Dict[str, int]
    diagnostics: List[Diagnostic]  #: warnings


@dataclass(frozen=True)
class Step:
    """A step of a run."""

    step: int
    tokens: int
    loss: float
    grad_norm: float
    lr: float
    ms: float
    loss_scale: float
    skipped: bool


@dataclass(frozen=True)
class Evaluation:
    """The loss of validation data; ``cross_entropy`` is the part of it without losses of routers
    and others, NaN where it is not told apart."""

    loss: float
    cross_entropy: float
    tokens: int
    ms: float


@dataclass(frozen=True)
class Verified:
    """Largest relative differences between a small version on many ranks and on one."""

    ranks: int
    steps: int
    tensors: int
    loss: float
    grad_norm: float
    grad: float
    param: float
    tolerance: float
    worst: str
    not_covered: str
    rounding: str  #: what is beyond the tolerance, and why it is rounding


#: The codes of instructions, which docs/program.md explains.
INSTRUCTIONS = ("CALL", "KERNEL", "COLL", "SEND", "RECV", "WAIT", "GATHER", "FREE", "SCATTER")


class Program(Sequence[Dict[str, Any]]):
    """The program of a rank: a sequence of its instructions, as docs/program.md has them."""

    def __init__(self, json: Dict[str, Any], text: str) -> None:
        self.json = json  #: the whole object
        self.text = text  #: the same for people

    @property
    def rank(self) -> int:
        return int(self.json["rank"])

    @property
    def world(self) -> int:
        return int(self.json["world"])

    @property
    def arena_bytes(self) -> int:
        return int(self.json["arena_bytes"])

    @property
    def bodies(self) -> List[Dict[str, Any]]:
        """Lists of instructions that CALL names by number."""
        bodies: List[Dict[str, Any]] = self.json["bodies"]
        return bodies

    def of(self, code: str) -> Rows:
        """The instructions with this code: ``CALL``, ``SEND``, ``COLL``, ..."""
        if code not in INSTRUCTIONS:
            near = difflib.get_close_matches(str(code).upper(), INSTRUCTIONS, 1, 0.5)
            hint = f"did you mean {near[0]!r}?" if near else "there are " + ", ".join(INSTRUCTIONS)
            raise UsageError(f"there is no instruction {code!r} ({hint})")
        return Rows(i for i in self if i["code"] == code)

    def __len__(self) -> int:
        return len(self.json["main"])

    def __getitem__(self, index: Any) -> Any:
        return self.json["main"][index]

    def __repr__(self) -> str:
        return f"<weft.Program of rank {self.rank} of {self.world}, {len(self)} instructions>"


def _members(struct: Any) -> Dict[str, Any]:
    return {field[0]: getattr(struct, field[0]) for field in struct._fields_}


class _Owned:
    """The handle of a plan, freed once: by close, or with the last plan or run that has it."""

    def __init__(self, library: Any) -> None:
        self.free_plan, self.handle = library.weft_plan_free, ctypes.c_void_p()

    def free(self) -> None:
        value, self.handle.value = self.handle.value, None
        if value is not None:
            self.free_plan(value)

    def __del__(self, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if not ends():  # else ranks may be in a step, and memory goes with the process
            self.free()


def _close_run(close: Any, handle: ctypes.c_void_p, plan: _Owned, process: int) -> None:
    if os.getpid() == process:  # a fork has none of the threads that this waits for
        close(handle.value)  # `plan` is kept until here


class Plan:
    """A plan of a Lua file, checked and compiled; its programs cannot deadlock.

    ``set`` changes fields (``{"mesh.tp": 4}``), ``define`` gives variables of the plan values,
    ``data`` are folders that it may read besides its own, ``world`` is the number of ranks where
    the plan leaves it open. Raises :class:`PlanError` with all that is wrong. ``close`` gives the
    memory back before Python does; a plan is also a context manager."""

    def __init__(
        self,
        path: Path,
        *,
        set: Optional[Fields] = None,
        define: Optional[Fields] = None,
        data: Sequence[Path] = (),
        world: int = 0,
        memory_limit: int = 0,
    ) -> None:
        self._lib = _native.loaded()
        self._long = _native.Interruptible()
        self._exclusive = _native.Exclusive(self._long)
        self._runs: "weakref.WeakSet[Run]" = weakref.WeakSet()
        self.path = os.fspath(path)
        encoded = _native.encoded(self.path, "the path of the plan")
        folders, world = _native.paths(data, "data"), _native.integer(world, "world")
        fields, given = pairs(set), pairs(define)  # once: they may be iterators
        memory_limit = _native.integer(memory_limit, "memory_limit", 64)
        if memory_limit < 0:
            raise UsageError(f"memory_limit is {memory_limit}; give bytes, or 0 for no limit")
        self._again = {"set": fields, "define": given, "data": folders,
                       "world": world, "memory_limit": memory_limit}
        options = _native.PlanOptions(
            size=ctypes.sizeof(_native.PlanOptions),
            set=_native.strings(fields, "a field"),
            define=_native.strings(given, "a variable"),
            data=_native.strings(folders, "a folder of data"),
            stop=ctypes.pointer(self._long.flag),
            compile_limit=memory_limit,
        )
        self._owned = _Owned(self._lib)
        handle = self._owned.handle
        status, error = self._long.call(
            self._lib.weft_plan_load, options, encoded, ctypes.byref(handle)
        )
        if not status:
            status, error = self._long.call(
                self._lib.weft_plan_compile, handle.value, ctypes.c_int(world)
            )
        self.diagnostics: List[Diagnostic] = []
        try:
            self._tell(status, error)
        except WeftError:
            self.close()
            raise

    @property
    def _lock(self) -> Any:
        return self._exclusive.lock()

    def _tell(self, status: int, error: _native.Error) -> None:
        """Takes the report over, or raises what it says."""
        handle = self._owned.handle.value
        report = self._lib.weft_plan_report_json(handle) if handle else None
        if status:
            raise _native.fail(status, error, report)
        found = json.loads(report or b'{"diagnostics": []}')["diagnostics"]
        self.diagnostics = [Diagnostic.of_json(d) for d in found]

    def _check_files(self) -> None:
        with self._lock:
            self._tell(*self._long.call(self._lib.weft_plan_check, self._open()))

    def close(self) -> None:
        """Frees the plan, and closes its runs first."""
        with self._lock:
            for run in list(self._runs):
                run.close()
            self._owned.free()

    def __enter__(self) -> "Plan":
        return self

    def __exit__(self, *why: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._owned.handle.value is None:
            return f"<weft.Plan {self.path}, closed>"
        return f"<weft.Plan {self.name} of {self.path}, {self.world} ranks>"

    def _open(self) -> int:
        value = self._owned.handle.value
        if value is None:
            raise UsageError(f"the plan of {self.path} is closed")
        return value

    def changed(self, set: Fields) -> "Plan":
        """The same plan with other fields: ``plan.changed({"mesh.tp": 4})``."""
        again = dict(self._again)
        again["set"] = list(self._again["set"]) + pairs(set)  # type: ignore[call-overload]
        return Plan(self.path, **again)  # type: ignore[arg-type]

    # ---- what it says ----

    @property
    def name(self) -> str:
        with self._lock:
            return _native.text(self._lib.weft_plan_name(self._open()))

    @property
    def steps(self) -> int:
        """train.steps; 0 where the plan has epochs, whose steps are those of the data."""
        with self._lock:
            return int(self._lib.weft_plan_steps(self._open()))

    @property
    def sequences(self) -> int:
        """Sequences of a step on all ranks."""
        with self._lock:
            return int(self._lib.weft_plan_sequences(self._open()))

    @property
    def tokens(self) -> int:
        """Tokens of a sequence."""
        with self._lock:
            return int(self._lib.weft_plan_tokens(self._open()))

    @property
    def microbatches(self) -> int:
        with self._lock:
            return int(self._lib.weft_plan_microbatches(self._open()))

    @property
    def parameters(self) -> int:
        """Elements of all parameters."""
        with self._lock:
            return int(self._lib.weft_plan_parameters(self._open()))

    @property
    def world(self) -> int:
        """The number of ranks."""
        return int(self._show("mesh", 0)["world"])

    @property
    def mesh(self) -> Dict[str, int]:
        """The size of every axis."""
        sizes: Dict[str, int] = self._show("mesh", 0)["size"]
        return sizes

    @property
    def proof(self) -> Dict[str, int]:
        """What the proof went through, of one rank per pipeline stage."""
        out = _native.Proof()
        with self._lock:
            _native.call(self._lib.weft_plan_proof, self._open(), ctypes.byref(out))
        return _members(out)

    def _show(self, what: str, rank: int) -> Any:
        out, rank = ctypes.c_char_p(), _native.integer(rank, "rank")
        with self._lock:
            _native.call(
                self._lib.weft_plan_show, self._open(), what.encode(), rank, ctypes.byref(out)
            )
            shown = json.loads(out.value or b"null")
        return shown if what == "program" else shown[what]

    def memory(self) -> Rows:
        """Bytes by class of each pipeline rank: ``pp``, ``name``, ``bytes``, ``note``."""
        return Rows(
            {"pp": rank["pp"], **part} for rank in self._show("memory", -1) for part in rank["classes"]
        )

    @property
    def peak_bytes(self) -> int:
        """Bytes of the arena of the worst rank."""
        return max(int(rank["total_bytes"]) for rank in self._show("memory", -1))

    def memory_bytes(self, rank: int) -> int:
        """Bytes of a rank's arena, which is all that its program uses."""
        rank = _native.integer(rank, "rank")
        with self._lock:
            n = int(self._lib.weft_plan_memory(self._open(), rank))
        if n == 0:
            raise UsageError(f"there is no rank {rank}, the mesh has {self.world} ranks")
        return n

    def stages(self) -> Rows:
        """What each pipeline stage runs, and its share of the work."""
        return Rows(self._show("stages", -1))

    def comm(self, rank: Optional[int] = None) -> Rows:
        """Operations, count and bytes on every axis in a step, of a rank or the worst one."""
        if rank is None:
            return Rows(self._show("comm", -1))
        rank = _native.integer(rank, "rank")
        if rank < 0:  # which stands for the worst one in C
            raise UsageError(f"there is no rank {rank}, the mesh has {self.world} ranks")
        return Rows(self._show("comm", rank)["list"])

    def sim(self) -> Dict[str, Any]:
        """A step on the clock, as ``weft sim --json`` has it: ``seconds``, ``mfu``,
        ``tokens_per_s_per_gpu``, and where the time of each pipeline rank goes. The plan names its
        cluster; what would another one take: ``plan.changed({...}).sim()``."""
        shown: Dict[str, Any] = self._show("sim", -1)
        return shown

    def rank(self, rank: int) -> Dict[str, Any]:
        """A rank: its place, groups, stages, memory, communication and actions."""
        shown: Dict[str, Any] = self._show("rank", rank)
        return shown

    def program(self, rank: int) -> Program:
        """What a rank does in a step."""
        out = ctypes.c_char_p()
        with self._lock:
            whole = self._show("program", rank)
            _native.call(
                self._lib.weft_plan_program, self._open(), rank, ctypes.byref(out)
            )
            return Program(whole, _native.text(out.value or b""))

    def parameter_list(self) -> Rows:
        """The parameters as the model sees them: ``name``, ``shape``, ``count``."""
        rows, p = Rows(), _native.Param()
        with self._lock:
            for i in range(self._lib.weft_plan_param_count(self._open())):
                _native.call(self._lib.weft_plan_param_at, self._open(), i, ctypes.byref(p))
                rows.append(
                    {"name": _native.text(p.name), "shape": tuple(p.dim[: p.ndim]), "count": p.count}
                )
        return rows

    # ---- what it does ----

    def verify(self, *, ranks: int = 0, steps: int = 0, tolerance: float = 0.0) -> Verified:
        """Runs a small version on virtual ranks and on one rank; PlanError if they differ."""
        options = _native.VerifyOptions(
            size=ctypes.sizeof(_native.VerifyOptions),
            ranks=_native.integer(ranks, "ranks"), steps=_native.integer(steps, "steps"),
            tolerance=tolerance, stop=ctypes.pointer(self._long.flag),
        )
        out = _native.VerifyResult()
        with self._lock:
            status, error = self._long.call(
                self._lib.weft_verify, self._open(), options, ctypes.byref(out)
            )
        if status:
            raise _native.fail(status, error)
        fields = _members(out)
        for name in ("worst", "not_covered", "rounding"):
            fields[name] = _native.text(fields[name])
        return Verified(**fields)

    def open(self, *, threads: int = 0) -> "Run":
        """Allocates all ranks as threads of this process."""
        return Run(self, threads=threads)


def _own_ids(plan: Plan, values: Any, what: str) -> "array.array[int]":
    if values is None:
        raise UsageError("a step on tokens of one's own needs both: tokens and labels")
    ids, n = _native.token_ids(values, what), plan.sequences * plan.tokens
    if len(ids) != n:
        raise UsageError(
            f"{what} of a step are {plan.sequences} sequences of {plan.tokens}, {n} ids, "
            f"got {len(ids)}"
        )
    return ids


class Run:
    """The ranks of a plan, which train: ``with plan.open() as run: run.init(); run.step(0)``."""

    _STATES = {"param": 0, "grad": 1, "moment1": 2, "moment2": 3}

    def __init__(self, plan: Plan, *, threads: int = 0) -> None:
        self.plan = plan
        self._lib, self._long = plan._lib, plan._long
        options = _native.RunOptions(
            size=ctypes.sizeof(_native.RunOptions),
            threads=_native.integer(threads, "threads"),
            stop=ctypes.pointer(self._long.flag),
        )
        handle = ctypes.c_void_p()
        self._process, self._handle = os.getpid(), None  # type: int, Optional[int]
        self._end = weakref.finalize(
            self, _close_run, self._lib.weft_run_close, handle, plan._owned, self._process
        )
        # At the end of the process another thread may be in a step, which closing would wait
        # for; threads and memory go with the process.
        self._end.atexit = False
        with self.plan._lock:
            try:
                status, error = self._long.call(
                    self._lib.weft_run_open, plan._open(), options, ctypes.byref(handle)
                )
                if status:
                    raise _native.fail(status, error)
                self._handle = handle.value
                plan._runs.add(self)
            except BaseException:  # Ctrl-C, too, of a run that is open by then
                self._end()
                raise
        self._tell_notes()

    def close(self) -> None:
        """Ends the ranks and frees their memory."""
        if self._process != os.getpid():  # where they are not, and the lock may be held for ever
            self._handle = None
            return
        with self.plan._lock:
            if self._handle is not None:
                self._handle = None
                self._end()

    def __enter__(self) -> "Run":
        return self

    def __exit__(self, *why: object) -> None:
        self.close()

    def _open(self) -> int:
        if self._handle is None:
            raise UsageError(f"the run of {self.plan.path} is closed")
        return self._handle

    def _locked(self) -> Any:
        if self._process != os.getpid():
            raise UsageError(
                f"the run of {self.plan.path} is of process {self._process}, whose threads this "
                "one, its fork, does not have: open another one here, with plan.open()"
            )
        return self.plan._lock

    def _long_call(self, function: Any, *arguments: Any) -> None:
        with self._locked():
            status, error = self._long.call(function, self._open(), *arguments)
        if status:
            raise _native.fail(status, error)

    def init(self) -> None:
        """Loads the weights that the plan names, or draws initial values."""
        self._long_call(self._lib.weft_run_init)

    def load(self, path: Path) -> None:
        """Loads parameters of a safetensors file, its index, or a folder with one of them."""
        self._long_call(self._lib.weft_run_load, _native.encoded(path, "the path of the weights"))

    def step(self, step: int, tokens: Any = None, labels: Any = None) -> Step:
        """Trains a step, counted from 0, on the plan's data, or on tokens of one's own: ids of
        ``plan.sequences`` rows of ``plan.tokens``, as numbers or as a buffer of integers of any
        shape (a batch of a loader, as ``.numpy()``), and beside each the ``labels``, the ids that
        should follow; -100: none."""
        out, step = _native.Step(), _native.integer(step, "step", 64)
        if tokens is None and labels is None:
            self._long_call(self._lib.weft_run_step, step, ctypes.byref(out))
        else:
            given = [_own_ids(self.plan, v, w) for v, w in ((tokens, "tokens"), (labels, "labels"))]
            at = [ids.buffer_info()[0] for ids in given]
            self._long_call(
                self._lib.weft_run_step_tokens, *at, len(given[0]), step, ctypes.byref(out)
            )
        fields = _members(out)
        return Step(**{**fields, "skipped": bool(fields["skipped"])})

    def steps(self, n: Optional[int] = None, *, start: int = 0) -> Iterator[Step]:
        """Trains from step ``start``, which ``resume`` says: ``n`` steps, or up to as many as the
        plan says, by ``train.steps`` or ``train.epochs``."""
        end = start + n if n is not None else 0
        if n is None:
            said = ctypes.c_int64()
            self._long_call(self._lib.weft_run_steps, ctypes.byref(said))
            end = said.value
        for i in range(start, end):
            yield self.step(i)

    def _tell_notes(self) -> None:
        with self._locked():
            notes = _native.text(self._lib.weft_run_notes(self._open()))
        for line in notes.splitlines():
            warnings.warn(line, stacklevel=3)

    def resume(self, path: Optional[Path] = None) -> int:
        """Goes on from a checkpoint, of this package or of ``weft run``; returns the next step.
        Without a path it is the newest whole one of the plan's ``checkpoint.dir``; 0: there is
        none, and the run begins as ``init`` has it. What may differ from then is warned of."""
        step = ctypes.c_int64()
        encoded = None if path is None else _native.encoded(path, "the path of the checkpoint")
        try:
            self._long_call(self._lib.weft_run_resume, encoded, ctypes.byref(step))
        finally:
            self._tell_notes()
        return step.value

    def save(self, step: int) -> None:
        """Writes a checkpoint of the state after so many steps to ``checkpoint.dir``."""
        step = _native.integer(step, "step", 64)
        try:
            self._long_call(self._lib.weft_run_save, step)
        finally:
            self._tell_notes()

    def export(self, folder: Path) -> None:
        """Writes the parameters as a new folder of Hugging Face's files."""
        self._long_call(self._lib.weft_run_export, _native.encoded(folder, "the folder"))

    def evaluate(self, batches: int = 0) -> Evaluation:
        """The loss of the plan's ``data.val``, on ``train.eval_batches`` or so many batches."""
        out, batches = _native.Evaluation(), _native.integer(batches, "batches", 64)
        self._long_call(self._lib.weft_run_evaluate, batches, ctypes.byref(out))
        return Evaluation(**_members(out))

    def _tensor(self, state: str, name: str) -> Tuple[int, bytes, int]:
        if state not in self._STATES:
            raise UsageError(f'"{state}" is none of {", ".join(self._STATES)}')
        which, encoded = self._STATES[state], _native.encoded(name, "a parameter")
        n = ctypes.c_size_t()
        with self._locked():
            _native.call(
                self._lib.weft_run_count, self._open(), which, encoded, ctypes.byref(n)
            )
        return which, encoded, n.value

    def get(self, name: str, state: str = "param") -> "array.array[float]":
        """A parameter as a whole in C order, its gradient (``"grad"``) or a moment of it (of a
        matrix Adafactor's averages of its rows, then of its columns);
        ``numpy.frombuffer(..., "float32")`` takes it without a copy."""
        which, encoded, n = self._tensor(state, name)
        out = array.array("f", bytes(4 * n))
        with self._locked():
            _native.call(
                self._lib.weft_run_get, self._open(), which, encoded, out.buffer_info()[0], n
            )
        return out

    def set(self, name: str, values: Any, state: str = "param") -> None:
        """The way back, of numbers or of a buffer of f32 in C order, of any shape (an array,
        ``numpy.float32``)."""
        which, encoded, n = self._tensor(state, name)
        if isinstance(values, array.array) and values.typecode != "f":
            raise UsageError(f"{name} has values of type f, got those of type {values.typecode}")
        given = _native.floats(values, name)
        if len(given) != n:
            raise UsageError(f"{name} has {n} values of type f, got {len(given)}")
        with self._locked():
            _native.call(
                self._lib.weft_run_set, self._open(), which, encoded, given.buffer_info()[0], n
            )


def load(path: Path, **options: Any) -> Plan:
    """The same as :class:`Plan`."""
    return Plan(path, **options)


def check(path: Path, **options: Any) -> Check:
    """Checks and compiles a plan, proves that its ranks cannot block each other, and looks whether
    its data and weights can be read and fit.

    Takes what :class:`Plan` takes. Raises :class:`PlanError`, whose ``diagnostics`` are all that
    is wrong; :class:`FileError` if a file cannot be read."""
    with Plan(path, **options) as plan:
        plan._check_files()
        return Check(
            name=plan.name, world=plan.world, mesh=plan.mesh, parameters=plan.parameters,
            microbatches=plan.microbatches, memory_bytes=plan.peak_bytes, memory=plan.memory(),
            proof=plan.proof, diagnostics=plan.diagnostics,
        )
