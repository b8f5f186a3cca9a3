"""Values of Python as literals of Lua, for fields of plans and for grids of sweeps."""

from __future__ import annotations

import math
import numbers
import os
from typing import Any, Mapping, Sequence

from .errors import UsageError

__all__ = ["lua"]


def lua(v: Any, of: str = "an option") -> str:
    """The literal of a value of Python; ``of`` says in the error what it is a value of."""
    if v is None:
        return "nil"
    if isinstance(v, bool):
        return str(v).lower()
    if isinstance(v, numbers.Integral):  # those of numpy, too
        return repr(int(v))
    if isinstance(v, numbers.Real):
        if not math.isfinite(v):
            raise UsageError(f"a value of {of} is {v}")
        return repr(float(v))
    if isinstance(v, os.PathLike):
        v = os.fspath(v)
    if isinstance(v, str):
        body = "".join(c if " " <= c != '"' and c != "\\" and c != "\x7f" else
                       "".join(f"\\{b:03d}" for b in c.encode()) for c in v)
        return f'"{body}"'
    if isinstance(v, Mapping):
        if None in v:
            raise UsageError(f"a value of {of} is a dict with the key None, which Lua does not have")
        return "{ " + ", ".join(f"[{lua(k, of)}] = {lua(x, of)}" for k, x in v.items()) + " }"
    if isinstance(v, Sequence):
        if any(x is None for x in v):
            raise UsageError(f"a value of {of} is a list with None in it, where one of Lua ends")
        return "{ " + ", ".join(lua(x, of) for x in v) + " }"
    raise UsageError(f"a value of {of} is a {type(v).__name__}, which Lua does not have")
