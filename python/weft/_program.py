"""Verbs of the program weft, for what takes long and uses all cores: it prints one object of
JSON, and stops at Ctrl-C with what is done."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from typing import Any, Dict, Optional, Sequence

from . import _native
from .errors import BY_EXIT, Diagnostic, InternalError, WeftError

__all__ = ["result"]


def _plain(text: str) -> str:
    """A message of a script in Lua without the calls that led to it, and without its place in
    the script that stands for a grid of Python."""
    return text.split("\n  stack traceback:")[0].replace("stdin:2: ", "", 1).strip()


def _placed(d: Diagnostic) -> Diagnostic:
    """A diagnostic whose message is that of a file, "FILE:LINE: error: ...", in its parts."""
    found = re.match(r"(?s)(.+?)(?::(\d+))?: error: (.*?)(?:\n1 error)?$", d.message)
    if d.file or not found:
        return d
    return replace(d, file=found[1], line=int(found[2] or 0), message=found[3])


def _failure(code: int, out: bytes, err: bytes) -> WeftError:
    try:
        found = [Diagnostic.of_json(d) for d in json.loads(out)["diagnostics"]]
        found = [_placed(replace(d, message=_plain(d.message))) for d in found]
    except (ValueError, KeyError):
        found = []
    text = _plain(err.decode("utf-8", "replace")) or f"the program weft ended with {code}"
    return BY_EXIT.get(code, InternalError)(text, found)


def result(command: Sequence[str], script: Optional[str] = None,
           ends: Sequence[int] = (0,)) -> Dict[str, Any]:
    """What the verb, which gets ``script`` to read, prints as its result: the object, or its member
    ``result`` where diagnostics stand beside it. ``ends`` are codes that are none of a failure
    where there is a result; so is the one of Ctrl-C."""
    given = script.encode() if script else b""
    started = [_native.program(), command[0], "--json", *command[1:]]
    pressed: Optional[KeyboardInterrupt] = None
    with subprocess.Popen(started, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE) as child:
        try:
            try:
                out, err = child.communicate(given)
            except KeyboardInterrupt as e:
                # The program has got the same Ctrl-C on a terminal, but not from kill or an
                # editor. This signal asks again for what that one asks, and is no second one.
                pressed = e
                child.terminate()
                out, err = child.communicate()
        except BaseException:  # a second Ctrl-C, or what the handler of another signal raises
            child.kill()
            raise
    ended = child.returncode in (*ends, 130)
    printed: Dict[str, Any] = json.loads(out or b"{}") if ended else {}
    found: Dict[str, Any] = printed.get("result", {}) if "command" in printed else printed
    if found:
        return found
    raise pressed or _failure(child.returncode, out, err)
