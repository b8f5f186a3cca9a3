#!/usr/bin/env bash
# What only a GPU can show, in one call and under 9 minutes: ./dev test gpu. Everything goes
# to a folder, build/gpu-DATE, and its summary to the terminal. Where there is no GPU it says
# so and is no failure.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

skip() {
  echo "gpu: skipped: $*"
  exit 0
}
command -v nvidia-smi >/dev/null || skip "there is no nvidia-smi, so no NVIDIA driver"
nvidia-smi -L | grep -q GPU || skip "nvidia-smi shows no GPU"
[ -f build/weft_cuda.so ] || skip "build/weft_cuda.so is not there: nvcc was not found"

out=build/gpu-$(date +%Y%m%d-%H%M%S)
mkdir -p "$out"
failed=0
# Runs a command with a limit in seconds; its output is a file of the folder.
step() { # NAME SECONDS COMMAND...
  local name=$1 limit=$2 begin=$SECONDS code
  shift 2
  timeout "$limit" "$@" >"$out/$name.txt" 2>&1
  code=$?
  [ $code = 0 ] || failed=$((failed + 1))
  printf '%-28s %s  %3d s\n' "$name" "$([ $code = 0 ] && echo ok || echo "FAILED ($code)")" \
    $((SECONDS - begin)) | tee -a "$out/summary.txt"
}

weft=build/weft
step versions 20 sh -c 'nvidia-smi; nvcc --version; build/weft --version; git rev-parse HEAD'
step run-quickstart 60 $weft run plans/quickstart.lua --steps 5 --device cuda
step verify-f32 90 $weft verify plans/quickstart.lua --device cuda --set precision=f32
step verify-bf16 90 $weft verify plans/quickstart.lua --device cuda --set precision=bf16
step memory-predicted 30 $weft show plans/quickstart.lua memory --device cuda
for mesh in tp=2 pp=2 dp=2; do
  step "verify-$mesh" 60 $weft verify plans/quickstart.lua --device cuda --ranks 2 --steps 1 \
    --set precision=f32 --set mesh.tp=1 --set mesh.pp=1 --set mesh.dp=1 --set "mesh.$mesh"
done
step graph-on-off 90 tests/gpu_graph.sh $weft plans/quickstart.lua "$out" --steps 8 \
  --set mesh.tp=1 --set mesh.pp=1 --set mesh.dp=1
# Ranks of NCCL that share the GPU, each as if on a machine of its own: slow, so few steps.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
for n in 2 4; do
  [ -f build/weft_nccl.so ] || break
  step "nccl-$n-ranks" 60 mpirun --oversubscribe -n $n sh -c 'NCCL_HOSTID=$OMPI_COMM_WORLD_RANK \
    NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 exec build/weft run \
    plans/quickstart.lua --device cuda --steps 2 --set mesh.pp=1 --set mesh.dp='$((n / 2))
done
echo "not there yet: kernels one by one, failures, the race with torch.compile," \
  "the table by op" | tee -a "$out/summary.txt"
echo "the output of each is in $out"
[ $failed = 0 ]
