#!/usr/bin/env bash
# memory.sh WEFT PLAN [OPTIONS]: what a plan of one rank takes of the GPU beside what `weft
# check` predicts: the arena, to the byte, and what CUDA and NCCL take, an estimate. Beyond the
# arena there may be 3 GiB at most, else what was predicted is not what is used.
set -uo pipefail
weft=$1 plan=$2
shift 2
used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1; }
report=$("$weft" show "$plan" memory --device cuda --json "$@" | tr -d '\n') || exit 1
bytes=$(grep -o '"total_bytes": *[0-9]*' <<<"$report" | head -n 1 | grep -o '[0-9]*$')
[ -n "$bytes" ] || exit 1
more=$(grep -o '"gpu": *\[[^]]*' <<<"$report" | head -n 1 | grep -o '"bytes": *[0-9]*' |
  awk '{ sum += $2 } END { printf "%.0f", sum }')
before=$(used) most=0
"$weft" run "$plan" --device cuda --steps 5 "$@" &
run=$!
while kill -0 $run 2>/dev/null; do
  now=$(used)
  [ "$now" -le $most ] || most=$now
  sleep 0.1
done
wait $run || exit 1
awk -v p="$bytes" -v c="${more:-0}" -v m=$((most - before)) 'BEGIN {
  p /= 1048576; c /= 1048576
  printf "estimate: %.0f MiB of the plan and %.0f MiB of CUDA and NCCL; used: %.0f MiB, %+.1f %%\n", \
         p, c, m, 100 * (m / (p + c) - 1)
  printf "memory: %.0f MiB predicted, %.0f MiB more of the GPU used while it ran: %.0f MiB " \
         "beyond the arena\n", p, m, m - p
  exit !(m >= 0.98 * p && m <= p + 3072)
}'
