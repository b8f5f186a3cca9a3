#!/usr/bin/env bash
# windows.sh WEFT PLAN [OPTIONS]: two ranks of tp on two GPUs, with the arena in CUDA's memory, in
# NCCL's, and in symmetric windows; which one it was is in the first line of each run. Copies of
# parameters are compared each step, and the last losses, which may differ by 1e-3: sums have
# another order. Skipped where there is one GPU.
set -uo pipefail
weft=$1 plan=$2 first=
shift 2
gpus=$(nvidia-smi -L | grep -c '^GPU ')
[ "$gpus" -ge 2 ] || { echo "skipped: one GPU has no other to share windows with"; exit 0; }
for arena in cuda nccl symmetric; do
  said=$("$weft" run "$plan" --device cuda --procs 2 --steps 3 --json "$@" --set mesh.tp=2 \
    --set mesh.pp=1 --set mesh.dp=1 --set train.check_replicas_every=1 \
    --set nccl.arena=$arena 2>&1)
  code=$?
  printf '== %s\n%s\n' $arena "$said"
  [ $code = 0 ] || exit $code
  loss=$(grep -o '"loss": *[0-9.e+-]*' <<<"$said" | tail -n 1 | sed 's/.*://')
  told=$(grep -o 'arena: .*' <<<"$said" | head -n 1)
  case $arena in
  nccl) [[ $told == *"NCCL's memory"* ]] || { echo "not in NCCL's memory: $told"; exit 1; } ;;
  symmetric) [[ $told == *"windows of "[1-9]* ]] || { echo "no windows: $told"; exit 1; } ;;
  esac
  first=${first:-$loss}
  awk -v a="$first" -v b="$loss" 'BEGIN { d = a - b; exit !(a > 0 && d * d <= 1e-6 * a * a) }' ||
    { echo "the loss is $loss in the arena of $arena, not $first"; exit 1; }
done
echo "windows: the loss is $loss with each arena; $told"
