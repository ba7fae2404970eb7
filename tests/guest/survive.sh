#!/bin/bash
# What is left after a bad night: killed servers, callers without rights, files in memory. Runs inside the guest, as root; on the host
# use `survive`, which does on request what only the host can: `ask` says how. Prints lines as first-light.sh does, whose helpers it uses.
set -uo pipefail
export LC_ALL=C
TRANSPORTS=rdma
# shellcheck source=/dev/null
. /host/survive.env # ports of the servers, PARTS, ROUNDS, LIST
# shellcheck source=tests/guest/first-light.sh
. /host/first-light.sh
TRANSPORT=rdma
COPY_MIB=64
COPY_TIMEOUT=240 # seconds, with the restart in it
ASK_TIMEOUT=600
CHECK_ENTRIES=1000 # of the large directory that `stag check` makes
CONNECTIONS=25 # of `stag call`, one after the other

# request NAME COMMAND…: hands a command of `survive` to the host, which writes NAME.done when it is done. A name is used once.
request() {
  local name=$1
  shift
  echo "$*" >"/host/talk/$name.new"
  mv "/host/talk/$name.new" "/host/talk/$name.asked"
}

# answer NAME: waits and prints what the host has to say.
answer() {
  local deadline=$((SECONDS + ASK_TIMEOUT))
  until [ -e "/host/talk/$1.done" ]; do
    [ "$SECONDS" -lt "$deadline" ] || { echo "not ok: the host does not answer $1"; return 1; }
    sleep 0.05
  done
  cat "/host/talk/$1.done"
}

ask() { request "$@"; answer "$1"; }

# aim PREFIX: the server that the next mounts go to.
aim() { local -n rdma=$1_RDMA_PORT tcp=$1_TCP_PORT; SERVER_ADDRESS=10.0.2.2 RDMA_PORT=$rdma TCP_PORT=$tcp MOUNT_PORT=$tcp; }

milliseconds() { echo $((${EPOCHREALTIME/./} / 1000)); }

# ---- Store files: a copy goes on where its server was killed.

copy_source() { timeout -k 5 "$COPY_TIMEOUT" bash -c 'cp /tmp/source "$1" && sync "$1"' copy "$1"; }

# One copy during which the server is killed. Prints what happened; returns 2 if the copy was over before.
killed_copy() {
  local round=$1 within_ms=$2 file=$MNT/copy-$1 begun killed why=''
  printf 'attempt %08d' "$round" | dd of=/tmp/source conv=notrunc status=none
  request "kill-$round" kill files "$within_ms" "export/copy-$round"
  begun=$(milliseconds)
  copy_source "$file" 2>/tmp/output || why="the copy failed: $(tail -1 /tmp/output); "
  begun=$(($(milliseconds) - begun))
  touch "/host/talk/kill-$round.over"
  killed=$(answer "kill-$round")
  echo 3 >/proc/sys/vm/drop_caches
  timeout -k 5 "$COPY_TIMEOUT" cmp "$file" /tmp/source 2>&1 || why+="the content differs; "
  rm -f "$file"
  echo "$killed, copied in $((begun / 1000)).$((begun % 1000 / 100)) s${why:+: $why}"
  [ -z "$why" ] || return 1
  [[ $killed != late* ]] || return 2
}

# calls_of PROCEDURE: the mount's calls, how often they were sent, and the octets of them and of their replies.
calls_of() {
  awk -v mount="$MNT" -v name="$1:" '$1 == "device" { mine = ($5 == mount) }
    mine && $1 == name { print name, $2, "sent", $3, "times,", $5, "octets out,", $6, "in" }' /proc/self/mountstats
}

part_kill() {
  local why within_ms done=0 attempt code said
  aim FILES
  if ! why=$(mount_export /export hard); then not_ok kill/mount "$why"; return; fi
  grep -q " $MNT nfs .*hard" /proc/mounts || not_ok kill/mount "it is not hard"
  head -c "${COPY_MIB}M" /dev/urandom >/tmp/source
  within_ms=$(milliseconds)
  copy_source "$MNT/copy-0" || not_ok kill/first_copy "it failed"
  within_ms=$(($(milliseconds) - within_ms))
  echo "a copy of $COPY_MIB MiB takes $within_ms ms when nothing is killed"
  for ((attempt = 1; attempt <= 2 * ROUNDS && done < ROUNDS; attempt++)); do
    said=$(killed_copy "$attempt" "$within_ms") && code=0 || code=$?
    case $code in
      0) done=$((done + 1)); ok "kill/copy_$done  $said" ;;
      2) echo "again: $said"; within_ms=$((within_ms * 3 / 4)) ;;
      *) done=$((done + 1)); not_ok "kill/copy_$done" "$said" ;;
    esac
  done
  [ "$done" = "$ROUNDS" ] || not_ok kill/rounds "$done of $ROUNDS: the copy was over before the kill too often"
  echo "XPRT kill $(xprt_counters)"
  echo "calls: $(calls_of READ); $(calls_of WRITE); $(calls_of COMMIT)"
  attempt=$(counter connect_count "$(xprt_counters)")
  if [ "$attempt" -gt "$ROUNDS" ]; then ok "kill/reconnected  $attempt connections"; else not_ok kill/reconnected "$attempt connections"; fi
  if why=$(unmount); then ok kill/unmount; else not_ok kill/unmount "$why"; fi
  rm -f /tmp/source
}

# ---- Privileged mode: the kernel of the server judges.

# same_table CALLER [as-is]: in the mount it may do what it may do in a directory of the server.
same_table() {
  local label=privileged/${why_label:-}$1 expected=/host/privileged/expected.$1 differences
  if ! timeout -k 5 "$CHECK_TIMEOUT" python3 /host/permission-table.py run "$MNT" "$@" >/tmp/table 2>/tmp/output; then
    not_ok "$label" "the table stopped after $(wc -l </tmp/table) lines: $(tail -1 /tmp/output)"
    return
  fi
  differences=$(diff "$expected" /tmp/table | grep -c '^>')
  if [ "$differences" = 0 ] && [ -s "$expected" ]; then
    ok "$label  $(wc -l </tmp/table) operations, $(grep -c 'EACCES$' /tmp/table) EACCES, $(grep -c 'EPERM$' /tmp/table) EPERM, as in the directory"
  else
    not_ok "$label" "$differences of $(wc -l </tmp/table) operations end otherwise (< in the directory, > over NFS)"
    diff "$expected" /tmp/table | grep '^[<>]' | head -40
  fi
}

owner_of() { stat -c %u:%g "$1"; }

root_is_squashed() {
  set -e
  echo content >"$MNT/of-root"
  mkdir "$MNT/directory-of-root"
  is "$(owner_of "$MNT/of-root") $(owner_of /host/privileged/squashed/of-root)" "65534:65534 65534:65534"
  is "$(owner_of /host/privileged/squashed/directory-of-root)" 65534:65534
  refuses "Operation not permitted" chown 1234 "$MNT/of-root"
  refuses "Permission denied" cat "$MNT/secret"
  refuses "Permission denied" touch "$MNT/closed/file"
}

root_stays_root() {
  set -e
  echo content >"$MNT/of-root"
  is "$(owner_of "$MNT/of-root") $(owner_of /host/privileged/unsquashed/of-root)" "0:0 0:0"
  chown 1234:5678 "$MNT/of-root"
  is "$(owner_of "$MNT/of-root") $(owner_of /host/privileged/unsquashed/of-root)" "1234:5678 1234:5678"
  is "$(cat "$MNT/secret")" secret
  touch "$MNT/closed/file"
  is "$(owner_of /host/privileged/unsquashed/closed/file)" 0:0
}

# judge NAME FUNCTION: in a process of its own, as its `set -e` ends it.
judge() {
  local why
  if why=$("$2" 2>&1); then ok "$1"; else not_ok "$1" "$(tail -3 <<<"$why" | tr '\n' '|')"; fi
}

part_privileged() {
  local why
  if [ ! -d /host/privileged ]; then skip privileged "the server must run as root, and the table needs python3 on the host"; return; fi
  aim SQUASHED
  if ! why=$(mount_export /squashed); then not_ok privileged/mount "$why"; return; fi
  judge privileged/root_is_squashed root_is_squashed
  same_table user
  same_table user_in_group
  same_table nobody as-is
  why=$(unmount) || not_ok privileged/unmount "$why"
  aim UNSQUASHED
  if ! why=$(mount_export /unsquashed); then not_ok privileged/mount_unsquashed "$why"; return; fi
  judge privileged/root_stays_root root_stays_root
  same_table root
  why=$(unmount) || not_ok privileged/unmount_unsquashed "$why"
  listen_to_kernel privileged
}

# ---- Store memory: the whole list, then everything is forgotten at once.

# list PART EXPORT BACKING CHECKS TRANSPORTS: the list is first-light.sh's own; its lines are counted from its summary.
list() {
  local line
  (
    export RDMA_PORT TCP_PORT MOUNT_PORT EXPORT=$2 READONLY_EXPORT='' BACKING=$3 ONLY=$4 TRANSPORTS=$5
    exec bash /host/first-light.sh
  ) | tee /tmp/list
  line=$(grep -E '^[0-9]+ passed, ' /tmp/list | tail -1)
  if [[ $line =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed,\ ([0-9]+)\ skipped ]]; then
    passed=$((passed + BASH_REMATCH[1])) failed=$((failed + BASH_REMATCH[2])) skipped=$((skipped + BASH_REMATCH[3]))
  else
    not_ok "$1/list" "it did not come to its end"
  fi
}

handles_are_stale() {
  timeout -k 5 200 python3 /host/stale-handles.py "$MNT/held" /host/talk/kill-memory.killed >/tmp/handles 2>&1 &
  local asking=$! code=0
  for _ in {1..200}; do grep -q holds /tmp/handles && break; sleep 0.2; done
  request kill-memory kill memory 0 none
  wait "$asking" || code=$?
  answer kill-memory
  cat /tmp/handles
  return "$code"
}

root_is_stale() { refuses "Stale file handle" timeout -k 5 60 ls "$MNT"; }

mount_again() {
  set -e
  unmount
  mount_export /scratch
  is "$(ls -A "$MNT/many" | wc -l)" "$ENTRIES"
  echo again >"$MNT/file"
  echo 3 >/proc/sys/vm/drop_caches
  is "$(cat "$MNT/file")" again
  unmount
}

part_memory() {
  local why
  aim MEMORY
  list memory /scratch other_mount "$LIST" "$LIST_TRANSPORTS"
  if ! why=$(mount_export /scratch noac); then not_ok memory/mount "$why"; return; fi
  mkdir "$MNT/held"
  if why=$(handles_are_stale); then ok "memory/handles_are_stale  $(tail -1 <<<"$why")"; else not_ok memory/handles_are_stale "${why//$'\n'/|}"; fi
  judge memory/root_is_stale root_is_stale
  judge memory/mount_again mount_again
  mountpoint -q "$MNT" && umount -f -l "$MNT"
}

# ---- A server without private data: 1,024 octets inline, and this client invalidates every key by itself.

part_plain() {
  aim PLAIN
  list plain /export /host/export "list contents_in_listing file_of_4096 file_of_65537 rename symlink random_direct" rdma
}

# ---- The host's `stag call`, `stag check` and `stag bench` against this kernel's server.

# Starts it once.
have_knfsd() {
  [ -z "${knfsd_started:-}" ] || return 0
  local ENTRIES=3
  knfsd_started=yes
  start_knfsd >/tmp/output 2>&1 || { not_ok "$1/knfsd" "$(tail -3 /tmp/output | tr '\n' '|')"; return 1; }
}

tree_sum() { (cd "$1" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -d' ' -f1); }

part_call() {
  local name said expected
  have_knfsd call || return
  said=$(ask call-connect connect "$CONNECTIONS" /srv/export)
  if [[ $said == *"not ok"* ]]; then not_ok call/connect "$(tail -3 <<<"$said" | tr '\n' '|')"; else ok "call/connect  $said"; fi
  for name in tcp iwarp; do
    mkdir "/srv/export/$name"
    said=$(ask "call-$name" call "$name" "/srv/export/$name")
    expected=${said##* }
    echo "$said"
    if [[ $said == *"not ok"* ]]; then
      not_ok "call/$name" "$(tail -2 <<<"$said" | tr '\n' '|')"
    elif [ "$(tree_sum "/srv/export/$name/tree")" != "$expected" ]; then
      not_ok "call/$name" "what arrived is not what was sent"
    else
      ok "call/$name"
    fi
    dmesg --read-clear | grep -i siw | head -5
  done
}

part_check() {
  local name said
  have_knfsd check || return
  for name in tcp iwarp; do
    said=$(ask "check-$name" check "$name" /srv/export "$CHECK_ENTRIES")
    if [[ $said == *"not ok"* ]]; then not_ok "check/$name" "${said//$'\n'/|}"; continue; fi
    echo "$said"
    # Lists of many users make long calls and long replies.
    if [ "$name" = iwarp ] && [[ $said == *" 0 long;"* ]]; then not_ok "check/$name" "no call was long"; continue; fi
    ok "check/$name"
  done
  # knfsd says by ERR_VERS that it speaks version 1, and the same connection goes on with that.
  said=$(ask check-version check iwarp /srv/export 20 --rdma-version 1-2)
  if [[ $said == *" 1 of 2; answered by ERR_VERS: 1"* && $said == *"connections lost: 0"* ]]; then
    ok "check/version  $(grep ERR_VERS <<<"$said")"
  else
    not_ok check/version "${said//$'\n'/|}"
  fi
}

part_bench() {
  local name workload said
  have_knfsd bench || return
  for name in tcp iwarp; do
    for workload in null nfs3:getattr nfs3:lookup nfs3:read nfs3:write nfs3:mixed nfs3:meta; do
      said=$(ask "bench-$name-${workload#*:}" bench "$name" /srv/export "$workload")
      if [[ $said == *"not ok"* ]]; then not_ok "bench/$name/$workload" "${said//$'\n'/|}"; else ok "bench/$name/$workload  $said"; fi
    done
  done
  said=$(find /srv/export -name 'stag-bench-*' | head -3)
  if [ -z "$said" ]; then ok bench/left_nothing; else not_ok bench/left_nothing "${said//$'\n'/|}"; fi
}

main() {
  local begun=$SECONDS part
  set_up
  for part in $PARTS; do
    dmesg --clear
    "part_$part"
    dmesg | grep -i -E 'BUG|WARNING|Oops|hung|blocked for|siw|not responding' | head -20 | sed "s/^/KERNEL $part: /"
    echo "part $part ended after $((SECONDS - begun)) s"
  done
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

main
