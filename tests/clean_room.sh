#!/usr/bin/env bash
# ./dev clean-room [--short]: the two commands of the README from a fresh clone of the last
# commit, in a Debian root that holds nothing but apt. --short: five steps of the quick start
# and a few suites. Needs root and mmdebstrap; takes the host's mirrors and apt settings.
# The mounts live in a mount namespace of their own, so they end with it, however it ends.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'clean-room: %s\n' "$*" >&2; }

# In the namespace, as `inside ROOT COMMAND...`.
inside() {
  local root=$1
  shift
  mount -t proc proc "$root/proc"
  mount -t sysfs -o ro sysfs "$root/sys"
  mount --bind /dev "$root/dev"
  mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
  mount -t tmpfs tmpfs "$root/dev/shm"
  local settings=() name
  for name in http_proxy https_proxy no_proxy; do
    [ -z "${!name:-}" ] || settings+=("$name=${!name}")
  done
  chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    "${settings[@]}" bash -euc 'cd /weft; "$@"' - "$@"
}
if [ "${1:-}" = --inside ]; then
  shift
  inside "$@"
  exit
fi

steps=() suites=()
case ${1:-} in
'') ;;
--short) steps=(--steps 5) suites=(lang mesh passes program exec kernels cli) ;;
*) say "there is no option $1; --short is one"; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || { say "only root can make a root"; exit 2; }

work=$(mktemp -d /tmp/weft-clean-room.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM
root=$work/root

# Mirrors, proxies and certificates as on this host.
apt-config dump Acquire >"$work/apt.conf"
sources=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
  ! grep -qsE '^(deb |Types:)' "$file" || sources+=("$file")
done
. /etc/os-release
say "making a root of $VERSION_CODENAME from ${#sources[@]} file(s) of sources"
mmdebstrap --quiet --mode=root --variant=apt --aptopt="$work/apt.conf" \
  --setup-hook='for f in auth.conf auth.conf.d; do [ ! -e /etc/apt/$f ] || cp -a /etc/apt/$f "$1/etc/apt/"; done' \
  --setup-hook='mkdir -p "$1/etc/ssl"; [ ! -d /etc/ssl/certs ] || cp -aL /etc/ssl/certs "$1/etc/ssl/"' \
  "$VERSION_CODENAME" "$root" "${sources[@]}"
cp /etc/hosts "$root/etc/hosts"
git clone -q --depth 1 "file://$PWD" "$root/weft"

for command in "run plans/quickstart.lua ${steps[*]}" "test ${suites[*]}"; do
  say "./dev $command"
  # shellcheck disable=SC2086 # words
  unshare --mount --propagation private -- "$PWD/tests/clean_room.sh" --inside "$root" \
    ./dev $command
done
say "both commands of the README pass from packages alone"
