#!/bin/bash
# Mounts by tickets of Kerberos, in the guest, as root; on the host use `kerberos`. Every check prints a line as those of first-light.sh do.
set -uo pipefail
export LC_ALL=C
# shellcheck source=tests/guest/first-light.sh
. /host/first-light.sh
: "${SECURITIES:=krb5 krb5i krb5p}"
: "${VERSIONS:=3 4.1 4.2}"
: "${LIST:=}"
: "${EXPIRY=yes}"
passed=0 failed=0

check() { # check NAME COMMAND…: it succeeds
  local name=$1 from=$EPOCHREALTIME
  shift
  if said=$("$@" 2>&1); then
    passed=$((passed + 1))
    printf 'ok %s  %s\n' "$name" "$(awk "BEGIN { printf \"%.1f\", $EPOCHREALTIME - $from }")"
  else
    failed=$((failed + 1))
    printf 'not ok %s: %s\n' "$name" "$(tail -3 <<<"$said" | tr '\n' '|')"
  fi
}

as() { local uid=$1; shift; setpriv --reuid "$uid" --regid "$uid" --clear-groups "$@"; }

set_up_kerberos() {
  printf '127.0.0.1 localhost\n10.0.2.2 stag.stag.test\n10.0.2.15 client.stag.test client\n' >/etc/hosts
  hostname client.stag.test
  # Debian 13 makes these names when it configures the package, which no guest does.
  for tool in kinit kdestroy; do command -v $tool >/dev/null || ln -s $tool.mit /usr/bin/$tool || return 1; done
  cp /host/krb5.conf /etc/krb5.conf
  cp /host/keytab/client /etc/krb5.keytab
  printf '%s:x:%s:%s::/:/bin/sh\n' alice 1500 1500 bob 1501 1501 carol 1502 1502 dora 1510 1510 erin 1511 1511 >>/etc/passwd
  printf '%s:x:%s:\n' alice 1500 bob 1501 carol 1502 dora 1510 erin 1511 >>/etc/group
  printf '[General]\nDomain = stag.test\nLocal-Realms = STAG.TEST\n' >/etc/idmapd.conf
  modprobe auth_rpcgss && modprobe rpcsec_gss_krb5 || return 1
  mkdir -p /run/rpc_pipefs /var/lib/nfs/rpc_pipefs
  mount -t rpc_pipefs rpc /run/rpc_pipefs || return 1
  rpc.gssd -vvv -p /run/rpc_pipefs -k /etc/krb5.keytab 2>/tmp/gssd.log || return 1
}

ticket() { as "$1" env "KRB5CCNAME=FILE:/tmp/krb5cc_$1" kinit -k -t "/host/keytab/$2" "$2"; }

attach() { # attach TRANSPORT VERSION SECURITY
  local options="vers=$2,sec=$3,soft,timeo=300,retrans=2,acdirmin=0,acdirmax=0"
  [ "$2" != 3 ] || options+=",nolock,mountport=$TCP_PORT,mountproto=tcp"
  case $1 in
    rdma) options+=",proto=rdma,port=$RDMA_PORT" ;;
    tcp) options+=",proto=tcp,port=$TCP_PORT" ;;
  esac
  timeout -k 5 60 mount -t nfs -o "$options" "stag.stag.test:$EXPORT" "$MNT" && grep " $MNT nfs" /proc/mounts | grep -q "sec=$3,"
}

write_as_alice() {
  as 1500 bash -c "echo 'alice wrote' >$MNT/$1 && cp /tmp/octets $MNT/$1.big" || return 1
  drop_caches
  as 1500 cmp /tmp/octets "$MNT/$1.big" && as 1500 grep -q 'alice wrote' "$MNT/$1" || return 1
  cmp /tmp/octets "$BACKING/$1.big" || { echo "the server has other octets"; return 1; }
  is "$(stat -c %u:%a "$BACKING/$1")" 1500:644
}

names_and_attributes() {
  as 1500 bash -c "cd $MNT && mkdir $1.d && for i in \$(seq 50); do echo \$i >$1.d/\$i || exit 1; done && mv $1.d/7 $1.d/seven &&
    chmod 600 $1.d/8 && ln -s 9 $1.d/link && truncate -s 100000 $1.d/10 && rm $1.d/11 && [ \$(ls $1.d | wc -l) = 50 ]" || return 1
  is "$(stat -c %a:%s "$BACKING/$1.d/8")" 600:2 && is "$(stat -c %s "$BACKING/$1.d/10")" 100000
}

# A file that alice alone may read, for others.
of_alice_alone() {
  as 1500 bash -c "echo secret >$MNT/$1.secret && chmod 600 $MNT/$1.secret" || return 1
  refuses "Permission denied" as 1501 cat "$MNT/$1.secret" || return 1
  ticket 1502 carol && refuses "Permission denied" as 1502 cat "$MNT/$1.secret"
}

# carol has a ticket and no user at the server.
as_nobody() {
  as 1502 bash -c "echo carol >$MNT/$1.carol" && is "$(stat -c %u "$BACKING/$1.carol")" 65534
}

# dora has another number at the server, which does not have erin. root of the client may change owners (the map makes it root).
owners_by_name() { # owners_by_name TRANSPORT VERSION SECURITY
  local file=$MNT/$1-$2-$3 at=$BACKING/$1-$2-$3
  is "$(stat -c %U:%G "$file")" alice:alice || return 1
  : >"$file.owner" && chown dora:dora "$file.owner" || return 1
  is "$(stat -c %u:%g "$at.owner")" 2510:2510 || { echo "the server has another owner"; return 1; }
  umount "$MNT" && attach "$@" || return 1
  is "$(stat -c %U:%u:%G "$file.owner")" dora:1510:dora || return 1
  is "$(ls -l "$MNT" | awk -v name="$1-$2-$3.owner" '$9 == name { print $3, $4 }')" "dora dora" || return 1
  refuses "Invalid argument" chown erin "$file.owner" && is "$(stat -c %u "$at.owner")" 2510 || return 1
  # A number without a name, on either side.
  chown 1599 "$file.owner" && is "$(stat -c %u "$at.owner")" 1599 && is "$(stat -c %u "$file.owner")" 1599
}

# alice's ticket goes, and with the mount what the kernel has kept.
without_ticket() {
  as 1500 env KRB5CCNAME=FILE:/tmp/krb5cc_1500 kdestroy && umount "$MNT" && attach "$@" || return 1
  refuses "Permission denied" as 1500 cat "$MNT/$1-$2-$3" || return 1
  ticket 1500 alice && as 1500 grep -q 'alice wrote' "$MNT/$1-$2-$3"
}

# The server dies below a copy, and its contexts with it.
below_a_copy() {
  as 1500 bash -c "for i in 1 2 3 4 5 6; do cat /tmp/octets; sleep 0.3; done >$MNT/$1.copied" &
  local copy=$!
  sleep 0.5
  : >/host/kill
  wait "$copy" || { echo "the copy fails"; return 1; }
  for _ in $(seq 100); do [ -e /host/kill ] || break; sleep 0.2; done
  drop_caches
  for _ in 1 2 3 4 5 6; do cat /tmp/octets; done | as 1500 cmp - "$MNT/$1.copied"
}

short_ticket() { as 1500 env KRB5CCNAME=FILE:/tmp/krb5cc_1500 kinit -l "$1" -k -t /host/keytab/alice alice; }

# alice's ticket ends twice during a copy, and is replaced before each end. The kernel's contexts end with the tickets that made them.
renewed() {
  short_ticket 25s && umount "$MNT" && attach "$@" || return 1
  as 1500 bash -c "for i in \$(seq 25); do head -c 200000 /tmp/octets && sync $MNT/$1.renewed || exit 1; sleep 2; done >$MNT/$1.renewed" &
  local copy=$! left
  for left in 25s 10h; do sleep 16; short_ticket "$left" || return 1; done
  wait "$copy" || { echo "the copy fails"; return 1; }
  drop_caches
  for _ in $(seq 25); do head -c 200000 /tmp/octets; done | as 1500 cmp - "$MNT/$1.renewed"
}

# Without another one, it refuses.
expired() {
  short_ticket 20s && umount "$MNT" && attach "$@" && as 1500 cat "$MNT/$1-$2-$3" || return 1
  sleep 22
  drop_caches
  refuses "expired" timeout 60 setpriv --reuid 1500 --regid 1500 --clear-groups cat "$MNT/$1-$2-$3" || return 1
  ticket 1500 alice
}

run_list() { # run_list TRANSPORT VERSION SECURITY: the list of first-light.sh
  (
    export TRANSPORTS=$1 VERSION=$2 MOUNT_OPTIONS="sec=$3"
    /host/first-light.sh
  ) | sed "s|^\(\(not \)\?ok\) $1/|\1 $1-$2-$3/|"
  [ "${PIPESTATUS[0]}" = 0 ]
}

set_up
check setup/kerberos set_up_kerberos
head -c 3000001 /dev/urandom >/tmp/octets
chmod 644 /tmp/octets
check setup/ticket ticket 1500 alice
for transport in $TRANSPORTS; do
  for version in $VERSIONS; do
    for security in $SECURITIES; do
      of=$transport-$version-$security
      if [ -n "$LIST" ]; then
        run_list "$transport" "$version" "$security" && passed=$((passed + 1)) || failed=$((failed + 1))
        continue
      fi
      check "$of/mount" attach "$transport" "$version" "$security"
      mountpoint -q "$MNT" || continue
      check "$of/alice" write_as_alice "$of"
      check "$of/names" names_and_attributes "$of"
      [ "$version" = 3 ] || check "$of/owners" owners_by_name "$transport" "$version" "$security"
      check "$of/others" of_alice_alone "$of"
      check "$of/nobody" as_nobody "$of"
      check "$of/without_ticket" without_ticket "$transport" "$version" "$security"
      check "$of/restart" below_a_copy "$of"
      if [ -n "$EXPIRY" ]; then
        check "$of/renewed" renewed "$transport" "$version" "$security"
        check "$of/expired" expired "$transport" "$version" "$security"
      fi
      check "$of/umount" unmount
    done
  done
done
if dmesg | grep -E 'BUG|WARNING|Oops|blocked for|bad_reply'; then failed=$((failed + 1)); echo "not ok: the kernel complains"; fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] || tail -30 /tmp/gssd.log
[ "$failed" = 0 ]
