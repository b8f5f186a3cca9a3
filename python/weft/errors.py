"""What can go wrong, as exceptions that carry the diagnostics of ``weft check``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Type

__all__ = [
    "Diagnostic",
    "FileError",
    "InternalError",
    "Interrupted",
    "LimitError",
    "OutOfMemory",
    "PlanError",
    "RunError",
    "UsageError",
    "WeftError",
]


@dataclass(frozen=True)
class Diagnostic:
    """One thing that is wrong with a plan, or doubtful."""

    code: str
    message: str
    severity: str  #: ``"error"`` or ``"warning"``
    path: str = ""  #: of the field, ``"plan.mesh.tp"``
    file: Optional[str] = None
    line: int = 0
    suggestion: Optional[str] = None

    def __str__(self) -> str:
        """As ``weft check`` prints it."""
        # What --set or -D gave has no line; one word is the right value, more are advice.
        where = f"{self.file}:{self.line}: " if self.line else f"{self.file}: " if self.file else ""
        path = f"plan{'' if self.path[0] == '[' else '.'}{self.path}: " if self.path else ""
        hint = ""
        if self.suggestion:
            word = " " not in self.suggestion
            hint = f' (did you mean "{self.suggestion}"?)' if word else f" ({self.suggestion})"
        code = f" [{self.code}]" if self.code else ""
        return f"{where}{self.severity}: {path}{self.message}{hint}{code}"

    @staticmethod
    def of_json(d: Dict[str, Any]) -> "Diagnostic":
        """The diagnostic of an object in ``diagnostics`` of ``weft check --json``."""
        place = d.get("range") or {}
        file = place.get("filename")
        given = (file or "").startswith(("--set ", "-D "))  # a word has no line; JSON needs one
        suggestions = d.get("suggestions") or [None]
        return Diagnostic(
            code=d.get("code") or "",
            message=d.get("summary") or "",
            severity=d.get("severity") or "error",
            path=d.get("path") or "",
            file=file,
            line=0 if given else place.get("start", {}).get("line", 0),
            suggestion=suggestions[0],
        )


class WeftError(Exception):
    """An error of weft. ``diagnostics`` has all that is wrong, ``str()`` prints them all."""

    def __init__(self, text: str, diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__(text)
        self.text = text
        self.diagnostics: List[Diagnostic] = list(diagnostics)

    def __str__(self) -> str:
        errors = [str(d) for d in self.diagnostics if d.severity == "error"]
        return "\n".join(errors) if errors else self.text


class PlanError(WeftError):
    """A plan is wrong, or its ranks and one rank differ in a verification."""


class RunError(WeftError):
    """A run failed: a loss that is not finite, a rank that died."""


class FileError(WeftError, OSError):
    """A file is missing, cannot be read, or is not what it should be."""


class UsageError(WeftError, ValueError):
    """An argument is wrong."""


class LimitError(WeftError):
    """A limit of time, memory or size was hit."""


class OutOfMemory(WeftError, MemoryError):
    """There was no memory."""


class InternalError(WeftError):
    """A bug in weft."""


class Interrupted(WeftError):
    """Interrupted by ``stop`` or Ctrl-C."""


#: By weft_status of weft.h.
BY_STATUS: Dict[int, Type[WeftError]] = {
    1: PlanError,
    2: RunError,
    3: FileError,
    4: UsageError,
    5: LimitError,
    6: OutOfMemory,
    7: InternalError,
    8: Interrupted,
}

#: By the exit code of the program.
BY_EXIT: Dict[int, Type[WeftError]] = {
    1: PlanError,
    2: FileError,
    3: LimitError,
    4: InternalError,
    130: Interrupted,
}
