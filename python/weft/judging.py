"""Reports, comparisons and searches of plans, by the program weft."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Union

from . import _native, _program
from .errors import Diagnostic, PlanError, UsageError
from .literals import Fields, pairs
from .rows import Rows

__all__ = ["Best", "Diff", "Report", "best", "diff", "report"]

Path = Union[str, "os.PathLike[str]"]


def _file(path: Path, what: str) -> str:
    """A path that the program takes for no option."""
    _native.encoded(path, what)
    name = os.fsdecode(path)
    return "./" + name if name.startswith("-") else name


def _options(set: Optional[Fields], define: Optional[Fields], data: Sequence[Path],
             **others: Any) -> List[str]:
    words = [word for pair in pairs(set) for word in ("--set", pair)]
    words += [word for pair in pairs(define) for word in ("-D", pair)]
    words += [word for folder in _native.paths(data, "data") for word in ("--data", folder)]
    words += [word for name, v in others.items() if v is not None for word in ("--" + name, str(v))]
    for word in words:
        _native.encoded(word, "an option")
    return words


# ---- report ----


@dataclass(frozen=True)
class Report:
    """What ``weft report`` says of a plan, or of settings of another system, that are right."""

    verdict: str  #: ``"fits"``, ``"tight"`` or ``"too_large"``
    fits: bool  #: also if that is tight
    gpu: Dict[str, Any]  #: ``name``, ``room_bytes``, ``assumed``: nothing has named it
    world: int  #: ranks
    mesh: Dict[str, int]  #: axes of more than one rank
    parameters: int
    memory: Dict[str, Any]  #: ``worst_bytes``, ``free_bytes``, ``classes``
    bubble: float  #: share of the step
    warnings: List[Diagnostic]
    nearest: Rows  #: layouts that fit, if this one does not: ``changes``, ``peak_bytes``, ``step_ms``, ...
    result: Dict[str, Any]  #: all that ``weft report --json`` prints


def _diagnostics(found: Any) -> List[Diagnostic]:
    members = ("code", "message", "severity", "path", "file", "line", "suggestion")
    return [Diagnostic(**{"code": "", "severity": "error", **{m: d[m] for m in members if m in d}})
            for d in found or []]


def _mesh(text: str) -> Dict[str, int]:
    """``"pp=2 dp=4"`` or ``"one rank"``: axes of one rank are not in it."""
    return {axis: int(n) for axis, _, n in (word.partition("=") for word in text.split()) if n}


def report(
    path: Path,
    *,
    gpu: Optional[str] = None,
    world: Optional[int] = None,
    model: Optional[str] = None,
    set: Optional[Fields] = None,
    define: Optional[Fields] = None,
    data: Sequence[Path] = (),
) -> Report:
    """Whether a plan, or the settings of another system in a file or folder, fit their GPUs.

    ``gpu``, ``world`` and ``model`` stand for what the settings leave out; ``set`` changes settings,
    or fields of a plan. Raises :class:`PlanError` with all that is wrong, also of settings that no
    plan can say."""
    command = ["report", *_options(set, define, data, gpu=gpu, world=world, model=model)]
    found = _program.result([*command, _file(path, "the path")], ends=(0, 1))
    if found["verdict"] in ("wrong", "refused"):
        wrong = _diagnostics(found.get("errors"))
        raise PlanError(f"{found['file']}: {found['verdict']}", wrong)
    return Report(
        verdict=found["verdict"], fits=found["fits"], gpu=found["gpu"], world=found["world"],
        mesh=_mesh(found["mesh"]), parameters=found["parameters"], memory=found["memory"],
        bubble=found["bubble"], warnings=_diagnostics(found.get("warnings")),
        nearest=Rows(found.get("nearest") or []), result=found)


# ---- diff ----


@dataclass(frozen=True)
class Diff:
    """What two plans differ in, and what follows."""

    same: bool
    fields: Rows  #: ``path``, ``from``, ``to``: as the plans say it
    figures: Rows  #: ``name``, ``from``, ``to``: ranks, bytes by class and by operation, seconds
    unknown: Optional[str]  #: why there is no time of a step among the figures


def diff(
    a: Path,
    b: Optional[Path] = None,
    *,
    changes: Optional[Fields] = None,
    set: Optional[Fields] = None,
    define: Optional[Fields] = None,
    data: Sequence[Path] = (),
) -> Diff:
    """Compares two plans, or with ``changes`` (``{"mesh.tp": 4}``) a plan and the same with these
    fields; with both, they change the second plan. ``set`` and ``define`` are for both plans."""
    if b is None and not changes:
        raise UsageError("diff compares a plan with another one, or with changes")
    files = [_file(path, "the path of a plan") for path in ([a] if b is None else [a, b])]
    changed = pairs(changes)
    for word in changed:
        _native.encoded(word, "a change")
    found = _program.result(["diff", *_options(set, define, data), *files, *changed], ends=(0, 1))
    return Diff(same=found["same"], fields=Rows(found["fields"]), figures=Rows(found["figures"]),
                unknown=found.get("unknown"))


# ---- best ----


def _field(v: Any) -> Any:
    """A value of a field as ``set`` takes it: a list of Lua with names in it is a dict."""
    if isinstance(v, dict) and "list" in v:
        named = {key: x for key, x in v.items() if key != "list"}
        return {**{i + 1: x for i, x in enumerate(v["list"])}, **named}
    return v


class Best(Rows):
    """The layouts that a search tells of, best first, none where none fits: ``layout``
    (``{"tp": 8, ...}``), ``fields``, which ``set`` takes and which make the plan one of that layout,
    ``seconds`` of a step with ``low`` and ``high``, ``mfu``, ``peak_gib``, and of all but the first
    ``behind``, ``tie`` and ``why`` it loses."""

    layouts: int  #: that there are
    on_the_clock: int
    interrupted: bool  #: by Ctrl-C; the rows are the best so far
    result: Dict[str, Any]  #: all that ``weft best --json`` prints

    def __init__(self, result: Mapping[str, Any]) -> None:
        super().__init__({**row, "fields": {path: _field(v) for path, v in row["fields"]}}
                         for row in result["rows"])
        self.layouts = int(result["layouts"])
        self.on_the_clock = int(result["on_the_clock"])
        self.interrupted = bool(result["interrupted"])
        self.result = dict(result)


def _searched(over: Optional[Mapping[str, Any]]) -> List[str]:
    words = []
    for name, values in (over or {}).items():
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Sequence):
            raise UsageError(f"over[{name!r}] is {values!r}; a list of values is needed: [{values!r}]")
        words.append(f"{name}=" + ",".join(str(v) for v in values))
    return words


def best(
    path: Path,
    *,
    over: Optional[Mapping[str, Sequence[Any]]] = None,
    clock: Optional[int] = None,
    keep: Optional[int] = None,
    memory: Optional[float] = None,
    threads: Optional[int] = None,
    output: Optional[Path] = None,
    set: Optional[Fields] = None,
    define: Optional[Fields] = None,
    data: Sequence[Path] = (),
) -> Best:
    """Searches the fastest layout of a plan on its cluster, as ``weft best`` does.

    ``over`` (``{"tp": [4, 8], "recompute": ["none"]}``) has the values to look at, ``clock`` how many
    layouts are simulated at most, ``keep`` how many are told, ``memory`` the GiB of a rank;
    ``output`` is a new file for the plan with the best one."""
    numbers = {"clock": clock, "keep": keep, "memory": memory, "threads": threads}
    words = _searched(over) + [f"{name}={v}" for name, v in numbers.items() if v is not None]
    options = _options(set, define, data)
    options += ["-o", _file(output, "output")] if output is not None else []
    command = ["best", *options, _file(path, "the path"), *words]
    return Best(_program.result(command, ends=(0, 1)))
