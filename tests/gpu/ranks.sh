#!/usr/bin/env bash
# ranks.sh N FOLDER COMMAND...: N processes of a plan that share the GPU. NCCL takes each for
# one of a machine of its own (NCCL_HOSTID), so they exchange by sockets: slow, but all of it
# is NCCL. Needs no mpirun. What rank R says goes to FOLDER/rank-R.txt, and the numbers of
# the processes to FOLDER/pids. Ends with the first code that is not 0.
set -uo pipefail
n=$1 out=$2
shift 2
mkdir -p "$out"
export WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$((20000 + (RANDOM + $$) % 12000))
export WEFT_SECRET=${WEFT_SECRET:-$(head -c 16 /dev/urandom | base64)}
export NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1
pids=()
for ((r = 0; r < n; r++)); do
  RANK=$r LOCAL_RANK=$r NCCL_HOSTID=$r "$@" >"$out/rank-$r.txt" 2>&1 &
  pids+=($!)
done
trap 'kill -KILL "${pids[@]}" 2>/dev/null' TERM INT
echo "${pids[@]}" >"$out/pids"
code=0
for ((r = 0; r < n; r++)); do
  wait "${pids[r]}"
  got=$?
  [ $code != 0 ] || code=$got
done
cat "$out/rank-0.txt"
[ $code = 0 ] || tail -n 5 "$out"/rank-*.txt
exit $code
