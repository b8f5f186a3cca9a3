#!/usr/bin/env bash
# cudnn.sh BIN PLAN [OPTIONS]: attention by cuDNN: the cases that it computes, as `weft-gpu
# kernels` does it, then steps of a plan of one rank that asks for it, which must be replayed.
# Where cuDNN is not there it says so.
set -uo pipefail
bin=$1 plan=$2
shift 2
said=$("$bin/weft-gpu" kernels --cudnn)
code=$?
echo "$said"
[ $code = 0 ] || exit $code
! grep -q '^skipped: ' <<<"$said" || exit 0
said=$("$bin/weft" run "$plan" --device cuda --steps 6 --set precision=bf16 --set \
  attention_backend=cudnn "$@" 2>&1)
code=$?
echo "$said"
[ $code = 0 ] || exit $code
grep -q 'steps are replayed as one graph' <<<"$said" || exit 1
# A plan of several ranks has settings that mean nothing on one.
! grep 'warning: ' <<<"$said" | grep -qv 'has no effect' || exit 1
echo "attention by cuDNN is right, and its steps are replayed"
