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
