#!/usr/bin/env bash
# pack.sh FOLDER: what tests/gpu.sh needs on a machine with a GPU, CUDA's libraries and no
# packages of weft's: the programs and modules of build/, the libraries that they were linked
# with, plans and scripts. There: FOLDER/tests/gpu.sh
set -euo pipefail
to=$(mkdir -p "$1" && cd "$1" && pwd)
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
mkdir -p "$to/build/lib" "$to/tests"
cp build/weft build/weft-gpu build/weft_cuda.so "$to/build/"
[ ! -f build/weft_nccl.so ] || cp build/weft_nccl.so "$to/build/"
ldd build/weft build/weft-gpu | awk '$3 ~ /^\// && $1 !~ /^lib(c|m|dl|rt|pthread)\.so/ { print $3 }' |
  sort -u | xargs -I{} cp -L {} "$to/build/lib/"
cp -r plans "$to/"
cp -r tests/gpu tests/gpu.sh tests/gpu_graph.sh "$to/tests/"
du -sh "$to"
