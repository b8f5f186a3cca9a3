#!/usr/bin/env bash
# suite.sh TESTS SUITE SECONDS LOG - runs a suite in a session of its own. What it prints
# goes to LOG; what it started and left behind is ended. Prints its exit status (124: it did
# not end in SECONDS) and the seconds of processor time that it took.
set -u
tests=$1 suite=$2 seconds=$3 log=$4
ulimit -c 0
ulimit -f 4194304 # a fault may write for ever; in KiB
{ # bash says so if it is ended before its time
  setsid --wait bash -c 'echo $$ >"$1.session"; exec timeout -k 5 "$2" "$3" "$4" >"$1" 2>&1 </dev/null' \
    - "$log" "$seconds" "$tests" "$suite"
} 2>/dev/null
status=$?
session=$(<"$log.session")
for stat in /proc/[0-9]*/stat; do
  # pid (name) state parent group session
  { read -r line <"$stat"; } 2>/dev/null || continue
  read -r _ _ _ of _ <<<"${line##*) }"
  [ "$of" != "$session" ] || kill -9 "${line%% *}" 2>/dev/null
done
[ "$status" != 137 ] || status=124
times >"$log.times" # in a subshell they would be its own
awk -v status="$status" 'NR == 2 {
  for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); sum += 60 * t[1] + t[2] }
  printf "%d %.2f\n", status, sum
}' "$log.times"
