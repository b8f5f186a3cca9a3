"""Values of Python as literals of Lua, for fields of plans and for grids of sweeps."""

from __future__ import annotations

import math
import numbers
import os
from typing import Any, List, Mapping, Optional, Sequence, Union

from .errors import UsageError

__all__ = ["Fields", "lua", "pairs"]

Fields = Union[Mapping[str, Any], Sequence[str]]


def _character(c: str) -> str:
    """Of a text; what is no character of UTF-8 in a path is a byte of Lua."""
    plain = " " <= c and c not in '"\\\x7f' and not "\udc80" <= c <= "\udcff"
    return c if plain else "".join(f"\\{b:03d}" for b in c.encode("utf-8", "surrogateescape"))


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
        v = os.fsdecode(v)
    if isinstance(v, str):
        return '"' + "".join(_character(c) for c in v) + '"'
    if isinstance(v, (bytes, bytearray, memoryview)):
        raise UsageError(f"a value of {of} is {type(v).__name__}; give a str, or a list of numbers")
    if isinstance(v, Mapping):
        if None in v:
            raise UsageError(f"a value of {of} is a dict with the key None, which Lua does not have")
        return "{ " + ", ".join(f"[{lua(k, of)}] = {lua(x, of)}" for k, x in v.items()) + " }"
    if isinstance(v, Sequence):
        if any(x is None for x in v):
            raise UsageError(f"a value of {of} is a list with None in it, where one of Lua ends")
        return "{ " + ", ".join(lua(x, of) for x in v) + " }"
    raise UsageError(f"a value of {of} is a {type(v).__name__}, which Lua does not have")


def _value(v: Any) -> str:
    """A text is what ``--set`` takes; other values are those of Lua: ``None`` takes a field away,
    and a path is a text that is never read as anything else."""
    return v if isinstance(v, str) else lua(v, "a field")


def pairs(fields: Optional[Fields]) -> List[str]:
    """``{"mesh.tp": 4}`` or ``["mesh.tp=4"]``, as ``--set`` and ``-D`` take them."""
    if fields is None:
        return []
    if isinstance(fields, Mapping):
        return [f"{key}={_value(v)}" for key, v in fields.items()]
    if isinstance(fields, str):
        raise UsageError(f'expected a dict or a list of "path=value", got "{fields}"')
    pairs = list(fields)
    for pair in pairs:
        if not isinstance(pair, str):
            raise UsageError(f'expected a list of "path=value", got {pair!r} in it')
    return pairs
