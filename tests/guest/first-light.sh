#!/bin/bash
# First light: the list of what an NFS server must do for an unmodified Linux kernel client, over RDMA (siw) and over TCP.
# Runs inside the guest, as root; on the host use `run`. Every check prints one line,
#     ok TRANSPORT/NAME  SECONDS
#     not ok TRANSPORT/NAME: WHY
#     skip TRANSPORT/NAME: WHY
# every mount prints what its transports did (`XPRT TRANSPORT/MOUNT key=value …`, from /proc/self/mountstats), the last line is
# `N passed, N failed, N skipped`. Exit code 0 if none failed.
#
# Usage: first-light.sh                 everything
#        first-light.sh --names COUNT   prints the names of the entries that the export's directory `many` holds
#        first-light.sh --check NAME    (used by itself) one check, in a process of its own that can be timed out
# Another script may source it for its helpers.
set -uo pipefail
export LC_ALL=C

# ---- Parameters: /host/first-light.env sets what differs from the values here. A check inherits them from the process that runs it.
set -a
# shellcheck source=/dev/null
[ "${1:-}" = --check ] || [ ! -f /host/first-light.env ] || . /host/first-light.env
: "${SERVER:=stag}"              # stag: outside, reached through the settings below; knfsd: the guest's own kernel server, set up here
: "${SERVER_ADDRESS:=10.0.2.2}"  # the host's loopback, seen from the guest
: "${RDMA_PORT:=20049}"
: "${TCP_PORT:=2049}"
: "${MOUNT_PORT:=$TCP_PORT}"     # where MOUNT is answered over TCP
: "${EXPORT:=/export}"
: "${READONLY_EXPORT:=}"         # empty: the check of it is skipped; holds a file `file` with the content "content"
: "${BACKING:=/host/export}"     # the export's directory, reached past the server: what it stored is compared there; other_mount:
                                 # there is none, a second mount over the other transport, without caches, stands for it
: "${OTHER_TCP_PORT:=}"          # where another server of the same files listens: then the second mount is of that one, over TCP
: "${TRANSPORTS:=rdma tcp}"
: "${VERSION:=3}"                # of NFS: 3, 4.1 or 4.2
: "${MOUNT_OPTIONS:=}"           # further options of every mount, e.g. sec=krb5p
: "${ONLY:=}"                    # names of checks, separated by spaces; empty: all
: "${ENTRIES:=2000}"             # entries in `many`, each named and filled as `--names` says
: "${RDMA_DEVICE:=siw}"          # the kernel's software device under RDMA: siw (iWARP) or rxe (RoCE)
: "${REMOUNTS:=20}"
: "${RANDOM_OPERATIONS:=400}"    # of each random-operations check
: "${SEED:=1}"
: "${CHECK_TIMEOUT:=120}"        # seconds for one check
TRANSPORT=${TRANSPORT:-}         # the one under test
set +a

FILE_SIZES="0 1 3 4 1000 1023 1024 1025 3999 4095 4096 4097 65535 65536 65537 600001 1048576 3000001"
# shellcheck disable=SC2086
CHECKS="list attributes_in_listing contents_in_listing
  $(printf 'file_of_%s ' $FILE_SIZES)
  direct_write direct_read direct_and_buffered append sparse exclusive_create rename link symlink chmod times truncate directories
  fifo copy_tree remove_large_directory names name_too_long unlinked_while_open stale_handle statfs
  parallel_files parallel_one_file random_buffered random_direct fio_verify"

MNT=/mnt
POOL=/tmp/pool                # random octets: what every expected content is cut from
HERE_DIR=$(cd "$(dirname "$0")" && pwd)

# ---- Helpers of the checks. A check runs with `set -e` in an empty directory of the mount; THERE is the same in the backing directory.

# The content of size $1, different for each size.
octets() { head -c "$(($1 + $1 % 1009))" "$POOL" | tail -c "$1"; }

drop_caches() { sync -f .; echo 3 >/proc/sys/vm/drop_caches; }

is() { [ "$1" = "$2" ] || { echo "got '${1:0:200}', expected '${2:0:200}'"; return 1; }; }

# Two files, or standard input as -, hold the same; says where they differ.
same() { cmp "$1" "$2" 2>&1; }

# refuses TEXT COMMAND…: the command fails and says TEXT.
refuses() {
  local text=$1 said
  shift
  if said=$("$@" 2>&1); then echo "worked, should be refused with '$text': $*"; return 1; fi
  [[ $said == *"$text"* ]] || { echo "refused with '$said', expected '$text': $*"; return 1; }
}

gone() { if [ -e "$1" ] || [ -L "$1" ]; then echo "still there: $1"; return 1; fi; }

entry_names() {
  local i pad=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
  for ((i = 1; i <= $1; i++)); do printf 'entry-%05d-%s\n' "$i" "${pad:0:i % 97}"; done
}

# ---- The checks.

check_list() {
  entry_names "$ENTRIES" | sort >/tmp/names
  ls -1 "$MNT/many" >/tmp/listed
  same /tmp/listed /tmp/names
  drop_caches
  # shellcheck disable=SC2012
  ls -1fA "$MNT/many" | sort >/tmp/listed
  same /tmp/listed /tmp/names
}

# READDIRPLUS gives sizes: every entry is as long as its name.
check_attributes_in_listing() {
  drop_caches
  find "$MNT/many" -type f -printf '%s %f\n' | awk '$1 != length($2) { print "wrong size: " $0; bad = 1 } END { exit bad }'
  is "$(find "$MNT/many" -type f -size +0 -links 1 | wc -l)" "$ENTRIES"
}

check_contents_in_listing() {
  local name content
  for name in $(entry_names "$ENTRIES" | awk 'NR % 10 == 0'); do
    read -r content <"$MNT/many/$name" || true # there is no newline
    is "$content" "$name"
  done
}

check_file() {
  octets "$1" >/tmp/expected
  cp /tmp/expected file
  drop_caches
  is "$(stat -c %s file)" "$1"
  is "$(sha256sum <file)" "$(sha256sum </tmp/expected)"
  is "$(sha256sum <"$THERE/file")" "$(sha256sum </tmp/expected)"
}

# Every block is written directly: the lengths are multiples of the block size (dd writes a short last block through the cache).
check_direct_write() {
  local block
  for block in 1 3 511 512 1025 4096 4097 70001 262144 1048576; do
    octets $((block * (block > 100000 ? 3 : 9))) >/tmp/expected
    dd if=/tmp/expected of=file bs="$block" oflag=direct status=none
    same "$THERE/file" /tmp/expected || { echo "block size $block"; false; }
    rm file
  done
}

check_direct_read() {
  local block
  octets 300007 >/tmp/expected
  cp /tmp/expected file
  drop_caches
  for block in 3001 4096 4097 65537 70001 300007 1048576; do
    dd if=file bs="$block" iflag=direct status=none | same - /tmp/expected || { echo "block size $block"; false; }
  done
  for block in 1 2 3 5; do # a few octets at odd places, the end of the file among them
    dd if=file bs=1 skip=$((300007 - block)) count=9 iflag=direct status=none >/tmp/got
    tail -c "$block" /tmp/expected | same - /tmp/got
  done
}

check_direct_and_buffered() {
  octets 500003 >/tmp/expected
  cp /tmp/expected file
  dd if=file bs=70001 iflag=direct status=none | same - /tmp/expected
  octets 7 | dd of=file bs=7 seek=1000 oflag=direct conv=notrunc status=none
  octets 7 | dd of=/tmp/expected bs=7 seek=1000 conv=notrunc status=none
  same file /tmp/expected
}

check_append() {
  local i
  for i in 1 2 3 4097 65537 5; do octets "$i" >>file; octets "$i" >>/tmp/appended; done
  drop_caches
  same file /tmp/appended
}

# Offsets above 32 bits.
check_sparse() {
  local five_gib=5368709120
  octets 1000 | dd of=file bs=1000 seek="$five_gib" oflag=seek_bytes conv=notrunc status=none
  drop_caches
  is "$(stat -c %s file)" $((five_gib + 1000))
  dd if=file bs=1000 skip="$five_gib" iflag=skip_bytes status=none | same - <(octets 1000)
  dd if=file bs=4096 skip=1048575 count=2 status=none | same - <(head -c 8192 /dev/zero)
}

check_exclusive_create() {
  (umask 027; set -C; echo one >file)
  is "$(stat -c %a file)" 640
  refuses "cannot overwrite" bash -c 'set -C; echo two >file'
  is "$(cat file)" one
  is "$(stat -c %Y file)" "$(stat -c %Y "$THERE/file")" # the verifier of the creation does not stay in the times
}

check_rename() {
  local inode
  octets 5000 >a
  inode=$(stat -c %i a)
  mv a b
  gone a
  is "$(stat -c %i b)" "$inode"
  echo other >c
  mv -f b c
  gone b
  same c <(octets 5000)
  mkdir -p from/inner to
  mv c from/inner/d
  mv from/inner to/outer
  gone from/inner
  drop_caches
  same to/outer/d <(octets 5000)
  same "$THERE/to/outer/d" <(octets 5000)
  mkdir full && touch full/x
  refuses "not empty" mv -T to full
}

check_link() {
  octets 5000 >a
  mkdir d
  ln a d/b
  is "$(stat -c '%h %i' a)" "$(stat -c '%h %i' d/b)"
  is "$(stat -c %h a)" 2
  rm a
  drop_caches
  is "$(stat -c %h d/b)" 1
  same d/b <(octets 5000)
  refuses "File exists" ln d/b d/b
}

check_symlink() {
  local long n
  long=$(printf '%01024d' 0 | tr 0 x)
  for n in 1 2 3 4 5 60 128 500 1000 1015 1016 1017 1018 1019 1020 1021 1022 1023; do ln -s "${long:0:n}" "to-$n"; done
  drop_caches
  for n in 1 2 3 4 5 60 128 500 1000 1015 1016 1017 1018 1019 1020 1021 1022 1023; do
    is "$(readlink "to-$n")" "${long:0:n}"
    is "$(readlink "$THERE/to-$n")" "${long:0:n}"
  done
  echo content >target
  ln -s target follow
  is "$(cat follow)" content
  ln -s nothing dangling
  refuses "No such file" cat dangling
}

check_chmod() {
  local mode
  echo content >file
  for mode in 0 400 444 600 644 755 777 4755 2755; do
    chmod "$mode" file
    drop_caches
    is "$(stat -c %a file)" "$mode"
    is "$(stat -c %a "$THERE/file")" "$mode"
  done
  mkdir directory
  chmod 1777 directory
  is "$(stat -c %a "$THERE/directory")" 1777
}

check_times() {
  echo content >file
  touch -d '2001-02-03 04:05:06.123456789 UTC' file
  drop_caches
  is "$(stat -c '%X %Y' file)" "981173106 981173106"
  is "$(stat -c %Y "$THERE/file")" 981173106
  touch -a -d '2011-02-03 04:05:06 UTC' file
  is "$(stat -c '%X %Y' file)" "1296705906 981173106"
  touch file # the server's own time
  [ $(($(date +%s) - $(stat -c %Y "$THERE/file"))) -lt 1000000 ]
}

check_truncate() {
  octets 100000 >/tmp/whole
  cp /tmp/whole file
  truncate -s 5000 file
  drop_caches
  same file <(head -c 5000 /tmp/whole)
  truncate -s 200001 file
  drop_caches
  { head -c 5000 /tmp/whole; head -c 195001 /dev/zero; } >/tmp/expected
  same file /tmp/expected
  same "$THERE/file" /tmp/expected
  truncate -s 0 file
  is "$(stat -c %s "$THERE/file")" 0
  echo again >file
  is "$(cat "$THERE/file")" again
}

check_directories() {
  mkdir -p a/b/c
  refuses "not empty" rmdir a/b
  refuses "File exists" mkdir a
  echo content >a/file
  refuses "Not a directory" ls a/file/x
  refuses "Not a directory" rmdir a/file
  refuses "Is a directory" rm a
  refuses "No such file" cat a/nothing
  is "$(cd a/b/c && ls ../../..)" a
  rmdir a/b/c a/b
  gone a/b
  gone "$THERE/a/b"
}

check_fifo() {
  mkfifo pipe
  drop_caches
  is "$(stat -c %F pipe)" fifo
  (echo through >pipe) &
  is "$(cat pipe)" through
}

check_copy_tree() {
  local i directory
  mkdir -p /tmp/tree/{a,b/c,d/e/f}
  for i in 0 1 3 6 9; do
    for directory in . a b/c d/e/f; do octets $((i * i * 1777)) >"/tmp/tree/$directory/file $i"; done
  done
  ln -s ../a /tmp/tree/b/link
  cp -r /tmp/tree one
  cp -r one two
  drop_caches
  diff -r two /tmp/tree
  diff -r "$THERE/two" /tmp/tree
  rm -r one two
  gone one
  gone "$THERE/two"
}

check_remove_large_directory() {
  local i
  mkdir large
  for ((i = 0; i < 300; i++)); do echo "$i" >"large/$i"; done
  drop_caches
  is "$(find large -type f | wc -l)" 300
  rm -r large
  gone "$THERE/large"
}

check_names() {
  local name
  for name in ' ' '-dash' '...' 'é ü 中' 'back\slash' $'new\nline' "quote'\"" '*?' "$(printf '%0255d' 7)" "$(printf '%0252d' 7)"; do
    echo "$name" >"./$name"
    is "$(cat "$THERE/$name")" "$name"
    drop_caches
    is "$(cat "./$name")" "$name"
  done
  is "$(find . -mindepth 1 -print0 | tr -dc '\0' | wc -c)" 10
}

# The client asks the server how long a name may be (PATHCONF) and refuses by itself what is longer.
check_name_too_long() {
  local long
  long=$(printf '%0256d' 7)
  refuses "File name too long" touch "$long"
  refuses "File name too long" mkdir "$long"
  is "$(getconf NAME_MAX . 2>/dev/null || echo 255)" 255
}

# The client renames the file to .nfs… and removes it at the last close.
check_unlinked_while_open() {
  octets 5000 >file
  exec 5<file
  rm file
  gone file
  drop_caches
  same - <(octets 5000) <&5
  exec 5<&-
  is "$(find "$THERE" -mindepth 1 | wc -l)" 0
}

# The file is removed without the client, which holds the file's handle. By version 4 it has the file open, which the server keeps.
check_stale_handle() {
  octets 5000 >file
  exec 5<file
  rm "$THERE/file"
  drop_caches
  if [ "$VERSION" = 3 ]; then
    refuses "Stale file handle" dd if=/proc/self/fd/5 of=/dev/null bs=4096 iflag=direct
  else
    same - <(octets 5000) < <(dd if=/proc/self/fd/5 bs=4096 iflag=direct)
  fi
  exec 5<&-
  sleep 3.1 # as long as the client believes that the name is there
  refuses "No such file" cat file
  echo new >file
  is "$(cat "$THERE/file")" new
}

check_statfs() {
  local blocks free
  read -r blocks free < <(stat -f -c '%b %f' .)
  [ "$blocks" -gt 0 ] && [ "$free" -gt 0 ] && [ "$free" -le "$blocks" ]
  df . >/dev/null
}

check_parallel_files() {
  local i jobs=()
  for i in 1 2 3 4; do
    (octets $((1000003 + i)) | dd of="file-$i" bs=65537 iflag=fullblock conv=fsync status=none) &
    jobs+=($!)
  done
  for i in "${jobs[@]}"; do wait "$i"; done
  drop_caches
  for i in 1 2 3 4; do same "file-$i" <(octets $((1000003 + i))); done
}

check_parallel_one_file() {
  local i jobs=() part=250007
  octets $((4 * part)) >/tmp/expected
  for i in 0 1 2 3; do
    dd if=/tmp/expected of=file bs="$part" count=1 skip="$i" seek="$i" oflag=direct conv=notrunc status=none &
    jobs+=($!)
  done
  for i in "${jobs[@]}"; do wait "$i"; done
  drop_caches
  same file /tmp/expected
}

check_random_buffered() {
  python3 "$HERE_DIR/random-operations.py" file --seed "$SEED" --operations "$RANDOM_OPERATIONS" --backing "$THERE/file"
}

check_random_direct() {
  python3 "$HERE_DIR/random-operations.py" file --seed "$SEED" --operations "$RANDOM_OPERATIONS" --backing "$THERE/file" --direct
}

check_fio_verify() {
  fio --name=verify --directory=. --size=2m --numjobs=2 --thread --ioengine=psync --direct=1 --rw=randwrite \
    --bsrange=512-128k --bs_unaligned --randseed="$SEED" --verify=crc32c --verify_fatal=1 --output=/tmp/fio.out ||
    { tail -5 /tmp/fio.out; false; }
}

# Runs on a mount of the read-only export.
check_readonly() {
  is "$(cat file)" content
  refuses "Read-only file system" touch new
  refuses "Read-only file system" mkdir new
  refuses "Read-only file system" rm -f file
  refuses "Read-only file system" chmod 600 file
  refuses "Read-only file system" ln -s x new
  refuses "Read-only file system" mv file new
  refuses "" bash -c 'echo more >>file' # EACCES if ACCESS already denies it, else EROFS
  is "$(cat file)" content
}

# Runs on each of the remounts.
check_remount() {
  same "$MNT/many/$(entry_names 1)" <(entry_names 1 | tr -d '\n')
  octets 5001 >file
  drop_caches
  same file <(octets 5001)
}

# ---- How one check is run.

passed=0 failed=0 skipped=0

ok() { passed=$((passed + 1)); printf 'ok %s\n' "$1"; }
not_ok() { failed=$((failed + 1)); printf 'not ok %s: %s\n' "$1" "$2"; }
skip() { skipped=$((skipped + 1)); printf 'skip %s: %s\n' "$1" "$2"; }

is_wanted() { [ -z "$ONLY" ] || [[ " $ONLY " == *" $1 "* ]]; }

# In the process of one check: its directory, its function, its failing line.
one_check() {
  set -Ee
  trap 'echo "line $LINENO: $BASH_COMMAND"' ERR
  export THERE=${BACKING/#other_mount/$OTHER_MOUNT}/work-$1
  if [ "$1" = readonly ]; then
    cd "$MNT"
  else
    mkdir -p "$MNT/work-$1"
    cd "$MNT/work-$1"
  fi
  case $1 in
    file_of_*) check_file "${1#file_of_}" ;;
    *) "check_$1" ;;
  esac
}

# run_check NAME [LABEL]: returns 1 if the mount does not answer any more.
run_check() {
  local name=$1 label=$TRANSPORT/${2:-$1} begun code why tenths
  begun=${EPOCHREALTIME/./}
  timeout -k 5 "$CHECK_TIMEOUT" "$BASH" "$0" --check "$name" >/tmp/output 2>&1
  code=$?
  if [ "$code" = 0 ]; then
    tenths=$(((${EPOCHREALTIME/./} - begun) / 100000))
    ok "$label  $((tenths / 10)).$((tenths % 10))s"
  else
    why=$(tail -4 /tmp/output | tr '\n\r' '||' | cut -c1-600)
    case $code in 124 | 137) why="took longer than $CHECK_TIMEOUT s; $why" ;; esac
    not_ok "$label" "$why"
  fi
  listen_to_kernel "$label"
  cd /
  [ "$name" = readonly ] || timeout 60 rm -rf "$MNT/work-$name"
  rm -rf /tmp/expected /tmp/appended /tmp/whole /tmp/tree
  [ "$code" = 0 ] || timeout 30 stat -f "$MNT" >/dev/null 2>&1
}

# ---- Mounts.

# mount_export EXPORT [more options]. Soft: a server that does not answer fails a check, it does not hang the guest.
mount_export() {
  local options="vers=$VERSION,soft,timeo=300,retrans=2${MOUNT_OPTIONS:+,$MOUNT_OPTIONS}${2:+,$2}" helper=()
  [ "$VERSION" != 3 ] || options+=",nolock,mountport=$MOUNT_PORT,mountproto=tcp"
  case $TRANSPORT in
    rdma) options="rdma,port=$RDMA_PORT,$options" ;;
    tcp) options="proto=tcp,port=$TCP_PORT,$options" ;;
  esac
  # Without the helper of nfs-common the kernel itself is given what the helper would have looked up.
  [ -x /sbin/mount.nfs ] || { helper=(-i); options+=",addr=$SERVER_ADDRESS"; }
  local try
  for try in 1 2 3; do
    watch_transport
    timeout -k 5 60 mount "${helper[@]}" -t nfs -o "$options" "$SERVER_ADDRESS:$1" "$MNT" >/tmp/mount.out 2>&1 && return 0
    # The client drew a port that is still in TIME_WAIT from an earlier mount (EADDRNOTAVAIL), and gave up before the server heard of it.
    grep -q 'Cannot assign requested address' /tmp/mount.out || break
    echo "mounted again: a port was drawn that is in TIME_WAIT" >&2
  done
  echo "mount -o $options $SERVER_ADDRESS:$1: $(tail -2 /tmp/mount.out | tr '\n' ' ')"
  return 1
}

unmount() {
  cd /
  timeout -k 5 60 umount "$MNT" >/tmp/mount.out 2>&1 || {
    echo "umount: $(tr '\n' ' ' </tmp/mount.out)"
    umount -f -l "$MNT" 2>/dev/null
    return 1
  }
}

# Prints `key=value …` for each transport of the mount. Names of the numbers: net/sunrpc/xprtrdma/transport.c, xprtsock.c.
xprt_counters() {
  awk -v mount="$MNT" '
    BEGIN {
      names["rdma"] = "port bind_count connect_count connect_time idle sends recvs bad_xids req_u bklog_u read_chunks write_chunks reply_chunks total_rdma_request total_rdma_reply pullup_copy fixup_copy hardway_register failed_marshal bad_reply nomsg_calls mrs_recycled mrs_orphaned mrs_allocated local_inv_needed empty_sendctx zero"
      names["tcp"] = "port bind_count connect_count connect_time idle sends recvs bad_xids req_u bklog_u max_slots sending_u pending_u"
    }
    $1 == "device" { mine = ($5 == mount) }
    mine && $1 == "xprt:" {
      count = split(names[$2], name, " ")
      printf "transport=%s", $2
      for (i = 1; i <= count; i++) printf " %s=%s", name[i], $(i + 2)
      print ""
    }' /proc/self/mountstats
}

# counter NAME LINE; a line without it is a mistake of ours or another kernel's format, and reads as -1.
counter() { if [[ " $2 " =~ \ $1=([0-9]+)\  ]]; then echo "${BASH_REMATCH[1]}"; else echo -1; fi; }

# Two counters grow by what says nothing about the server, and the kernel's trace separates those from the others. failed_marshal counts also
# each call that had to wait because the pool of memory registrations, which starts with four and grows on demand, was empty (EAGAIN).
# connect_count of TCP counts also each reserved port that was drawn and is still in TIME_WAIT from an earlier mount (EADDRNOTAVAIL).
TRACE=/sys/kernel/tracing
watch_transport() {
  local event=sunrpc/rpc_socket_connect
  [ "$TRANSPORT" = tcp ] || event=rpcrdma/xprtrdma_marshal_failed
  mountpoint -q "$TRACE" || mount -t tracefs tracefs "$TRACE" 2>/dev/null || return 0 # user-mode Linux has none
  # Names of commands are not wanted, and to record them the kernel changes the code of its scheduler, which QEMU 7.2 may run stale.
  echo 0 >"$TRACE/options/record-cmd"
  echo 1 >"$TRACE/events/$event/enable"
  : >"$TRACE/trace"
}

marshal_failures_that_waited() { grep -c 'xprtrdma_marshal_failed:.* ret=-11$' < <(cat "$TRACE/trace" 2>/dev/null); }
ports_in_time_wait() { grep -c 'rpc_socket_connect:.* error=-99 ' < <(cat "$TRACE/trace" 2>/dev/null); }

# judge_xprt MOUNT CONNECTIONS REQUIRED…: the counters that must be above zero are named; the faults must be zero.
judge_xprt() {
  local label=$TRANSPORT/xprt_of_$1 connections=$2 lines line name why='' zeros='bad_xids' connects=$2 connect_count=0 failed_marshal=0
  shift 2
  lines=$(xprt_counters)
  [ "$(grep -c . <<<"$lines")" = "$connections" ] || why+="$(grep -c . <<<"$lines") transports instead of $connections; "
  case $TRANSPORT in
    rdma) zeros+=' bad_reply' ;;
    # The kernel counts the start and the end of a connection's set-up, and one start more for each port in TIME_WAIT. The trace has
    # those of the mount protocol's connection too. A connection made again would have start and end once more.
    tcp) connects=$((2 * connections + $(ports_in_time_wait))) ;;
  esac
  while read -r line; do
    echo "XPRT $label $line"
    [[ $line == "transport=$TRANSPORT "* ]] || why+="the transport is not $TRANSPORT; "
    for name in sends recvs "$@"; do [ "$(counter "$name" "$line")" -gt 0 ] || why+="$name is 0; "; done
    for name in $zeros; do [ "$(counter "$name" "$line")" = 0 ] || why+="$name is $(counter "$name" "$line"); "; done
    connect_count=$((connect_count + $(counter connect_count "$line")))
    [ "$TRANSPORT" = tcp ] || failed_marshal=$((failed_marshal + $(counter failed_marshal "$line")))
  done <<<"$lines"
  [ "$connect_count" -le "$connects" ] || why+="connect_count is $connect_count, with $connections connections at most $connects; "
  if [ "$failed_marshal" != 0 ] && [ "$failed_marshal" != "$(marshal_failures_that_waited)" ]; then
    why+="failed_marshal is $failed_marshal, of which $(marshal_failures_that_waited) only waited for a registration; "
  fi
  if [ -z "$why" ]; then ok "$label"; else not_ok "$label" "${why%; }"; fi
}

# Collects what the kernel said since the last call, without what it says when all is well. It is printed where it arises.
complaints=''
listen_to_kernel() {
  local said
  said=$(dmesg --read-clear | grep -E -i 'rpcrdma|siw|BUG|WARNING|Oops|not responding|timed out|hung|blocked for|NFS:|RPC:' |
    grep -v -E 'RPC: Registered|SoftiWARP attached|siw: loading out-of-tree|module verification failed|NFS: Registering the id_resolver|supports timestamps')
  [ -n "$said" ] || return 0
  printf 'KERNEL %s: %s\n' "$1" "${said//$'\n'/$'\n'KERNEL $1: }"
  complaints+="$1: $(head -3 <<<"$said" | tr '\n' '|') "
}

judge_kernel_log() {
  listen_to_kernel "$TRANSPORT/end"
  if [ -z "$complaints" ]; then ok "$TRANSPORT/kernel_log"; else not_ok "$TRANSPORT/kernel_log" "${complaints:0:600}"; fi
  complaints=''
}

# ---- The sessions of one transport.

session_of_checks() {
  local name why required=()
  if ! why=$(mount_export "$EXPORT"); then not_ok "$TRANSPORT/mount" "$why"; return 1; fi
  ok "$TRANSPORT/mount"
  for name in $CHECKS; do
    is_wanted "$name" || continue
    run_check "$name" || { not_ok "$TRANSPORT/after_$name" "the mount does not answer any more, the rest is not run"; return 1; }
  done
  [ "$TRANSPORT" = rdma ] && [ -z "$ONLY" ] && required=(read_chunks write_chunks reply_chunks)
  judge_xprt all_checks 1 "${required[@]}"
  if why=$(unmount); then ok "$TRANSPORT/unmount"; else not_ok "$TRANSPORT/unmount" "$why"; return 1; fi
}

session_readonly() {
  local why
  is_wanted readonly || return 0
  if [ -z "$READONLY_EXPORT" ]; then skip "$TRANSPORT/readonly" "no read-only export is given"; return 0; fi
  if ! why=$(mount_export "$READONLY_EXPORT"); then not_ok "$TRANSPORT/readonly" "$why"; return 0; fi
  run_check readonly
  why=$(unmount) || not_ok "$TRANSPORT/unmount_readonly" "$why"
}

session_remount() {
  local i why
  is_wanted remount || return 0
  for ((i = 1; i <= REMOUNTS; i++)); do
    if ! why=$(mount_export "$EXPORT"); then not_ok "$TRANSPORT/remount_$i" "$why"; return 1; fi
    run_check remount "remount_$i"
    [ "$i" -lt "$REMOUNTS" ] || judge_xprt last_remount 1
    if ! why=$(unmount); then not_ok "$TRANSPORT/unmount_$i" "$why"; return 1; fi
  done
}

# Two connections of one mount share its work.
session_nconnect() {
  local why
  is_wanted nconnect || return 0
  if ! why=$(mount_export "$EXPORT" nconnect=2); then not_ok "$TRANSPORT/nconnect" "$why"; return 0; fi
  run_check parallel_files nconnect_parallel_files
  run_check random_direct nconnect_random_direct
  # By version 4 Linux has one connection over RDMA, whatever is asked for.
  if [ "$VERSION" != 3 ] && [ "$TRANSPORT" = rdma ]; then judge_xprt nconnect 1; else judge_xprt nconnect 2; fi
  why=$(unmount) || not_ok "$TRANSPORT/unmount_nconnect" "$why"
}

# ---- Set-up.

start_rdma() {
  local module=$RDMA_DEVICE
  [ "$module" = rxe ] && module=rdma_rxe
  [ -e "/sys/class/infiniband/${RDMA_DEVICE}0" ] ||
    { modprobe "$module" && rdma link add "${RDMA_DEVICE}0" type "$RDMA_DEVICE" netdev eth0 && modprobe rpcrdma; }
}

# What every session needs; it may be there already.
set_up() {
  if [[ $TRANSPORTS == *rdma* ]] && ! start_rdma >/tmp/output 2>&1; then not_ok setup/rdma "$(tail -3 /tmp/output | tr '\n' '|')"; fi
  # Mounts that name every port and take no locks by NLM need none.
  ! command -v rpcbind >/dev/null || pgrep -x rpcbind >/dev/null || rpcbind || not_ok setup/rpcbind "rpcbind does not start"
  grep -q '^nfsv3 ' /proc/modules || modprobe nfsv3
  dmesg --clear
}

# Where no directory backs the export, what one mount has done is seen by another, which shares neither its connection nor its caches.
OTHER_MOUNT=/tmp/other-mount
mount_backing() {
  local why other=tcp port=${OTHER_TCP_PORT:-$TCP_PORT}
  [ "$BACKING" = other_mount ] || return 0
  [ "$TRANSPORT" = rdma ] || [ -n "$OTHER_TCP_PORT" ] || other=rdma
  mkdir -p "$OTHER_MOUNT"
  if ! why=$(TRANSPORT=$other TCP_PORT=$port MOUNT_PORT=${OTHER_TCP_PORT:-$MOUNT_PORT} MNT=$OTHER_MOUNT mount_export "$EXPORT" nosharecache,noac); then
    not_ok "$TRANSPORT/other_mount" "$why"
    return 1
  fi
}

unmount_backing() {
  local why
  [ "$BACKING" = other_mount ] || return 0
  why=$(MNT=$OTHER_MOUNT unmount) || not_ok "$TRANSPORT/unmount_other_mount" "$why"
}

# The reference: the kernel's own server, in this guest. It exports ext4, because knfsd 6.1 gives wrong data from a tmpfs file with holes:
# its splice takes consecutive zero pages for one page.
start_knfsd() {
  local name
  SERVER_ADDRESS=10.0.2.15 RDMA_PORT=20049 TCP_PORT=2049 MOUNT_PORT=20048
  EXPORT=/srv/export READONLY_EXPORT=/srv/readonly BACKING=/srv/export
  mkdir -p /srv/export/many /srv/readonly
  for name in $(entry_names "$ENTRIES"); do printf %s "$name" >"/srv/export/many/$name"; done
  printf content >/srv/readonly/file
  modprobe nfsd
  mount -t nfsd nfsd /proc/fs/nfsd
  exportfs -i -o rw,no_root_squash,insecure,no_subtree_check,fsid=1 '*:/srv/export' &&
    exportfs -i -o ro,no_root_squash,insecure,no_subtree_check,fsid=2 '*:/srv/readonly' &&
    rpc.mountd -p "$MOUNT_PORT" &&
    rpc.nfsd -N 4 4 &&
    echo "rdma $RDMA_PORT" >/proc/fs/nfsd/portlist
}

everything() {
  local begun=$SECONDS
  set_up
  if [ "$SERVER" = knfsd ] && ! start_knfsd >/tmp/output 2>&1; then not_ok setup/knfsd "$(tail -3 /tmp/output | tr '\n' '|')"; fi
  head -c 4194304 /dev/urandom >$POOL
  echo "set up in $((SECONDS - begun)) s; server $SERVER"
  for TRANSPORT in $TRANSPORTS; do
    mount_backing && session_of_checks && session_readonly && session_remount && session_nconnect
    unmount_backing
    judge_kernel_log
  done
  echo "first light took $((SECONDS - begun)) s"
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ] && [ "$passed" -gt 0 ]
}

[ "${BASH_SOURCE[0]}" = "$0" ] || return 0
case ${1:-} in
  --names) entry_names "$2" ;;
  --check) one_check "$2" ;;
  '') everything ;;
  *) sed -n '2,/^set/s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
