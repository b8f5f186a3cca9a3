#!/bin/sh
# keep_figures.sh NVCC ...: compiles, and keeps what ptxas says of the kernels (-Xptxas=-v)
# in OBJECT.ptxas instead of printing it, but for advice, which has a number: (C7510).
last='' out=''
for word; do
  [ "$last" != -o ] || out=$word
  last=$word
done
[ -n "$out" ] || exec "$@"
"$@" 2>"$out.said"
code=$?
figures='^ptxas info *: *[^( ]\|bytes stack frame\|bytes spill'
grep "$figures" "$out.said" >"$out.ptxas"
grep -v "$figures" "$out.said" >&2
rm -f "$out.said"
exit $code
