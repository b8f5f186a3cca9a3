#!/usr/bin/env bash
# What only a GPU can show, in one call and under 9 minutes: ./dev test gpu [PART ...]. What
# each part says goes to a file of a folder, build/gpu-DATE, and all of it to all.txt there; a
# line for each to the terminal, and last what passed, in words and as one line of JSON, which is
# in result.json there, too. Where there is no GPU it says so and ends with code 77.
#
# --limits says how many seconds each part has at most. windows, which needs two GPUs, table-moe,
# the table of a Mixtral, and memcheck and racecheck, by compute-sanitizer, are calls of their
# own: they run where they are named.
#
# WEFT_GPU_BIN   where weft, weft-gpu and the modules are (build)
# WEFT_GPU_OUT   the folder
# WEFT_GPU_SLOW  limits are so many times as long (1): where a CPU stands in for the GPU
# WEFT_GPU_MORE  options for all runs; WEFT_GPU_TABLE for the tables; WEFT_GPU_RACE
#                for the race, of each of its models
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=${WEFT_GPU_BIN:-build} out=${WEFT_GPU_OUT:-build/gpu-$(date +%Y%m%d-%H%M%S)}
read -ra more <<<"${WEFT_GPU_MORE:-}"
read -ra table <<<"${WEFT_GPU_TABLE:-}"
read -ra race <<<"${WEFT_GPU_RACE:-}"
chosen=("$@")
limits() { [ "${chosen[*]:-}" = --limits ]; }

skip() {
  echo "gpu: skipped: $*"
  exit 77
}
if ! limits; then
  command -v nvidia-smi >/dev/null || skip "there is no nvidia-smi, so no NVIDIA driver"
  [[ $(nvidia-smi -L) == *GPU\ * ]] || skip "nvidia-smi shows no GPU"
  [ -f "$bin/weft_cuda.so" ] || skip "$bin/weft_cuda.so is not there: nvcc was not found"
  mkdir -p "$out"
fi

# What tests/gpu/pack.sh brought, and CUDA's libraries where they came with Python's packages.
libraries=$bin/lib
missing() {
  ldd "$bin"/weft_cuda.so "$bin"/weft_nccl.so 2>/dev/null | grep -q 'not found' ||
    ! ldconfig -p 2>/dev/null | grep -q 'libcudnn\.so\.9'
}
if ! limits && missing; then
  libraries+=:$(python3 -c 'import glob, nvidia
print(":".join(glob.glob(list(nvidia.__path__)[0] + "/*/lib")))' 2>/dev/null)
fi
export LD_LIBRARY_PATH=$libraries${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

ok=0 failed=() skipped=() results=()
# A string of JSON, in one line.
json() { printf '"%s"' "$(printf %s "$1" | tr '\n\t' '  ' | tr -d '\000-\037' | sed 's/[\\"]/\\&/g')"; }
say() { echo "$@" | tee -a "$out/summary.txt"; }
# Runs a command with a limit in seconds; the last line that it prints is told.
part() { # NAME SECONDS COMMAND...
  local name=$1 limit=$(($2 * ${WEFT_GPU_SLOW:-1})) begin=$SECONDS code how last
  shift 2
  if limits; then
    echo "$name $limit"
    return
  fi
  [ ${#chosen[@]} = 0 ] || [[ " ${chosen[*]} " == *" $name "* ]] || return 0
  timeout -k 2 "$limit" "$@" >"$out/$name.txt" 2>&1
  code=$?
  if [ $code != 0 ]; then
    how="FAILED ($code)" failed+=("$name")
    [ $code != 124 ] || how="FAILED (not through in $limit s)"
  elif grep -q '^skipped: ' "$out/$name.txt"; then
    how=skipped skipped+=("$name")
  else
    how=ok ok=$((ok + 1))
  fi
  { echo "==== $name: $how"; cat "$out/$name.txt"; } >>"$out/all.txt"
  last=$(grep -v '^ *$' "$out/$name.txt" | tail -n 1)
  say "$(printf '%-16s %-8s %3d s  %s' "$name" "$how" $((SECONDS - begin)) "${last:0:100}")"
  results+=("{\"part\": \"$name\", \"code\": $code, \"seconds\": $((SECONDS - begin)), \
\"says\": $(json "${last:0:300}")}")
}
# A part that runs where it is named alone, and counts as none of the call's limit.
extra() { # NAME SECONDS COMMAND...
  limits || [[ " ${chosen[*]:-} " != *" $1 "* ]] || part "$@"
}
sanitized() { # TOOL
  echo "command -v compute-sanitizer >/dev/null || { echo skipped: there is no compute-sanitizer; exit; }
    compute-sanitizer --tool $1 --error-exitcode 9 '$bin/weft-gpu' kernels --brief"
}

weft=$bin/weft quick=plans/quickstart.lua big=tests/gpu/llama_1b.lua moe=tests/gpu/mixtral_1b.lua
one=(--set mesh.tp=1 --set mesh.pp=1 --set mesh.dp=1 "${more[@]}")
part versions 5 sh -c 'nvidia-smi; nvcc --version; git rev-parse HEAD; '"$weft"' --version'
part run 40 "$weft" run $quick --steps 5 --device cuda "${more[@]}"
part kernels 40 "$bin/weft-gpu" kernels
part verify-f32 15 "$weft" verify $quick --device cuda --set precision=f32 "${more[@]}"
part verify-bf16 15 "$weft" verify $quick --device cuda --set precision=bf16 "${more[@]}"
for mesh in tp pp dp; do
  part verify-$mesh 12 "$weft" verify $quick --device cuda --ranks 2 --steps 1 \
    --set precision=f32 "${one[@]}" --set mesh.$mesh=2
done
part verify-fp8 20 tests/gpu/fp8.sh "$weft" $quick --device cuda "${more[@]}"
part graph 20 tests/gpu_graph.sh "$weft" $quick "$out" --steps 8 "${one[@]}" \
  --set deterministic=true
part cudnn 25 tests/gpu/cudnn.sh "$bin" $quick "${one[@]}"
part table 30 "$bin/weft-gpu" table $big "${more[@]}" "${table[@]}"
extra table-moe 60 "$bin/weft-gpu" table $moe "${more[@]}" "${table[@]}"
part memory 30 tests/gpu/memory.sh "$weft" $big "${more[@]}"
# Ranks of NCCL that share the GPU, each as if on a machine of its own. They take turns of
# milliseconds there, at each operation and each product that is timed: so there are few.
if limits || [ -f "$bin/weft_nccl.so" ]; then
  ranks=("$weft" run $quick --device cuda --steps 2 "${more[@]}" --set mesh.tp=2
    --set train.check_replicas_every=1 --set batch.global=8 --set deterministic=true)
  part nccl-2 15 tests/gpu/ranks.sh 2 "$out/nccl-2" "${ranks[@]}" --set mesh.pp=1 --set mesh.dp=1
  part nccl-4 20 tests/gpu/ranks.sh 4 "$out/nccl-4" "${ranks[@]}" --set mesh.pp=1 --set mesh.dp=2
  part nccl-8 22 tests/gpu/ranks.sh 8 "$out/nccl-8" "${ranks[@]}" --set mesh.pp=2 --set mesh.dp=2
  part failures 45 env "MORE=${WEFT_GPU_MORE:-}" tests/gpu/failures.sh "$weft" "$out/failures"
else
  say "nccl-*, failures: $bin/weft_nccl.so is not there: NCCL was not found"
fi
extra windows 60 tests/gpu/windows.sh "$weft" $quick "${more[@]}"
extra memcheck 500 sh -c "$(sanitized memcheck)"
extra racecheck 500 sh -c "$(sanitized racecheck)"
part race 160 python3 tests/gpu/race.py --weft "$weft" --out "$out" --seconds 150 "${race[@]}"

! limits || exit 0

for name in kernels cudnn table table-moe memory nccl-2 failures race; do
  [ ! -f "$out/$name.txt" ] || case $name in
  kernels | cudnn) tail -n 1 "$out/$name.txt" ;;
  table | table-moe) sed -n '1p;$p' "$out/$name.txt" ;;
  nccl-2) grep -o -m 1 'arena: .*' "$out/$name.txt" ;;
  memory | failures) grep -E '^(memory|nan|kill|stop): ' "$out/$name.txt" ;;
  race) grep -E '^(==|weft|PyTorch|ratio|memory|loss|skipped|\{)' "$out/$name.txt" ;;
  esac
done | cut -c -200 | tee -a "$out/summary.txt"
say "$ok passed, ${#failed[@]} failed: ${failed[*]:-none}; skipped: ${skipped[*]:-none};" \
  "$SECONDS s; all that was said is in $out/all.txt"
printf -v all ', %s' "${results[@]}"
echo "{\"gpu\": $(json "$(nvidia-smi -L)"), \"weft\": $(json "$("$weft" --version)"), \
\"seconds\": $SECONDS, \"passed\": $ok, \"failed\": ${#failed[@]}, \
\"skipped\": ${#skipped[@]}, \"parts\": [${all:2}]}" | tee "$out/result.json"
[ ${#failed[@]} = 0 ]
