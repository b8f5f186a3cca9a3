#!/usr/bin/env bash
# pack.sh FOLDER: what tests/gpu.sh needs on a machine with a GPU, CUDA's libraries and no
# packages of weft's: the programs and modules of build/ (or WEFT_GPU_BIN), the libraries that
# they were linked with, plans and scripts. There: FOLDER/tests/gpu.sh
set -euo pipefail
to=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
bin=${WEFT_GPU_BIN:-build}
if [ ! -f "$bin/weft_cuda.so" ]; then
  echo "pack.sh: $bin/weft_cuda.so is not there: nvcc was not found" >&2
  exit 2
fi
mkdir -p "$to/build/lib" "$to/tests"
cp -L "$bin/weft" "$bin/weft-gpu" "$bin/weft_cuda.so" "$to/build/"
[ ! -f "$bin/weft_nccl.so" ] || cp -L "$bin/weft_nccl.so" "$to/build/"
ldd "$bin/weft" "$bin/weft-gpu" | # but for the C library
  awk '$3 ~ /^\// && $1 !~ /^lib(c|m|dl|rt|pthread)\.so/ { print $3 }' |
  sort -u | xargs -I{} cp -L {} "$to/build/lib/"
cp -r plans "$to/"
cp -r tests/gpu tests/gpu.sh tests/gpu_graph.sh "$to/tests/"
du -sh "$to"
