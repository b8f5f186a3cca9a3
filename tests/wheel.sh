#!/usr/bin/env bash
# ./dev wheel test [PYTHON ...]: installs the wheel that ./dev wheel has built into a virtual
# environment of each interpreter (python3), runs the quick start from a folder with a space
# and an umlaut, and tests/python on what is installed, with a home that cannot be written.
# Last, the types of the package are checked for each version of Python that it is for.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tests=$PWD/tests/python
wheel=$(echo "$PWD"/build-package/wheel/*.whl)
[ -f "$wheel" ] || { echo "there is no wheel in build-package/wheel: ./dev wheel builds it" >&2; exit 2; }
[ $# -gt 0 ] || set -- python3
work=$(mktemp -d /tmp/weft-wheel.XXXXXX)
trap 'rm -rf "$work"' EXIT

# Later checkers of types know no Python 3.9.
types() {
  "$work/venv/bin/pip" install -q 'mypy<1.19' || { echo "skipped: types, as mypy cannot be had"; return; }
  local version
  for version in 3.9 3.10 3.11 3.12 3.13; do
    echo "types for Python $version:"
    (cd python && "$work/venv/bin/mypy" --python-version $version --cache-dir "$work/types")
  done
}

for python in "$@"; do
  echo "$("$python" --version): $(basename "$wheel")"
  rm -rf "$work/venv" "$work/Pläne hier"
  "$python" -m venv "$work/venv"
  "$work/venv/bin/pip" install -q --no-index "$wheel"
  "$work/venv/bin/pip" install -q pytest || echo "skipped: tests/python, as pytest cannot be had"
  "$work/venv/bin/pip" install -q jsonschema || true # the test of schemas says that it is skipped
  cp -r "$work"/venv/lib/python*/site-packages/weft/native/share/doc/weft/examples "$work/Pläne hier"
  (
    cd "$work/Pläne hier"
    env -i PATH="$work/venv/bin:/usr/bin:/bin" HOME=/proc weft run quickstart.lua --steps 3
    if [ -x "$work/venv/bin/pytest" ]; then
      env -i PATH="$work/venv/bin:/usr/bin:/bin" HOME=/proc LANG=C.UTF-8 WEFT_INSTALLED=1 \
        PYTHONDONTWRITEBYTECODE=1 python -m pytest -q -p no:cacheprovider "$tests"
    fi
  )
done
types
