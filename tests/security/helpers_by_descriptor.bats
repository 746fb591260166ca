# lab: --user root --proctrack cgroup
# What a step starts is what was installed when it began: an upgrade in the middle of it does not mix two releases.
load ../cluster/helpers

libexec=$SITULA_LAB_PREFIX/libexec/situla

teardown() {
  [ ! -d "$libexec.before" ] || { rm -rf "$libexec" && mv "$libexec.before" "$libexec"; }
  touch /shared/go
  as_alice scancel -u alice 2>/dev/null || true
  wait
}

# In place of every program there is one that fails, as when an upgrade does not fit what runs.
upgrade() {
  local name
  mv "$libexec" "$libexec.before"
  mkdir "$libexec"
  for name in "$libexec.before"/situla-*; do
    printf '#!/bin/sh\nexit 9\n' >"$libexec/${name##*/}"
    chmod 755 "$libexec/${name##*/}"
  done
}

# in_the_middle OPTION...: the step goes on after the upgrade, changes its container, and ends.
in_the_middle() {
  rm -f /shared/go /shared/started
  as_alice srun --container-mounts=/shared:/shared "$@" sh -c 'touch /shared/started; until [ -e /shared/go ]; do sleep 0.1; done; echo more >/root/more || true' \
    >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  local step=$!
  wait_until 20 test -e /shared/started
  upgrade
  touch /shared/go
  wait "$step"
}

setup() {
  install -d -m 1777 /shared
  as_alice rm -f /home/alice/saved.sqsh
}

# before: error: situla: --container-save: the step was cancelled, nothing is saved
@test "a save after an upgrade is made by the release that began the step" {
  in_the_middle --container-image=registry.test/tiny --container-writable --container-save=/home/alice/saved.sqsh && status=0 || status=$?
  cat "$BATS_TEST_TMPDIR/out"
  [ "$status" -eq 0 ]
  ! grep -E 'return code 9|not saved' "$BATS_TEST_TMPDIR/out" || false
  unsquashfs -l /home/alice/saved.sqsh | grep -q '^squashfs-root/bin'
}
