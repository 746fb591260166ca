# lab: --user root --enroot-conf tests/security/below_var_tmp.conf
# Who else can write to a directory decides what its user runs: ENROOT_DATA_PATH, ENROOT_RUNTIME_PATH and ENROOT_TEMP_PATH. bob makes
# alice's directory first, in a place where anybody may.
load ../cluster/helpers

setup() {
  chmod 1777 /var/tmp
  place=/var/tmp/enroot-data-$(id -u alice)
  rm -rf "$place"
}

teardown() { as_alice scancel -u alice -s KILL 2>/dev/null || true; }

# plant DIRECTORY: containers of bob's, in which the program that alice asks for says so. Their layers are everybody's to write, so that
# they start whoever asks.
plant() {
  local name tree=$BATS_TEST_TMPDIR/tree
  mkdir -p "$tree"/{bin,etc,proc,sys,dev,tmp,run,var,home}
  cp /bin/busybox "$tree/bin/busybox"
  ln -sf busybox "$tree/bin/sh"
  printf '#!/bin/sh\necho "bob runs this as $(busybox id -u)"\n' >"$tree/bin/tool"
  chmod 755 "$tree/bin/tool"
  mksquashfs "$tree" "$BATS_TEST_TMPDIR/bob.sqsh" -quiet -no-progress -all-root -noappend >/dev/null
  for name in kept pyxis_kept; do
    as bob mkdir -p "$1/$name"
    as bob mkdir -p "$1/$name/.situla"
    as bob mkdir -m 777 "$1/$name/.situla"/{upper,work}
    install -m 644 -o bob "$BATS_TEST_TMPDIR/bob.sqsh" "$1/$name/.situla/image.sqsh"
    as bob chmod -R a+rwX "$1/$name"
  done
  chmod a+rx "$1" # alice can read it all
}

not_bobs() { if grep 'bob runs this' <<<"$output"; then false; fi; }

# before: "bob runs this as 60801", which is alice; status 0
@test "srun --container-name takes no container out of a directory of somebody else" {
  plant "$place"
  run_and_show as_alice srun --chdir=/ --container-name=kept /bin/tool
  not_bobs
  [ "$status" -ne 0 ]
  grep -F "ENROOT_DATA_PATH: $place belongs to bob (uid $(id -u bob)), not to alice" <<<"$output"
  grep -F 'choose another directory: ENROOT_DATA_PATH=PATH' <<<"$output"
  run_and_show as_alice srun --chdir=/ --container-name=new --container-image=registry.test/tiny true
  [ "$status" -ne 0 ]
  grep -F "belongs to bob" <<<"$output"
}

# before: start: "bob runs this as 60801", status 0
@test "start, list, export, create and remove take no container out of a directory of somebody else" {
  plant "$place"
  run_and_show as_alice enroot start kept /bin/tool
  not_bobs
  [ "$status" -ne 0 ]
  grep -F "belongs to bob" <<<"$output"
  local command
  for command in list "list -f" "export -o /tmp/of-bob.sqsh kept" "remove -f kept" "load -n new docker://registry.test#tiny"; do
    run_and_show as_alice enroot $command
    [ "$status" -ne 0 ]
    grep -F "belongs to bob" <<<"$output"
  done
}

# before: "bob runs this as 60801", status 0
@test "a directory that others may write to is refused with the line that fixes it" {
  as_alice mkdir -m 777 "$place"
  plant "$place"
  as_alice chmod 777 "$place"
  run_and_show as_alice srun --chdir=/ --container-name=kept /bin/tool
  not_bobs
  [ "$status" -ne 0 ]
  grep -F "can be written by other users (mode 0777)" <<<"$output"
  grep -F "chmod go-w $place" <<<"$output"
  # Whoever follows the advice without looking still does not run what bob has put there.
  as_alice chmod go-w "$place"
  run_and_show as_alice srun --chdir=/ --container-name=kept /bin/tool
  not_bobs
  [ "$status" -ne 0 ]
  grep -F "pyxis_kept belongs to" <<<"$output"
}

# before: the image was imported, then "create the container: open /var/tmp/enroot-data-60801: Not a directory"
@test "a link of somebody else's is not followed; the user's own is" {
  as_alice mkdir -p /home/alice/bobs-choice /var/tmp/of-alice
  as bob ln -s /home/alice/bobs-choice "$place"
  run_and_show as_alice srun --chdir=/ --container-name=a --container-image=registry.test/tiny true
  [ "$status" -ne 0 ]
  grep -F "is a symbolic link that belongs to bob" <<<"$output"
  [ -z "$(ls -A /home/alice/bobs-choice)" ]
  rm "$place"
  as_alice ln -s of-alice "$place"
  as_alice srun --chdir=/ --container-name=a --container-image=registry.test/tiny true
  as_alice srun --chdir=/ --container-name=a true
  [ -d /var/tmp/of-alice/pyxis_a ]
}

# before: "use /var/tmp/run-of-bob: it belongs to another user", not whose; the mode was not looked at
@test "ENROOT_RUNTIME_PATH: another's directory, and one that others may write to" {
  as_alice enroot import -o /tmp/tiny-$BATS_TEST_NUMBER.sqsh docker://registry.test#tiny
  as bob mkdir -m 777 /var/tmp/run-of-bob
  run_and_show as_alice env ENROOT_RUNTIME_PATH=/var/tmp/run-of-bob enroot start /tmp/tiny-$BATS_TEST_NUMBER.sqsh true
  [ "$status" -ne 0 ]
  grep -F "ENROOT_RUNTIME_PATH: /var/tmp/run-of-bob belongs to bob" <<<"$output"
  as_alice mkdir -m 777 /var/tmp/run-of-alice
  chmod 777 /var/tmp/run-of-alice
  run_and_show as_alice env ENROOT_RUNTIME_PATH=/var/tmp/run-of-alice enroot start /tmp/tiny-$BATS_TEST_NUMBER.sqsh true
  [ "$status" -ne 0 ]
  grep -F "chmod go-w /var/tmp/run-of-alice" <<<"$output"
}

# before: passed, too: what sites have goes on to work
@test "what sites make for their users works: by a prolog, and /tmp for temporary files" {
  install -d -m 755 -o alice "$place"
  as_alice srun --chdir=/ --container-name=a --container-image=registry.test/tiny true
  as_alice srun --chdir=/ --container-name=a true
  as_alice enroot import -o "/tmp/tiny-$BATS_TEST_NUMBER.sqsh" docker://registry.test#tiny
  as_alice env ENROOT_TEMP_PATH=/tmp enroot start "/tmp/tiny-$BATS_TEST_NUMBER.sqsh" true
}

# before: /var/tmp/enroot-data-60801/pyxis_6.0/upper/written was below a directory of bob's, who may put another in its place
@test "a writable step writes nothing into a directory of somebody else" {
  plant "$place"
  as bob chmod 777 "$place"
  as_alice srun --chdir=/ --container-writable --container-image=registry.test/tiny sh -c 'echo secret >/written; exec sleep 99' 3>&- &
  wait_until 20 pgrep -u alice -f '^[^ ]*sleep 99$'
  run_and_show find "$place" -user alice
  [ -z "$output" ]
}
