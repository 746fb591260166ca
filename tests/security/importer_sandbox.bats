# lab: --user root
# What could somebody do who has taken over the importer by what a registry sent? tests/unit/sys/sandbox_test.cpp makes each call.
load ../cluster/helpers

setup() {
  rm -rf /var/lib/situla/images /var/lib/situla/layers
  as_alice env ENROOT_MAX_CONNECTIONS=1 ENROOT_STALL_TIMEOUT=600 https_proxy="http://hold-31$BATS_TEST_NUMBER:x@proxy.test:3128" \
    srun --container-image=registry.test/debian:12 true 3>&- &
  wait_until 30 is_held "hold-31$BATS_TEST_NUMBER"
  importer=$(pgrep -x situla-importer)
}

is_held() { curl -s "http://proxy.test:3128/stats/$1" | jq -e .held >/dev/null; }

teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
}

# before: Uid: situla, whose the store is; Seccomp: 0
@test "the importer's account owns nothing, has no capability, and may make few system calls" {
  grep -E '^(Uid|Gid|Cap...|NoNewPrivs|Seccomp):' "/proc/$importer/status"
  local uid
  uid=$(id -u situla-import)
  [ "$(awk '$1 == "Uid:" { print $2, $3, $4, $5 }' "/proc/$importer/status")" = "$uid $uid $uid $uid" ]
  [ "$(grep -Ec '^Cap(Inh|Prm|Eff|Bnd|Amb):[[:space:]]0+$' "/proc/$importer/status")" -eq 5 ]
  grep -q '^NoNewPrivs:[[:space:]]1$' "/proc/$importer/status"
  grep -q '^Seccomp:[[:space:]]2$' "/proc/$importer/status"
}

# before: the same, of an account that did not exist: the importer ran as situla, whose the store is
@test "the importer's account has no right to the store, nor to other importers" {
  run_and_show as situla-import ls /var/lib/situla
  [ "$status" -ne 0 ]
  [[ "$output" == *"Permission denied"* ]]
  run_and_show as situla-import ls "/proc/$importer/fd"
  [ "$status" -ne 0 ]
  [[ "$output" == *"Permission denied"* ]]
}

# before: the lease and the directory: .../images/sha256, .../images/sha256/<digest>.sqsh.lease
@test "files that the importer can write to have no name" {
  local fd
  run_and_show ls -l "/proc/$importer/fd"
  [ "$status" -eq 0 ]
  for fd in /proc/"$importer"/fd/*; do
    [[ $(readlink "$fd") != /var/lib/situla/* || $(readlink "$fd") == *'(deleted)' ]]
  done
}
