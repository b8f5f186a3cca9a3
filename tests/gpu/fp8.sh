#!/usr/bin/env bash
# fp8.sh WEFT PLAN [OPTIONS]: verifies a plan in each recipe of fp8. A recipe that the GPU, or the
# plan, does not have must be refused by name. Skipped where there is none.
set -uo pipefail
weft=$1 plan=$2 has=
shift 2
for recipe in tensorwise rowwise mxfp8; do
  said=$("$weft" verify "$plan" --steps 1 "$@" \
    --set "precision={ 'fp8', recipe = '$recipe' }" 2>&1)
  code=$?
  printf '== %s\n%s\n' "$recipe" "$said"
  if [ $code = 0 ]; then
    has+=" $recipe"
  elif ! grep -qE "recipe = \"$recipe\" needs|linears would be in fp8" <<<"$said"; then
    exit $code
  fi
done
echo "${has:+fp8 agrees with the CPU:}${has:-skipped: this GPU has no products in fp8}"
