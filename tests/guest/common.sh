#!/bin/bash
# What the drivers on the host, `run`, `survive` and others, share: the guest and the binary they need, ports, servers. To be sourced.
# shellcheck disable=SC2034 # what is set here is used where it is sourced
# Sets `here` and `workspace`; uses `server` (the command), `server_pids`, `work` (their directory), `keep`, `problems`.

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
workspace=$(cd "$here/../.." && pwd)
READY_SECONDS=20 # for a server to listen
STOP_SECONDS=20  # for a server to end after SIGTERM
SERVER_ADDRESS=127.0.0.1 # where servers listen
# What a server's JSON of counters looks like: patterns, in front of the number, of the JSON without white space. `%s` is the name.
PATTERN_OF_EVENTS='"%s":'
PATTERN_OF_PROCEDURES='"%s":{"calls":'
boot=$here/boot
keep='' work='' guest='' problems='' server=()
declare -A server_pids=() # by the server's name

usage() { sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2; }
skipped() { echo "skipped: $1"; exit 0; }
wrong() { echo "not ok guest: $1" >&2; exit 1; }

# The guest, with the kernel that GUEST_KERNEL names, is built here when it is missing. What this machine lacks for it is a reason to
# skip, a broken build is not.
need_guest() {
  local code=0 said
  "$here/build" --check || code=$?
  [ "$code" != 2 ] || exit 2 # GUEST_KERNEL names none, and it says so
  if [ "$code" = 0 ]; then
    command -v qemu-system-x86_64 >/dev/null || skipped "there is no qemu-system-x86_64 (apt install qemu-system-x86)"
    return
  fi
  [ "$(id -u)" = 0 ] || skipped "the guest is not built, and only root can build it (sudo tests/guest/build)"
  code=0
  exec 3>&1
  said=$("$here/build" 2>&1 >&3) || code=$?
  exec 3>&-
  [ "$code" = 2 ] && skipped "${said//$'\n'/; }"
  [ "$code" = 0 ] || wrong "the guest does not build: $said"
}

# need_uml: user-mode Linux, which is a package of Debian for amd64, and the rights to give it a network of its own. Says why not, and
# where that is so, ends. What it misses it installs, as root on Debian.
UML_PACKAGES="user-mode-linux kmod iproute2 python3 fio"
has_uml() { command -v linux.uml && command -v modprobe && command -v ip && command -v fio && [ -x /usr/bin/python3 ]; } >/dev/null
need_uml() {
  [ "$(id -u)" = 0 ] || skipped "a Linux kernel as a process needs root, for its network (sudo $0)"
  # shellcheck disable=SC2086
  if ! has_uml && command -v apt-get >/dev/null; then
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $UML_PACKAGES; } >/dev/null 2>&1 || true
  fi
  # This kernel's registers of a process have a size of their own, and Linux on a processor with AMX takes them in its size alone: the
  # first program ends with "ptrace set fp regs failed, errno = 14".
  if grep -qw amx_tile /proc/cpuinfo; then skipped "user-mode Linux runs no program on a processor with AMX (amx_tile in /proc/cpuinfo)"; fi
  has_uml || skipped "user-mode Linux or its tools are missing (Debian 12 on amd64: apt install $UML_PACKAGES)"
  unshare --net --mount true 2>/dev/null || skipped "this container makes no network and no mounts of its own (unshare --net --mount)"
  unshare --net ip tuntap add uml0 mode tap 2>/dev/null || skipped "this container makes no tap device (/dev/net/tun)"
}

# enter_network: begins the script again in a network namespace where the kernel of user-mode Linux is 10.9.9.2 and we are 10.9.9.1.
enter_network() {
  if [ -z "${STAG_OWN_NETWORK:-}" ]; then STAG_OWN_NETWORK=yes exec unshare --net "$0" "$@"; fi
  ip link set lo up
  ip tuntap add tap0 mode tap
  ip address add 10.9.9.1/24 dev tap0
  ip link set tap0 up
  SERVER_ADDRESS=10.9.9.1
  boot=$here/uml-boot
}

# Sets `server` to the workspace's own binary.
find_server() {
  local target=${CARGO_TARGET_DIR:-$workspace/target} candidate
  for candidate in "$target/release/stag" "$target/debug/stag"; do
    [ -x "$candidate" ] || continue
    if [ ${#server[@]} = 0 ] || [ "$candidate" -nt "${server[0]}" ]; then server=("$candidate"); fi
  done
  [ ${#server[@]} -gt 0 ] || { echo "cannot: there is no $target/{release,debug}/stag; fix: cargo build --release -p stag" >&2; exit 2; }
}

# Ports are looked up, not tried: a connection would count in the server's counters.
is_listening() { grep -q -i "^ *[0-9]*: [0-9A-F]*:$(printf '%04X' "$1") [0-9A-F:]* 0A " /proc/net/tcp; }

free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)); is_listening "$port"; do :; done
  echo "$port"
}

# take_ports: sets rdma_port and tcp_port to two that are free.
take_ports() {
  rdma_port=$(free_port)
  while tcp_port=$(free_port); [ "$tcp_port" = "$rdma_port" ]; do :; done
}

# launch NAME RDMA_PORT TCP_PORT [what to serve, options]…: starts a server and waits until it listens. Its log is NAME.log, its counters
# are NAME.json; what it keeps over restarts is in NAME.state.
launch() {
  local name=$1 rdma=$2 tcp=$3 deadline=$((SECONDS + READY_SECONDS)) ports=() state=()
  shift 3
  # A store in memory keeps nothing for a restart.
  if [[ " $* " != *" --memory "* ]]; then mkdir -p "$work/$name.state"; state=(--state-dir "$work/$name.state"); fi
  # Calls of the guest in QEMU come from sockets of the emulator, whose ports are above 1023.
  [[ " $* " == *" --memory "* ]] || [ "$boot" = "$here/uml-boot" ] || ports=(--insecure)
  "${server[@]}" serve "$@" "${ports[@]}" --listen "iwarp://$SERVER_ADDRESS:$rdma" --tcp "$SERVER_ADDRESS:$tcp" \
    "${state[@]}" --stats "$work/$name.json" >>"$work/$name.log" 2>&1 </dev/null &
  server_pids[$name]=$!
  until is_listening "$rdma" && is_listening "$tcp"; do
    kill -0 "${server_pids[$name]}" 2>/dev/null || { unset "server_pids[$name]"; wrong "$name ended at once: $(tail -3 "$work/$name.log")"; }
    [ "$SECONDS" -lt "$deadline" ] || wrong "$name does not listen on $rdma and $tcp after $READY_SECONDS s: $(tail -3 "$work/$name.log")"
    sleep 0.05
  done
}

# stop_server NAME: ends it as a user would and sets `problems` when it has died, hangs or ends with an error.
stop_server() {
  local name=$1 server_pid=${server_pids[$1]:-0} deadline=$((SECONDS + STOP_SECONDS)) code=0
  [ "$server_pid" != 0 ] || return 0
  kill -0 "$server_pid" 2>/dev/null || problems+="$name died during the test; "
  kill -TERM "$server_pid" 2>/dev/null || true
  while kill -0 "$server_pid" 2>/dev/null && [ "$SECONDS" -lt "$deadline" ]; do sleep 0.1; done
  if kill -KILL "$server_pid" 2>/dev/null; then problems+="$name did not end within $STOP_SECONDS s of SIGTERM; "; fi
  wait "$server_pid" 2>/dev/null || code=$?
  unset "server_pids[$name]"
  [ "$code" = 0 ] || problems+="$name's exit code is $code; "
}

# make_work: the directory of this run, which goes with it. /host in the guest is `host` in it.
make_work() {
  work=$(mktemp -d "${TMPDIR:-/tmp}/stag-guest-run.XXXXXX")
  trap leave EXIT
  trap 'exit 130' INT TERM
  mkdir "$work/host"
}

leave() {
  local code=$?
  trap - INT TERM
  [ -z "$guest" ] || { kill "$guest" && wait "$guest"; } 2>/dev/null || true
  [ ${#server_pids[@]} = 0 ] || kill -KILL "${server_pids[@]}" 2>/dev/null || true
  if [ -n "$work" ]; then
    if [ -n "$keep" ]; then echo "kept: $work"; else rm -rf "$work"; fi
  fi
  exit "$code"
}

# make_exports DIR: what first-light.sh expects to find, in DIR/export and DIR/readonly.
make_exports() {
  local name
  mkdir -p "$1/export/many" "$1/readonly"
  while read -r name; do printf %s "$name" >"$1/export/many/$name"; done < <("$here/first-light.sh" --names 2000)
  printf content >"$1/readonly/file"
}

# count_of SERVER PATTERN [NAME]: the largest of the numbers that follow it in the server's counters, thus the total of all shards.
count_of() {
  local before
  # shellcheck disable=SC2059 # the pattern is a format
  before=$(printf "$2" "${3:-}")
  tr -d '[:space:]' <"$work/$1.json" | { grep -o "${before}[0-9]*" || true; } |
    awk -F: '$NF > most { most = $NF } END { print most + 0 }'
}

# start_guest: runs host/run.sh there, keeps the console in console.log. Sets `guest`, the process to wait for.
start_guest() {
  "$boot" "$work/host" > >(tee "$work/console.log") &
  guest=$!
}

# await_guest: until it has ended; adds what its exit code means to `problems`.
await_guest() {
  local code=0
  wait "$guest" || code=$?
  guest=''
  case $code in
    0) ;;
    97) problems+="the guest never became ready; " ;;
    98) problems+="the guest did not come to its end; " ;;
    *) problems+="checks failed in the guest; " ;;
  esac
}

# conclude: what failed, one line for all, and the exit code. Shows the last words of the servers' logs that are named.
conclude() {
  local summary name
  summary=$(grep -E '^[0-9]+ passed, ' "$work/console.log" | tail -1) || true
  echo
  grep '^not ok' "$work/console.log" || true
  [ -n "$problems" ] || { echo "ok guest: ${summary:-no summary} in $SECONDS s"; exit 0; }
  for name in "$@"; do
    echo "the last words of $name:"
    tail -5 "$work/$name.log" | sed 's/^/    /'
  done
  wrong "${problems%; } (${summary:-no summary}, $SECONDS s)"
}
