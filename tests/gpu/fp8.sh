#!/usr/bin/env bash
# fp8.sh WEFT PLAN [OPTIONS]: verifies a plan in each recipe of fp8. A recipe that the GPU, or the
# plan, does not have must be refused by name. Skipped where there is none. Then steps with a
# product of few rows and a long sum (WEFT_GPU_DEEP), for which a recipe may have no algorithm.
set -uo pipefail
weft=$1 plan=$2 has= deep=${WEFT_GPU_DEEP:-8192}
shift 2
for recipe in tensorwise rowwise mxfp8; do
  said=$("$weft" verify "$plan" --steps 1 "$@" \
    --set "precision={ 'fp8', recipe = '$recipe' }" 2>&1)
  code=$?
  printf '== %s\n%s\n' "$recipe" "$said"
  if [ $code = 0 ]; then
    has+=" $recipe"
    for rows in 128 256; do
      "$weft" run "$plan" --steps 1 "$@" --set "precision={ 'fp8', recipe = '$recipe' }" \
        --set model.intermediate_size="$deep" --set mesh.tp=1 --set mesh.pp=1 \
        --set mesh.dp=1 --set batch.global=1 --set batch.micro=1 --set batch.seq=$rows 2>&1 || exit
    done
  elif ! grep -qE "recipe = \"$recipe\" needs|linears would be in fp8" <<<"$said"; then
    exit $code
  fi
done
echo "${has:+fp8 agrees with the CPU:}${has:-skipped: this GPU has no products in fp8}"
