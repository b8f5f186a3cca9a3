"""Sweeps: many combinations of field values, judged by the program weft, which has a thread
for each core and stops at Ctrl-C with what is done."""

from __future__ import annotations

import os
from typing import Any, Iterable, List, Mapping, Optional, Sequence, Union

from . import _native, _program
from .errors import UsageError
from .literals import lua
from .rows import Rows

__all__ = ["Sweep", "sweep"]

Path = Union[str, "os.PathLike[str]"]


class Sweep(Rows):
    """The best rows of a sweep, best first, each with a member for every axis under its path
    (``"mesh.tp"``) and for every figure that is known (``"peak_gib"``, ``"step_ms"``, ...)."""

    points: int  #: of the grid
    asked: int  #: of them, those that ``where`` left
    judged: int
    legal: int
    illegal: int
    memory: int  #: plans that do not fit
    dropped: int  #: plans without a score
    seconds: float
    interrupted: bool  #: by Ctrl-C; the rows are those that were done
    reasons: Rows  #: ``code``, ``path``, ``message``, ``count`` of what is illegal

    def __init__(self, result: Mapping[str, Any]) -> None:
        super().__init__(result["rows"])
        for name in ("points", "asked", "judged", "legal", "illegal", "memory", "dropped"):
            setattr(self, name, int(result[name]))
        self.seconds = float(result["seconds"])
        self.interrupted = bool(result["interrupted"])
        self.reasons = Rows(result["reasons"])


def _axis(name: str, values: List[Any]) -> List[Any]:
    if any(v is None for v in values):
        raise UsageError(f"over[{name!r}] has None, which no list of Lua holds: the point without "
                         "the field is one of a sweep without this axis")
    return [name, *values]


def _script(plan: Path, over: Mapping[str, Sequence[Any]], options: Mapping[str, Any]) -> str:
    if not isinstance(over, Mapping):
        raise UsageError(f'over is a {type(over).__name__}; a dict is needed: {{"mesh.tp": [1, 2]}}')
    for name, values in over.items():
        if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
            raise UsageError(f"over[{name!r}] is {values!r}; a list of values is needed: [{values!r}]")
    axes = [lua(_axis(name, list(values)), "a grid") for name, values in over.items()]
    fields = [f"plan = {lua(os.path.abspath(os.fsdecode(plan)))}",
              "over = weft.grid { " + ", ".join(axes) + " }"]
    fields += [f"{name} = {lua(v)}" for name, v in options.items() if v is not None]
    return 'local weft = require "weft"\nweft.sweep { ' + ", ".join(fields) + " }\n"


def sweep(
    path: Path,
    *arguments: str,
    over: Optional[Mapping[str, Sequence[Any]]] = None,
    keep: Optional[int] = None,
    max_gib: Optional[float] = None,
    score: Optional[str] = None,
    threads: Optional[int] = None,
    data: Sequence[Path] = (),
) -> Sweep:
    """Judges all combinations of some fields of a plan; rows come best first.

    With ``over`` (``{"mesh.tp": [1, 2, 4], "schedule": ["1f1b", "zbv"]}``) ``path`` is a plan;
    ``keep``, ``max_gib``, ``score`` (a column) and ``threads`` are those of ``weft.sweep`` in Lua.
    Without it ``path`` is a script for ``weft sweep``, with its arguments; the result is that of
    its first sweep."""
    command = ["sweep"]
    _native.encoded(path, "the path")
    for folder in _native.paths(data, "data"):
        _native.encoded(folder, "a folder of data")
        command += ["--data", folder]
    if over is not None:
        options = {"keep": keep, "max_gib": max_gib, "score": score, "threads": threads}
        script = _script(path, over, options)
        return Sweep(_program.result(command + ["-", *arguments], script)["sweep"])
    if any(v is not None for v in (keep, max_gib, score, threads)):
        raise UsageError("keep, max_gib, score and threads need over: a script has its own")
    return Sweep(_program.result(command + [os.fspath(path), "--", *arguments])["sweep"])
