# Common to the tests in a machine: who submits, and what is left. Loaded by the .bats files.
# shellcheck shell=bash disable=SC2154

bats_require_minimum_version 1.5.0
. /tests/left.bash
grep -q machine.do= /proc/cmdline || { echo "these tests run in a machine of their own: tests/run machines" >&2; exit 1; }
# A step that hangs ends its test; the machine is some thirty times slower than one with the processor's help.
export BATS_TEST_TIMEOUT=300

# word NAME: what the kernel's command line says of it.
word() { sed -n "s/.*machine\.$1=\([^ ]*\).*/\1/p" /proc/cmdline; }

# wait_until SECONDS CMD...: polls, for at least that time.
wait_until() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -le $deadline ] || return 1
    sleep 0.3
  done
}

alice=(runuser -u alice -- env -C /home/alice HOME=/home/alice USER=alice LOGNAME=alice)
as_alice() { "${alice[@]}" "$@"; }

# step OPTION... CMD...: alice's srun: its status, its output and, in $stderr, what it says besides; shown where the test fails.
step() {
  run --separate-stderr as_alice srun -Q "$@"
  echo "status=$status"
  echo "${stderr:-}"
  echo "$output"
}

# begin NAME OPTION... CMD...: the same beside the test; what it says is in /run/NAME.log, its status in /run/NAME.status.
begin() {
  local name=$1
  shift
  rm -f "/run/$name.status"
  # Nothing of bats' is held: it would wait for a step that outlives its test.
  setsid --fork bash -c '"${@:2}" >"/run/$1.log" 2>&1; echo $? >"/run/$1.status"' begin "$name" \
    "${alice[@]}" srun -Q --job-name="$name" "$@" </dev/null >/dev/null 2>&1 3>&- 4>&-
}
says() { grep -q -- "$2" "/run/$1.log"; }
over() { [ -s "/run/$1.status" ]; }

# ends NAME STATUS: within two minutes.
ends() {
  wait_until 120 over "$1" || { echo "$1 does not end"; cat "/run/$1.log"; return 1; }
  echo "$1 ended with status $(cat "/run/$1.status"):"
  cat "/run/$1.log"
  [ "$(cat "/run/$1.status")" = "$2" ]
}

runs() { running "$@" | grep -q .; }
cgroup_of() { sed 's/^0:://' "/proc/$1/cgroup"; }

on_nfs() { [ "$(stat -f -c %T /var/lib/situla)" = nfs ]; }
forget() {
  if on_nfs; then situla rm --force "$1"; else situla rm "$1"; fi
}

# What the first step on a node finds out about it, for those that follow.
once='^/run/situla/(cgroups|nvidia[.]json|store[.]sock|copies/.*|reports/.*|images/(device-mapper|no-id-map|share-[0-9]+))$'

snapshot() { left | sort >/run/left.before; }
nothing_new() {
  left | sort >/run/left.after
  comm -13 /run/left.before /run/left.after | grep -v -E "$once" >/run/left.new || true
  [ ! -s /run/left.new ]
}
nothing_left() {
  wait_until 60 nothing_new || { echo "left behind:"; cat /run/left.new; return 1; }
}
