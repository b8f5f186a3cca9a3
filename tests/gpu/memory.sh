#!/usr/bin/env bash
# memory.sh WEFT PLAN [OPTIONS]: what a plan of one rank takes of the GPU beside what `weft
# check` predicts. Beyond the arena there are the context, code and workspaces of libraries: at
# most 3 GiB, else what was predicted is not what is used.
set -uo pipefail
weft=$1 plan=$2
shift 2
used() { nvidia-smi --query-gpu=memory.used --format=csv,noheader,nounits | head -n 1; }
bytes=$("$weft" show "$plan" memory --device cuda --json "$@" |
  grep -o '"total_bytes": *[0-9]*' | head -n 1 | grep -o '[0-9]*$')
[ -n "$bytes" ] || exit 1
before=$(used) most=0
"$weft" run "$plan" --device cuda --steps 5 "$@" &
run=$!
while kill -0 $run 2>/dev/null; do
  now=$(used)
  [ "$now" -le $most ] || most=$now
  sleep 0.1
done
wait $run || exit 1
awk -v p="$bytes" -v m=$((most - before)) 'BEGIN {
  p /= 1048576
  printf "memory: %.0f MiB predicted, %.0f MiB more of the GPU used while it ran: %.0f MiB " \
         "beyond the arena\n", p, m, m - p
  exit !(m >= 0.98 * p && m <= p + 3072)
}'
