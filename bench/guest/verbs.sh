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

# device TYPE: makes the software device of that type, and no other, lie over eth0.
device() {
  local module=$1 name
  [ "$module" = rxe ] && module=rdma_rxe
  for name in rxe siw; do
    [ ! -e "/sys/class/infiniband/${name}0" ] || [ "$name" = "$1" ] || rdma link delete "${name}0"
  done
  modprobe -a "$module" rdma_ucm ib_uverbs || return 1
  [ -e "/sys/class/infiniband/${1}0" ] || rdma link add "${1}0" type "$1" netdev eth0
}

# The generic suite: its cases become checks.
part_conformance() {
  local line name why=''
  device rxe || { not_ok conformance/device "there is no rxe"; return; }
  STAG_RDMA_ADDRESS=$HERE timeout 900 /host/conformance --test-threads=1 --nocapture >/tmp/conformance.log 2>&1
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
      ok | *"... ok") if [ -z "$why" ]; then ok "conformance/$name"; else skip "conformance/$name" "$why"; fi ;;
      FAILED | *"... FAILED") not_ok "conformance/$name" "see the log" ;;
    esac
  done < <(tr -d '\r' </tmp/conformance.log)
  grep -q '^test result: ok' /tmp/conformance.log || { tail -40 /tmp/conformance.log; not_ok conformance/result "the suite failed"; }
}

for part in $PARTS; do "part_$part"; done
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
