"""The page docs/python.md: each block of Python prints the block of text after it."""

import contextlib
import io
import re
import shutil
import subprocess
import os
from pathlib import Path

import weft  # noqa: F401

ROOT = Path(__file__).resolve().parents[2]


def test_the_page(tmp_path, monkeypatch):
    shutil.copytree(ROOT / "plans", tmp_path / "plans")
    monkeypatch.chdir(tmp_path / "plans")
    subprocess.run([os.environ.get("WEFT_PROGRAM", "weft"), "run", "-q", "quickstart.lua", "--steps",
                    "2", "--log", "run.jsonl"], check=True)
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL)
    names, ran = {}, 0
    for (kind, text), (after, want) in zip(blocks, blocks[1:]):
        if kind != "python":
            continue
        assert after == "text", f"nothing says what this prints:\n{text}"
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(text, "docs/python.md", "exec"), names)
        assert out.getvalue() == want, text
        ran += 1
    assert ran == sum(kind == "python" for kind, _ in blocks) >= 6


def test_every_name_is_on_the_page():
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    quiet = {"Best", "Check", "Diagnostic", "Diff", "Program", "Report", "Rows", "Run", "Sink", "Step",
             "Sweep", "Verified", "read_log", "__version__"}
    for name in set(weft.__all__) - quiet:
        assert re.search(rf"\b{name}\b", page), f"docs/python.md does not name {name}"
    for name in (n for n in dir(weft.Plan) if not n.startswith("_")):
        assert re.search(rf"\b{name}\b", page), f"docs/python.md does not name Plan.{name}"
