#!/bin/sh
# keep_figures.sh NVCC ...: compiles, and keeps what ptxas says of the kernels (-Xptxas=-v)
# in OBJECT.ptxas instead of printing it.
last='' out=''
for word; do
  [ "$last" != -o ] || out=$word
  last=$word
done
[ -n "$out" ] || exec "$@"
"$@" 2>"$out.said"
code=$?
grep '^ptxas info\|bytes stack frame\|bytes spill' "$out.said" >"$out.ptxas"
grep -v '^ptxas info\|bytes stack frame\|bytes spill' "$out.said" >&2
rm -f "$out.said"
exit $code
