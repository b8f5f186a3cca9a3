"""The program weft, as ``weft`` or ``python -m weft``: it takes the place of Python."""

from __future__ import annotations

import os
import sys

from . import _native


def main() -> None:
    program = _native.program()
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
