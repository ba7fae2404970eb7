# What the tests of the kits have in common: where things are, and how a test ends. To be sourced.
# shellcheck shell=bash
kits_here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
workspace=$(cd "$kits_here/../.." && pwd)
kits=$workspace/tuning/kits
# Root file systems and tools that take a minute to make, outside of the checkout.
cache=${STAG_KITS_DIR:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/stag-kits}

say() { printf 'kits %4ds  %s\n' "$SECONDS" "$*"; }
wrong() { printf 'kits: %s\n' "$*" >&2; exit 1; }
skip() { echo "skipped: $*"; exit 0; }

# The newer of the commands that are built here, or what STAG names.
find_stag() {
  local release=$workspace/target/release/stag debug=$workspace/target/debug/stag
  stag=${STAG:-}
  if [ -z "$stag" ]; then
    stag=$release
    [ -x "$release" ] || stag=$debug
    if [ -x "$release" ] && [ "$debug" -nt "$release" ]; then stag=$debug; fi
  fi
  [ -x "$stag" ] || skip "$1: stag is not built (fix: cargo build --release -p stag)"
  stag=$(realpath "$stag")
}

need_root() { [ "$(id -u)" = 0 ] || skip "$1: needs root (fix: run it as root)"; }

# Installs packages of Debian that have to be there: need_packages WHAT COMMAND PACKAGE…
need_packages() {
  local what=$1 command=$2
  shift 2
  command -v "$command" >/dev/null && return
  [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || skip "$what: $command is missing (fix: apt-get install $*)"
  { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } >/dev/null 2>&1 || true
  command -v "$command" >/dev/null || skip "$what: $command cannot be installed (fix: apt-get install $*)"
}

# A Debian 12 with systemd, as `base`; made once and kept.
make_base() {
  base=$cache/bookworm
  [ -e "$base/.ready" ] && return
  need_packages "$1" debootstrap debootstrap
  mkdir -p "$cache"
  local making
  making=$(mktemp -d "$cache/making.XXXXXX")
  say "makes a Debian 12 at $base"
  debootstrap --variant=minbase --include=systemd,systemd-sysv,procps,python3,python3-apt bookworm "$making" >"$cache/debootstrap.log" 2>&1 ||
    { rm -rf "$making"; skip "$1: debootstrap cannot make a Debian here (see $cache/debootstrap.log)"; }
  rm -rf "$making"/var/cache/apt/archives/*.deb
  chmod 755 "$making"
  touch "$making/.ready"
  rm -rf "$base"
  mv "$making" "$base"
}

# Boots `root` in namespaces of its own, without a network but loopback; `inside` runs a command there.
start_container() { # options of systemd-nspawn
  SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 systemd-nspawn --quiet --keep-unit --register=no --private-network --directory "$root" --boot \
    --console=pipe "$@" </dev/null >"$work/console" 2>&1 &
  nspawn=$!
  for _ in $(seq 300); do
    # The first process of the container is a child of nspawn.
    leader=$(pgrep -P "$nspawn" -x systemd || pgrep -P "$nspawn" || true)
    if [ -n "$leader" ] && state=$(inside systemctl is-system-running 2>/dev/null || true) && [[ $state =~ running|degraded ]]; then return; fi
    kill -0 "$nspawn" 2>/dev/null || break
    sleep 0.1
  done
  skip "systemd cannot be booted in a container here: $(tail -1 "$work/console")"
}

inside() { nsenter --target "$leader" --all --wdns=/ env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TERM=dumb "$@"; }
journal() { inside journalctl --unit stag --no-pager --lines 30 >&2 || true; }

stop_container() {
  [ -n "${leader:-}" ] || return 0
  kill -s RTMIN+4 "$leader" 2>/dev/null || true
  for _ in $(seq 100); do kill -0 "$nspawn" 2>/dev/null || break; sleep 0.1; done
  kill -KILL "$leader" 2>/dev/null || true
  wait "$nspawn" 2>/dev/null || true
}

# A Python with the packages named, as `python`; made once and kept.
make_python() {
  local what=$1
  shift
  python=$cache/python/bin
  local missing=''
  for package in "$@"; do [ -d "$(echo "$cache"/python/lib/python3*/site-packages/"${package//-/_}")" ] || missing=yes; done
  [ -n "$missing" ] || return 0
  command -v python3 >/dev/null || skip "$what: python3 is missing (fix: apt-get install python3-venv)"
  mkdir -p "$cache"
  { [ -x "$python/pip" ] || python3 -m venv "$cache/python"; } >/dev/null 2>&1 && "$python/pip" install --quiet "$@" >"$cache/pip.log" 2>&1 ||
    skip "$what: $* cannot be installed (see $cache/pip.log)"
}
