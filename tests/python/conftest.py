"""The package of this tree, with the library and the program of a build: WEFT_BUILD, else
build. Where an installed wheel is to be tested instead, WEFT_INSTALLED=1."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("WEFT_BUILD", ROOT / "build"))

if not os.environ.get("WEFT_INSTALLED"):
    sys.path.insert(0, str(ROOT / "python"))
    os.environ.setdefault("WEFT_LIBRARY", str(BUILD / "libweftlua.so"))
    os.environ.setdefault("WEFT_PROGRAM", str(BUILD / "weft"))

SMALL = """local weft = require "weft"
return weft.plan {
  name = "small", model = weft.model "llama-tiny", mesh = { tp = 2, pp = 2 },
  batch = { global = 4, micro = 1, seq = 16 }, data = weft.synthetic {},
  optimizer = weft.adamw { lr = 1e-3 }, train = { steps = weft.var("steps", 2) },
}
"""


@pytest.fixture
def plans() -> Path:
    return ROOT / "plans"


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A plan of four ranks in a folder with a space and an umlaut."""
    folder = tmp_path / "Pläne hier"
    folder.mkdir()
    path = folder / "klein (ä).lua"
    path.write_text(SMALL)
    return path
