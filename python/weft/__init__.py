"""weft: plans of parallel training, checked, proven, swept and run.

    >>> import weft
    >>> weft.check("plan.lua").memory                      # doctest: +SKIP
    >>> weft.sweep("plan.lua", over={"mesh.tp": [1, 2]})   # doctest: +SKIP

A plan is a Lua file. What Python does with it is done by the library of the program weft;
docs/python.md has a page about it."""

from ._version import __version__
from .errors import (
    Diagnostic,
    FileError,
    InternalError,
    Interrupted,
    LimitError,
    OutOfMemory,
    PlanError,
    RunError,
    UsageError,
    WeftError,
)
from .following import LogError, Sink, follow, read_log
from .judging import Best, Diff, Report, best, diff, report
from .plan import Check, Evaluation, Plan, Program, Run, Step, Verified, check, load
from .rows import Rows
from .sweeping import Sweep, sweep

__all__ = [
    "Best",
    "Check",
    "Diagnostic",
    "Diff",
    "Evaluation",
    "FileError",
    "InternalError",
    "Interrupted",
    "LimitError",
    "LogError",
    "OutOfMemory",
    "Plan",
    "PlanError",
    "Program",
    "Report",
    "Rows",
    "Run",
    "RunError",
    "Sink",
    "Step",
    "Sweep",
    "UsageError",
    "Verified",
    "WeftError",
    "__version__",
    "best",
    "check",
    "diff",
    "follow",
    "load",
    "read_log",
    "report",
    "sweep",
]
