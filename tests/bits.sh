#!/usr/bin/env bash
# bits.sh - whether a change kept the numbers: N random plans are trained for three steps by
# the program of this tree and by that of another commit, and seven plans are verified by both.
# Losses, gradient norms and what verify says must be the same to the last digit. The other
# program is built once, in build/bits-COMMIT; its tests draw the plans, so that they have the
# fields that both know.
#
#   tests/bits.sh COMMIT [N [SEED]]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
commit=$(git rev-parse --short=12 "${1:?a commit to compare with}")
count=${2:-200} seed=${3:-2026}
old=$PWD/build/bits-$commit new=$PWD/build/weft
if [ ! -x "$old/build/weft-tests" ]; then
  git worktree prune
  [ -d "$old" ] || git worktree add --detach "$old" "$commit" >/dev/null
  # With the modules that multiply matrices: another one has other bits.
  (cd "$old" && cmake --preset release -DWEFT_CUDA=OFF >/dev/null &&
    cmake --build build --target weft-cli weft_gemm_dnnl weft_gemm_blas weft_edit weft-tests >/dev/null)
fi
tests=$old/build/weft-tests old=$old/build/weft
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# What a run computed: one line for each step.
numbers() { # LOG
  grep -o '"grad_norm":[^,}]*,"loss":[^,}]*\|"step":[0-9]*,' "$1"
}
train() { # PROGRAM LOG PLAN
  rm -f "$2"
  "$1" run "$3" --steps 3 --threads 1 --quiet --log "$2" >"$2.out" 2>"$2.err" ||
    echo "ended with $?" >"$2"
  numbers "$2" >"$2.numbers" || cp "$2" "$2.numbers"
}

equal=0 differ=0 refused=0
for ((i = 0; i < count; i++)); do
  plan=$scratch/plan.lua
  "$tests" --plan "$seed" "$i" >"$plan"
  train "$old" "$scratch/old" "$plan"
  train "$new" "$scratch/new" "$plan"
  if ! cmp -s "$scratch/old.numbers" "$scratch/new.numbers"; then
    differ=$((differ + 1))
    echo "plan $i of seed $seed differs:"
    diff "$scratch/old.numbers" "$scratch/new.numbers" || true
  elif grep -q '^ended' "$scratch/new.numbers"; then
    refused=$((refused + 1))
  else
    equal=$((equal + 1))
  fi
done
echo "$count plans: $equal equal, $refused refused by both, $differ differ"
[ "$equal" -gt 0 ] || exit 1

verified=0
for name in quickstart custom_model my_schedule llama3_8b_fsdp2 llama3_8b_hsdp mixtral_8x7b gpt_7b_zero; do
  for who in old new; do
    "${!who}" verify "plans/$name.lua" >"$scratch/$who" 2>&1 || echo "ended with $?" >>"$scratch/$who"
  done
  # Words may change, numbers not.
  for who in old new; do grep -oE '[0-9][0-9.e+-]*' "$scratch/$who" >"$scratch/$who.numbers" || true; done
  if cmp -s "$scratch/old.numbers" "$scratch/new.numbers"; then
    verified=$((verified + 1))
  else
    echo "verify of plans/$name.lua differs:"
    diff "$scratch/old" "$scratch/new" || true
  fi
done
echo "$verified of 7 verifies equal"
[ "$differ" = 0 ] && [ "$verified" = 7 ]
