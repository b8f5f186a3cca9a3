#!/usr/bin/env bash
# gpu_graph.sh WEFT PLAN FOLDER [OPTIONS]: runs a plan on a GPU with its steps replayed as one
# graph and launched op by op. Losses and gradient norms must be the same to the last digit;
# says how long steps took.
set -euo pipefail
weft=$1 plan=$2 out=$3
shift 3
figures() { grep -o '"grad_norm":[^,]*\|"loss":[^,]*\|"step":[0-9]*' "$1"; }
for graph in true false; do
  rm -f "$out/graph-$graph.log"
  "$weft" run "$plan" --device cuda --log "$out/graph-$graph.log" \
    --set cuda_graph=$graph "$@"
  echo "step_ms with cuda_graph = $graph: $(grep -o '"step_ms":[0-9.]*' \
    "$out/graph-$graph.log" | cut -d: -f2 | xargs)"
done
grep -q '"steps_are":"replayed as one graph"' "$out/graph-true.log"
if grep '"event":"warning"' "$out/graph-true.log"; then exit 1; fi
if ! diff <(figures "$out/graph-true.log") <(figures "$out/graph-false.log"); then
  echo "steps differ with and without the graph"
  exit 1
fi
echo "the same figures with and without the graph"
