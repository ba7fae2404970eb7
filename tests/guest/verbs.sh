#!/bin/bash
# Runs inside the guest, as root; on the host use `verbs`. Prints one line for each check, as first-light.sh does.
set -uo pipefail
export LC_ALL=C
# shellcheck source=/dev/null
. /host/verbs.env

HERE=10.0.2.15
passed=0 failed=0 skipped=0
ok() { echo "ok $1"; passed=$((passed + 1)); }
not_ok() { echo "not ok $1: $2"; failed=$((failed + 1)); }
skip() { echo "skip $1: $2"; skipped=$((skipped + 1)); }

# device TYPE: makes the software device of that type, and no other, run over eth0.
device() {
  local module=$1 name
  [ "$module" = rxe ] && module=rdma_rxe
  for name in rxe siw; do
    [ ! -e "/sys/class/infiniband/${name}0" ] || [ "$name" = "$1" ] || rdma link delete "${name}0"
  done
  modprobe -a "$module" rdma_ucm ib_uverbs rpcrdma || return 1
  [ -e "/sys/class/infiniband/${1}0" ] || rdma link add "${1}0" type "$1" netdev eth0
}

# The mode of the servers that a part starts, and what the part's checks and servers are called: NAME of its first mode, NAME-privileged.
SERVER_MODE=unprivileged NAME=''

# The generic suite: its cases become checks.
part_conformance() {
  local line name why='' apart=()
  device rxe || { not_ok "$NAME/device" "there is no rxe"; return; }
  [ "$SERVER_MODE" = unprivileged ] || apart=(STAG_RDMA_APART=yes)
  env STAG_RDMA_ADDRESS="$HERE" "${apart[@]}" timeout 900 /host/conformance --test-threads=1 --nocapture >"/host/$NAME.log" 2>&1
  while read -r line; do
    case $line in
      "test result"*) ;;
      test\ *) name=${line#test } name=${name%% *} why=''
        [[ $line == *"skipped: "* ]] && why=${line##*skipped: "$name": } ;;
    esac
    case $line in
      "skipped: "*) why=${line#skipped: "$name": } ;;
    esac
    case $line in
      ok | *"... ok") if [ -z "$why" ]; then ok "$NAME/$name"; else skip "$NAME/$name" "$why"; fi ;;
      FAILED | *"... FAILED") not_ok "$NAME/$name" "see the log" ;;
    esac
  done < <(tr -d '\r' <"/host/$NAME.log")
  grep -q '^test result: ok' "/host/$NAME.log" || { tail -40 "/host/$NAME.log"; not_ok "$NAME/result" "the suite failed"; }
}

# What first-light.sh checks here, unless the host says otherwise: every kind of chunk, both ways, and what depends on their edges.
CHECKS_SERVE="list attributes_in_listing file_of_0 file_of_1023 file_of_1024 file_of_4095 file_of_4096 file_of_4097 file_of_65537 file_of_3000001
  direct_write direct_read direct_and_buffered append sparse rename symlink truncate copy_tree names unlinked_while_open stale_handle
  parallel_files random_direct remount nconnect"
CHECKS_SIW="list file_of_1024 file_of_4097 file_of_65537 file_of_3000001 direct_write direct_read rename symlink random_direct"

SERVER_PID=''
# start_server NAME [option…]: serves /srv/NAME on the device that is there, in SERVER_MODE.
start_server() {
  local name=$1 entry versions=() squash=()
  shift
  [ "$SERVER_MODE" = unprivileged ] || squash=(--squash none)
  ! grep -q '^VERSION=4' /host/settings.env || versions=(--nfs "3,4")
  mkdir -p "/srv/$name/many" /srv/readonly "/srv/state-$name"
  while read -r entry; do printf %s "$entry" >"/srv/$name/many/$entry"; done < <(/host/first-light.sh --names 2000)
  printf content >/srv/readonly/file
  /host/stag serve "/srv/$name" /srv/readonly:ro --mode "$SERVER_MODE" --insecure --listen "rdma://$HERE:20049" --tcp "$HERE:2049" \
    --clients "$HERE/32" --state-dir "/srv/state-$name" --stats "/host/$name.json" "${squash[@]}" "${versions[@]}" "$@" >"/host/$name.log" 2>&1 </dev/null &
  SERVER_PID=$!
  for _ in $(seq 200); do
    grep -q '^END' "/host/$name.log" 2>/dev/null && return
    kill -0 "$SERVER_PID" 2>/dev/null || break
    sleep 0.1
  done
  not_ok "$name/server" "$(tail -3 "/host/$name.log" | tr '\n' '|')"
  return 1
}

# stop_server NAME: the server ends in order, with 0.
stop_server() {
  local code=0
  kill -TERM "$SERVER_PID"
  for _ in $(seq 200); do kill -0 "$SERVER_PID" 2>/dev/null || break; sleep 0.1; done
  kill -KILL "$SERVER_PID" 2>/dev/null && code=hangs
  [ "$code" = hangs ] || { wait "$SERVER_PID"; code=$?; }
  if [ "$code" = 0 ]; then ok "$1/server_ends"; else not_ok "$1/server_ends" "its exit code is $code: $(tail -3 "/host/$1.log" | tr '\n' '|')"; fi
}

# count NAME COUNTER: the largest number that follows COUNTER in the server's counters, thus the total of all shards.
count() {
  tr -d '[:space:]' <"/host/$1.json" | { grep -o "\"$2\":[0-9]*" || true; } | awk -F: '$NF > most { most = $NF } END { print most + 0 }'
}

# shards_of NAME: the connections of each shard, and of all.
shards_of() { tr -d '[:space:]' <"/host/$1.json" | grep -o '"connections":{"fabric":[0-9]*' | cut -d: -f3 | tr '\n' ' '; }

# mount_and_check NAME TYPE CHECKS: the kernel's client on the device of that type, and the list's checks.
mount_and_check() {
  local name=$1 line log=/tmp/$1.log
  printf '%s\n' SERVER=stag "SERVER_ADDRESS=$HERE" RDMA_PORT=20049 TCP_PORT=2049 "EXPORT=/$name" READONLY_EXPORT=/readonly \
    "BACKING=/srv/$name" TRANSPORTS=rdma "RDMA_DEVICE=$2" REMOUNTS=3 "ONLY='$(echo $3)'" >/host/first-light.env
  cat /host/settings.env >>/host/first-light.env
  /host/first-light.sh 2>&1 | tee "$log"
  while read -r line; do
    case $line in
      "ok "*) passed=$((passed + 1)) ;;
      "not ok "*) failed=$((failed + 1)) ;;
      "skip "*) skipped=$((skipped + 1)) ;;
    esac
  done < <(grep -E '^(ok|not ok|skip) ' "$log")
}

part_serve() {
  local line needed chunks invalidations shards
  device rxe || { not_ok "$NAME/device" "there is no rxe"; return; }
  start_server "$NAME" --cores 2 || return
  mount_and_check "$NAME" rxe "$CHECKS_SERVE"
  stop_server "$NAME"
  # One shard has the listener, and both have connections.
  read -r -a shards < <(shards_of "$NAME")
  echo "$NAME: connections by shard and in all: ${shards[*]}"
  if [ "${shards[0]:-0}" -gt 0 ] && [ "${shards[1]:-0}" -gt 0 ]; then ok "$NAME/two_cores"; else not_ok "$NAME/two_cores" "${shards[*]}"; fi
  invalidations=$(count "$NAME" remote_invalidations)
  if [ "$invalidations" -gt 0 ]; then ok "$NAME/remote_invalidations"; else not_ok "$NAME/remote_invalidations" "there were none"; fi
  # Of the largest mount: the kernel's client had to invalidate fewer keys by itself than it had calls with chunks.
  line=$(grep '^XPRT ' "/tmp/$NAME.log" | head -1)
  needed=$(sed -n 's/.* local_inv_needed=\([0-9]*\).*/\1/p' <<<"$line")
  chunks=$(sed -n 's/.* read_chunks=\([0-9]*\) write_chunks=\([0-9]*\) reply_chunks=\([0-9]*\).*/\1 \2 \3/p' <<<"$line" | awk '{ print $1 + $2 + $3 }')
  echo "$NAME: our remote invalidations $invalidations; at the client $chunks chunks, local_inv_needed $needed"
  if [ "${needed:-x}" != x ] && [ "${chunks:-0}" -gt 0 ] && [ "$needed" -lt "$chunks" ]; then
    ok "$NAME/local_invalidations"
  else
    not_ok "$NAME/local_invalidations" "local_inv_needed=${needed:-?} of ${chunks:-?} chunks"
  fi
}

part_siw() {
  device siw || { not_ok "$NAME/device" "there is no siw"; return; }
  ulimit -l unlimited # siw counts what root locks too
  start_server "$NAME" || return
  mount_and_check "$NAME" siw "$CHECKS_SIW"
  stop_server "$NAME"
  if [ "$(count "$NAME" remote_invalidations)" = 0 ]; then ok "$NAME/no_invalidations"; else not_ok "$NAME/no_invalidations" "a device without windows sent some"; fi
}

# `stag probe` meets itself on the device.
part_probe() {
  local why
  device rxe || { not_ok probe/device "there is no rxe"; return; }
  if why=$(timeout 60 /host/stag probe rdma 2>&1); then ok probe/rxe; else not_ok probe/rxe "$(tail -3 <<<"$why" | tr '\n' '|')"; fi
  device siw || { not_ok probe/device "there is no siw"; return; }
  ulimit -l unlimited
  if why=$(timeout 60 /host/stag probe rdma 2>&1); then ok probe/siw; else not_ok probe/siw "$(tail -3 <<<"$why" | tr '\n' '|')"; fi
}

# Our client lends memory to the kernel's server: by windows on the data path, and on siw, which has none, by regions for one use.
part_call() { call_over rxe call; }
part_call-siw() { ulimit -l unlimited; call_over siw call-siw; }

# call_over TYPE NAME: on the device of that type; checks have that name.
call_over() {
  local why name=$2
  device "$1" || { not_ok "$name/device" "there is no $1"; return; }
  pgrep -x rpcbind >/dev/null || rpcbind
  # In a shell of its own, because its parameters would be those of the next list.
  # shellcheck source=tests/guest/first-light.sh
  if ! (. /host/first-light.sh && ENTRIES=50 && start_knfsd) >/tmp/output 2>&1; then not_ok "$name/knfsd" "$(tail -3 /tmp/output | tr '\n' '|')"; return; fi
  local url="rdma://$HERE:20049/srv/export"
  for size in 0 1 1000 65537 3000001; do head -c "$size" /dev/urandom >"/tmp/put-$size"; done
  for size in 0 1 1000 65537 3000001; do
    if why=$(timeout 60 /host/stag call "$url/put-$size?mountport=20048" put "/tmp/put-$size" 2>&1) &&
      cmp "/tmp/put-$size" "/srv/export/put-$size"; then ok "$name/put_$size"; else not_ok "$name/put_$size" "${why:0:300}"; continue; fi
    if why=$(timeout 60 /host/stag call "$url/put-$size?mountport=20048" get "/tmp/got-$size" 2>&1) &&
      cmp "/tmp/put-$size" "/tmp/got-$size"; then ok "$name/get_$size"; else not_ok "$name/get_$size" "${why:0:300}"; fi
  done
  if why=$(timeout 60 /host/stag call "$url/many?mountport=20048" ls 2>&1) && [ "$(grep -c entry- <<<"$why")" -ge 50 ]; then
    ok "$name/ls"
  else
    not_ok "$name/ls" "${why:0:300}"
  fi
  # Every procedure, with what travels in chunks both ways.
  if why=$(timeout 240 /host/stag check "$url?mountport=20048" --entries 50 2>&1); then
    ok "$name/check"
    # What a server may do one way or another.
    grep '^        ' <<<"$why" | sed "s|^ *|$name/check: |"
  else
    not_ok "$name/check" "$(grep -E '^(FAILED|stag:)' <<<"$why" | head -3 | tr '\n' '|')"
  fi
  # The next device has a server of its own.
  rpc.nfsd 0
  pkill -x rpc.mountd
  umount /proc/fs/nfsd
}

# `stag accept` with both ends here: what fails is what rxe cannot do, and each rule that this breaks is named.
ACCEPT_FAILS="memory::a_read_that_breaks_a_rule_fails
memory::a_write_behind_its_neighbours_keeps_to_its_window
memory::a_write_that_breaks_a_rule_changes_nothing
memory::keys_that_are_not_the_peers_cannot_be_invalidated"
part_accept() {
  local server code=0 steps
  device rxe || { not_ok accept/device "there is no rxe"; return; }
  /host/stag accept serve "rdma://$HERE:20051" --clients "$HERE/32" >/tmp/accept.out 2>/tmp/accept.err &
  server=$!
  for _ in $(seq 100); do grep -q ^END /tmp/accept.out && break; sleep 0.2; done
  timeout 900 /host/stag accept "rdma://$HERE" --report /tmp/accept.json --connects 100 --seconds 0.3 >/tmp/accept.log 2>&1 || code=$?
  kill "$server"
  cat /tmp/accept.log
  if [ -s /tmp/accept.json ]; then ok accept/report; else not_ok accept/report "$(tail -3 /tmp/accept.log /tmp/accept.err | tr '\n' '|')"; return; fi
  steps=$(python3 - <<'END'
import json
report = json.load(open("/tmp/accept.json"))
failed = {step["name"] for group in report["groups"] for step in group["steps"] if step["verdict"] == "failed"}
print("\n".join(sorted(failed)))
END
  )
  if [ "$steps" = "$ACCEPT_FAILS" ] && [ "$code" = 1 ]; then ok accept/steps; else not_ok accept/steps "exit code $code; failed: ${steps//$'\n'/, }"; fi
  if grep -q '^  failed   5042-18 ' /tmp/accept.txt && grep -q '^  failed   5042-9 ' /tmp/accept.txt; then
    ok accept/rules
  else
    not_ok accept/rules "the page does not name the rules that rxe breaks"
  fi
}

# descriptors PID, pinned PID, exported: what a process could leak with each device.
descriptors() { ls "/proc/$1/fd" | wc -l; }
pinned() { awk '/^VmPin/ { print $2 }' "/proc/$1/status"; }
# each_of COMMAND PID…: its number for each process. has_as_much COMMAND NUMBERS PID…: they are these.
each_of() {
  local command=$1 pid
  shift
  for pid in "$@"; do "$command" "$pid"; done | xargs
}
has_as_much() { [ "$(each_of "$1" "${@:3}")" = "$2" ]; }
# within SECONDS COMMAND…: waits until it succeeds.
within() {
  local until=$((SECONDS + $1))
  shift
  until "$@"; do [ $SECONDS -lt "$until" ] || return 1; sleep 0.1; done
}
is_ready() { (exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET /ready HTTP/1.0\r\n\r\n' >&3 && cat <&3) 2>&1 | tr -d '\r' >/tmp/ready; grep -q '^ready$' /tmp/ready; }
is_not_ready() { ! is_ready "$1"; }

# A device is deleted while two servers and a caller have it open: the kernel waits until all have closed it. When it is there again, the
# caller's calls are answered again, and no process has more descriptors or locked memory than before.
CYCLES=${CYCLES:-10}
part_removal() {
  local cycle began took longest=0 pids fds_before pins_before bench code
  device rxe || { not_ok "$NAME/device" "there is no rxe"; return; }
  start_server "$NAME" --cores 2 --metrics 127.0.0.1:9464 || return
  local first=$SERVER_PID
  /host/stag echo --listen "rdma://$HERE:20050" --clients "$HERE/32" >"/host/$NAME-echo.log" 2>&1 </dev/null &
  local echo=$!
  within 30 grep -q '^END' "/host/$NAME-echo.log" || { kill "$first"; not_ok "$NAME/echo" "$(tail -3 "/host/$NAME-echo.log" | tr '\n' '|')"; return; }
  /host/stag bench "rdma://$HERE:20050" --workload echo --size 512 --depth 4 --cores 1 --duration 600 --reconnect --timeout 60 \
    --json "/host/$NAME.json" >"/host/$NAME-bench.log" 2>&1 </dev/null &
  bench=$!
  # It reports each second once it is connected.
  within 60 grep -q 'calls/s' "/host/$NAME-bench.log" || { kill "$first" "$echo"; not_ok "$NAME/bench" "$(tail -3 "/host/$NAME-bench.log" | tr '\n' '|')"; return; }
  pids="$first $echo $bench"
  fds_before=$(each_of descriptors $pids)
  pins_before=$(each_of pinned $pids)
  for cycle in $(seq "$CYCLES"); do
    began=$(date +%s%N)
    timeout 120 rdma link delete rxe0 || { not_ok "$NAME/delete" "the kernel waited for two minutes in round $cycle"; break; }
    took=$((($(date +%s%N) - began) / 1000000))
    [ "$took" -le "$longest" ] || longest=$took
    within 10 is_not_ready 9464 || not_ok "$NAME/not_ready" "the server says that it is ready without its device: $(cat /tmp/ready)"
    rdma link add rxe0 type rxe netdev eth0
    within 30 is_ready 9464 || { not_ok "$NAME/ready" "round $cycle: $(cat /tmp/ready)"; break; }
    sleep 3
  done
  echo "$NAME: the longest of $CYCLES deletions took $longest ms"
  [ "$longest" -lt 10000 ] && [ "$cycle" = "$CYCLES" ] && ok "$NAME/delete"
  # Connections of a moment, as one that asks whether the server is ready, have descriptors, too.
  if within 30 has_as_much descriptors "$fds_before" $pids; then ok "$NAME/descriptors"; else
    not_ok "$NAME/descriptors" "$fds_before before, $(each_of descriptors $pids) now"; fi
  if within 30 has_as_much pinned "$pins_before" $pids; then ok "$NAME/locked_memory"; else
    not_ok "$NAME/locked_memory" "$pins_before KiB before, $(each_of pinned $pids) now"; fi
  kill -INT "$bench"
  wait "$bench"; code=$?
  tr -d '[:space:]' <"/host/$NAME.json" | grep -o '"outages":\[[^]]*\]' | tr '{' '\n' | sed "s/^/$NAME: /"
  if [ "$(grep -c '"lasted_s"' "/host/$NAME.json")" -ge "$CYCLES" ]; then ok "$NAME/calls_go_on"; else
    not_ok "$NAME/calls_go_on" "exit code $code: $(tail -3 "/host/$NAME-bench.log" | tr '\n' '|')"; fi
  kill -TERM "$echo"; wait "$echo"
  # The kernel's client on the device that came last.
  mount_and_check "$NAME" rxe "list file_of_65537 direct_write direct_read"
  stop_server "$NAME"
  if [ "$(count "$NAME" device_losses)" = $((2 * CYCLES)) ]; then ok "$NAME/counted"; else
    not_ok "$NAME/counted" "$(count "$NAME" device_losses) losses of two shards in $CYCLES rounds"; fi
}

# Two devices in one server, a core for each: a mount of each, then one mount over both, whose transports the kernel's client finds to
# lead to one server (session trunking).
OTHER=10.3.0.15
part_rails() {
  local at why transports shards
  device rxe || { not_ok "$NAME/device" "there is no rxe"; return; }
  if ! modprobe -a dummy nfsv3 nfsv4 || ! ip link add rail1 type dummy; then skip "$NAME/device" "this kernel has no dummy interface"; return; fi
  ip address add "$OTHER/24" dev rail1
  ip link set rail1 up
  rdma link add rxe1 type rxe netdev rail1 || { not_ok "$NAME/device" "no second rxe"; return; }
  start_server "$NAME" --listen "rdma://$OTHER:20049" --clients "$OTHER/32" --cores 2 --nfs 3,4 --metrics 127.0.0.1:9464 || return
  mkdir -p /mnt/one /mnt/other
  mount_rails() { timeout 60 mount -t nfs -o "rdma,port=20049,hard,$2" "$1:/$NAME" "$3" 2>&1; }
  for at in "$HERE" "$OTHER"; do
    for version in vers=4.2 vers=3,nolock,mountport=2049,mountproto=tcp,mountaddr=$HERE; do
      if why=$(mount_rails "$at" "$version" /mnt/one) && head -c 300000 /dev/urandom >/tmp/rail && cp /tmp/rail /mnt/one/rail &&
        sync /mnt/one/rail && cmp /tmp/rail "/srv/$NAME/rail"; then ok "$NAME/$at/${version%%,*}"; else not_ok "$NAME/$at/${version%%,*}" "${why:0:300}"; fi
      umount -f /mnt/one
    done
  done
  if why=$(mount_rails "$HERE" vers=4.2,max_connect=2 /mnt/one && mount_rails "$OTHER" vers=4.2,max_connect=2 /mnt/other); then
    for _ in $(seq 20); do head -c 300000 /dev/urandom >"/mnt/one/trunk$_"; done
    sync /mnt/one
    transports=$(grep -A30 'mounted on /mnt/one ' /proc/self/mountstats | grep -c 'xprt:.*rdma')
    if [ "$transports" = 2 ]; then ok "$NAME/transports"; else not_ok "$NAME/transports" "one mount has $transports transports"; fi
    for _ in $(seq 20); do cmp "/mnt/one/trunk$_" "/srv/$NAME/trunk$_" || not_ok "$NAME/trunk" "file $_ differs"; done
    # One device is gone, and the server is ready over the other one.
    timeout 120 rdma link delete rxe1 || not_ok "$NAME/delete" "the kernel waited for two minutes"
    if why=$(timeout 60 /host/stag probe rdma 2>&1); then ok "$NAME/one_is_left"; else not_ok "$NAME/one_is_left" "${why:0:300}"; fi
    if within 10 is_ready 9464; then not_ok "$NAME/status" "$(cat /tmp/ready)"; elif grep -q '^ready; shard' /tmp/ready; then ok "$NAME/status"; else
      not_ok "$NAME/status" "$(cat /tmp/ready)"; fi
    rdma link add rxe1 type rxe netdev rail1
    within 30 is_ready 9464 || not_ok "$NAME/back" "$(cat /tmp/ready)"
    # Linux moves no call from one transport to another: those over the device that was gone wait until it is there.
    if timeout 100 cp /tmp/rail /mnt/one/rail2 && timeout 60 sync /mnt/one/rail2 && cmp /tmp/rail "/srv/$NAME/rail2"; then ok "$NAME/goes_on"; else
      not_ok "$NAME/goes_on" "no answer after the device came back"; fi
    umount -f /mnt/other /mnt/one
  else
    not_ok "$NAME/trunk" "${why:0:300}"
  fi
  stop_server "$NAME"
  read -r -a shards < <(shards_of "$NAME")
  echo "$NAME: connections by shard and in all: ${shards[*]}"
  if [ "${shards[0]:-0}" -gt 0 ] && [ "${shards[1]:-0}" -gt 0 ]; then ok "$NAME/both"; else not_ok "$NAME/both" "${shards[*]}"; fi
  rdma link delete rxe1
  ip link delete rail1
}

for part in $PARTS; do
  NAME=${part%%:*} SERVER_MODE=unprivileged
  if [ "${part#*:}" = privileged ]; then NAME+=-privileged SERVER_MODE=privileged; fi
  begun=$SECONDS
  "part_${part%%:*}"
  echo "$NAME took $((SECONDS - begun)) s"
done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
