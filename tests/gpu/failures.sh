#!/usr/bin/env bash
# failures.sh WEFT FOLDER: failures on a GPU, as a user meets them.
#
#   memory  a plan that does not fit ends with code 3 and says what it needs and what there is
#   nan     the step that finds a value that is not finite names the op that made it
#   kill    of two ranks over NCCL, which share the GPU, one is killed;
#   stop    or stopped: the other ends within the limit and 5 seconds, not with success, and
#           names it
#
# A line for each; the code is how many failed. MORE has options for all runs, ONLY the names of
# some of these, LIMIT the seconds of comm.timeout (8).
set -uo pipefail
weft=$1 out=$2
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
read -ra more <<<"${MORE:-}"
quick=("$root/plans/quickstart.lua" --device cuda --set mesh.tp=1 --set mesh.pp=1)
failed=0 limit=${LIMIT:-8} grace=5
mkdir -p "$out"

holds() { # NAME TEXT: whether what was said has it
  grep -Eq -- "$2" "$out/$1.txt" && return
  echo "$1: \"$2\" is not in what was said:"
  tail -n 4 "$out/$1.txt"
  return 1
}
# ok or FAILED, with what is to be said of it
result() { # NAME CODE TEXT
  if [ "$2" = 0 ]; then echo "$1: ok: $3"; else echo "$1: FAILED: $3"; failed=$((failed + 1)); fi
}

of_memory() {
  timeout 60 "$weft" run "$root/tests/gpu/llama_1b.lua" --device cuda --steps 1 \
    "${more[@]}" --set batch.micro=1024 --set batch.global=1024 --set batch.seq=4096 \
    --set model.num_hidden_layers=16 >"$out/memory.txt" 2>&1
  local code=$?
  holds memory 'the plan needs [0-9.]+ GiB, as check predicts; the GPU has [0-9.]+ GiB' &&
    [ $code = 3 ]
  result memory $? "code $code: $(grep -o 'the plan needs.*are free' "$out/memory.txt")"
}

# Each step multiplies all weights by a million.
of_nan() {
  timeout 60 "$weft" run "${quick[@]}" --set mesh.dp=1 --set precision=bf16 --steps 20 \
    --set optimizer.lr=1000 --set optimizer.weight_decay=1000 "${more[@]}" >"$out/nan.txt" 2>&1
  local code=$?
  holds nan 'step [0-9]+: .* is (nan|-?inf); first seen on rank 0 in op [a-z_]+' &&
    [ $code = 1 ]
  result nan $? "code $code: $(grep -Eo 'step [0-9]+: .*' "$out/nan.txt" | tail -n 1)"
}

# One of two ranks, once they train.
of_signal() { # NAME SIGNAL
  local name=$1 began=0 took left=() starter code
  rm -rf "${out:?}/$name"
  "$root/tests/gpu/ranks.sh" 2 "$out/$name" "$weft" run "${quick[@]}" --set mesh.dp=2 \
    --steps 100000 --set train.log_every=1 --set "comm.timeout=$limit" "${more[@]}" \
    >"$out/$name.txt" 2>&1 &
  starter=$!
  for ((i = 0; i < 600; i++)); do
    grep -q 'step *3/' "$out/$name/rank-0.txt" 2>/dev/null && break
    kill -0 $starter 2>/dev/null || break
    sleep 0.1
  done
  if ! grep -q 'step *3/' "$out/$name/rank-0.txt"; then
    kill $starter
    result "$name" 1 "the ranks do not train: $(tail -n 3 "$out/$name"/rank-*.txt)"
    return
  fi
  read -ra left <"$out/$name/pids"
  began=$(date +%s%N)
  kill "-$2" "${left[1]}" || true
  while kill -0 "${left[0]}" 2>/dev/null && [ $(($(date +%s%N) - began)) -lt 30000000000 ]; do
    sleep 0.05
  done
  took=$((($(date +%s%N) - began) / 1000000))
  kill -KILL "${left[@]}" 2>/dev/null
  wait $starter
  code=$?
  cat "$out/$name"/rank-*.txt >>"$out/$name.txt"
  holds "$name" 'rank 1' && [ $code != 0 ] && [ $took -le $(((limit + grace) * 1000)) ]
  result "$name" $? "rank 0 ended after $took ms (limit $limit s and $grace s), code $code: $(
    grep -h 'weft: ' "$out/$name/rank-0.txt" | head -n 1)"
}

wanted() { [[ " ${ONLY:-memory nan kill stop} " == *" $1 "* ]]; }
! wanted memory || of_memory
! wanted nan || of_nan
! wanted kill || of_signal kill KILL
! wanted stop || of_signal stop STOP
exit $failed
