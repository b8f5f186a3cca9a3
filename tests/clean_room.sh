#!/usr/bin/env bash
# ./dev clean-room [--short | --packages]: in a Debian root that holds nothing but apt, first the Debian
# packages of this tree are installed and train, then the two commands of the README run from
# a fresh clone of the last commit. --short: five steps of the quick start and a few suites,
# packages of what ./dev build has built, no wheel, and a compiler cache, where the host has one: what
# it compiled from the same headers is taken from there. --packages: packages and the wheel alone.
# Needs root and mmdebstrap; takes the host's mirrors and apt settings.
# The mounts live in a mount namespace of their own, so they end with it, however it ends.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

say() { printf 'clean-room: %s\n' "$*" >&2; }

# In the namespace, as `inside ROOT COMMAND...`, in a folder of the same name as here: its name is
# in the flags of the compiler. Where ROOT has ccache, it has the host's cache, and its locale:
# messages of a compiler are kept with what it makes.
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
  if [ -x "$root/usr/bin/ccache" ]; then
    mkdir -p "$root/ccache"
    mount --bind "$(ccache --get-config cache_dir)" "$root/ccache"
    for name in $(compgen -A export | grep -E '^(CCACHE_.*|LANG|LC_ALL|LC_CTYPE|LC_MESSAGES)$'); do
      settings+=("$name=${!name}")
    done
    settings+=(CCACHE_DIR=/ccache)
  fi
  chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    "${settings[@]}" bash -euc 'cd "$0"; "$@"' "$PWD" "$@"
}
if [ "${1:-}" = --inside ]; then
  shift
  inside "$@"
  exit
fi

steps=() suites=() short=false sources=true
case ${1:-} in
'') ;;
--short) short=true steps=(--steps 5) suites=(lang mesh passes program exec cli
  kernels:gemm_backend_agrees kernels:ranks_multiply_at_the_same_time) ;;
--packages) sources=false ;;
*) say "there is no option $1; --short and --packages are"; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || { say "only root can make a root"; exit 2; }

work=$(mktemp -d /tmp/weft-clean-room.XXXXXX)
trap 'rm -rf --one-file-system "$work"' EXIT
trap 'exit 130' INT TERM
root=$work/root

# Mirrors, proxies and certificates as on this host.
apt-config dump Acquire >"$work/apt.conf"
lists=()
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources; do
  ! grep -qsE '^(deb |Types:)' "$file" || lists+=("$file")
done
. /etc/os-release
say "making a root of $VERSION_CODENAME from ${#lists[@]} file(s) of sources"
mmdebstrap --quiet --mode=root --variant=apt --aptopt="$work/apt.conf" \
  --setup-hook='for f in auth.conf auth.conf.d; do [ ! -e /etc/apt/$f ] || cp -a /etc/apt/$f "$1/etc/apt/"; done' \
  --setup-hook='mkdir -p "$1/etc/ssl"; [ ! -d /etc/ssl/certs ] || cp -aL /etc/ssl/certs "$1/etc/ssl/"' \
  "$VERSION_CODENAME" "$root" "${lists[@]}"
cp /etc/hosts "$root/etc/hosts"
mkdir -p "$root$(dirname "$PWD")"
git clone -q --depth 1 "file://$PWD" "$root$PWD"

# Training by what the packages alone bring, in a folder with a space and an umlaut; they go
# again with all that they brought.
packages() {
  local made=build-package/packages log
  if $short; then # no second build of everything: the same rules put it below /usr
    ./dev build >&2
    made=build/packages
    rm -rf $made
    log=$(cd build && cpack -G DEB -D CPACK_PACKAGING_INSTALL_PREFIX=/usr 2>&1) || { say "$log"; return 1; }
  else
    ./dev package >&2
  fi
  mkdir "$root/packages"
  cp $made/weft_*.deb $made/weft-mpi_*.deb $made/libweft0_*.deb "$root/packages"
  # shellcheck disable=SC2016 # of the shell inside
  unshare --mount --propagation private -- "$PWD/tests/clean_room.sh" --inside "$root" bash -euc '
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update -q && apt-get install -y -q --no-install-recommends /packages/*.deb; } >/tmp/packages.log 2>&1 ||
      { cat /tmp/packages.log; exit 1; }
    cp -r /usr/share/doc/weft/examples "/tmp/Pläne hier"
    cd "/tmp/Pläne hier"
    weft check quickstart.lua
    weft run quickstart.lua --steps 5
    mpirun --allow-run-as-root --oversubscribe -n 8 weft run quickstart.lua --steps 2
    weft completion man | cmp - /usr/share/man/man1/weft.1
    apt-get purge -y -q --auto-remove weft weft-mpi libweft0 >/tmp/packages.log 2>&1 ||
      { cat /tmp/packages.log; exit 1; }
    test ! -e /usr/bin/weft'
}

# The wheel in a virtual environment; the long form only, as building it needs PyPI.
wheel() {
  ./dev wheel >&2
  cp build-package/wheel/*.whl "$root/packages"
  # shellcheck disable=SC2016 # of the shell inside
  unshare --mount --propagation private -- "$PWD/tests/clean_room.sh" --inside "$root" bash -euc '
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends python3-venv >/tmp/packages.log 2>&1 ||
      { cat /tmp/packages.log; exit 1; }
    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install -q --no-index /packages/*.whl
    cp -r /tmp/venv/lib/python3*/site-packages/weft/native/share/doc/weft/examples "/tmp/Räder hier"
    cd "/tmp/Räder hier"
    /tmp/venv/bin/weft run quickstart.lua --steps 5
    /tmp/venv/bin/python -c "import weft; print(weft.check(\"quickstart.lua\"))"
    apt-get purge -y -q --auto-remove python3-venv >/tmp/packages.log 2>&1'
}
say "Debian packages"
packages
if ! $short; then
  say "the wheel"
  wheel
fi
if ! $sources; then
  say "the packages work in a bare root"
  exit
fi

if $short && command -v ccache >/dev/null && mkdir -p "$(ccache --get-config cache_dir)" 2>/dev/null; then
  say "the compiler's cache of this machine"
  unshare --mount --propagation private -- "$PWD/tests/clean_room.sh" --inside "$root" bash -euc '
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends ccache >/tmp/ccache.log 2>&1 || { cat /tmp/ccache.log; exit 1; }'
fi
for command in "run plans/quickstart.lua ${steps[*]}" "test ${suites[*]}"; do
  say "./dev $command"
  # shellcheck disable=SC2086 # words
  unshare --mount --propagation private -- "$PWD/tests/clean_room.sh" --inside "$root" \
    ./dev $command
done
say "all of it works in a bare root"
