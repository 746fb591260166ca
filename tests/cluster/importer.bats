# lab: --name one-node --user root --slurm-conf KillWait=15 --plugin-arg importer=/tmp/importer --situla-conf tests/cluster/no_idle.toml
# lab: --name two-nodes --nodes 2 --user root --plugin-arg importer=/shared/importer --plugin-arg runtime_path=/tmp/pyxis
# A cluster's own program that gets images (importer= in plugstack.conf): what it is called with, when, as whom, and what
# becomes of every way in which it can misbehave.
load helpers

setup() {
  calls=/tmp/importer-calls
  rm -f "$calls"
  rm -rf /tmp/importer-cache
  install -m 0666 /dev/null "$calls"
  install -d -m 1777 /tmp/importer-cache
}

teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
}

# importer: its `get` is what comes on stdin. Every call is noted.
importer() {
  {
    echo '#!/bin/bash'
    echo "echo \"\$* \$(id -un) \$SLURM_JOB_ID.\$SLURM_STEP_ID\" >>$calls"
    echo 'if [ "$1" = release ]; then'
    echo "${release:-exit 0}"
    echo 'fi'
    cat
  } >/tmp/importer
  chmod 0755 /tmp/importer
}

# One as sites have it: enroot imports into a cache, once per image.
caching_importer() {
  importer <<EOF
image=/tmp/importer-cache/\$(tr / + <<<"\${2#docker://}").sqsh
[ -e "\$image" ] || $SITULA_LAB_PREFIX/bin/enroot import -o "\$image" "\$2" || exit
echo "\$image"
EOF
}

released() { [ "$(grep -c '^release ' "$calls")" -eq "${1:-1}" ]; }

no_sleep() { ! pgrep -u alice -x sleep; }

# fails_with PATTERN...: the step fails within a minute with each of the patterns in one error, nothing is left, and the
# program was asked to release what it may have.
fails_with() {
  local pattern
  snapshot
  run_and_show as_alice timeout 60 srun --container-image=registry.test/tiny "${srun_options[@]}" true
  [ "$status" -ne 0 ]
  [ "$status" -ne 124 ]
  for pattern in 'failed to import docker image: registry.test/tiny' '/tmp/importer get' "$@"; do
    grep -Eq -- "$pattern" <<<"$output" || { echo "no line matches: $pattern"; return 1; }
  done
  wait_until 30 released
  nothing_left
}

# bats file_tags=lab:one-node

@test "it is asked for an image of the node's engine as well, by the name that the user gave" {
  importer <<<'echo "no engine here" >&2; exit 1'
  run_and_show as_alice timeout 60 srun --container-image=dockerd://alpine:3 true
  [ "$status" -ne 0 ]
  [[ "$output" == *"no engine here"* ]]
  grep -q '^get dockerd://alpine:3 alice' "$calls"
}

@test "an image comes from the cluster's program; once in a step, whatever the number of tasks" {
  caching_importer
  snapshot
  run_and_show as_alice srun -n3 --container-image=registry.test/tiny cat hello.txt
  [ "$status" -eq 0 ]
  [ "$(grep -c '^hello from the top layer' <<<"$output")" -eq 3 ]
  wait_until 30 released
  cat "$calls"
  [ "$(grep -c '^get docker://registry.test/tiny alice ' "$calls")" -eq 1 ]
  [ "$(sort -u <(awk '{ print $NF }' "$calls") | wc -l)" -eq 1 ]
  # Situla's own importer had no part in it.
  [ -z "$(find /var/lib/situla -name '*.sqsh')" ]
  rm -rf /tmp/importer-cache/*
  nothing_left
}

@test "the program is called with the job's environment, pyxis's variables, a directory of the user's, in the job's working directory" {
  importer <<'EOF'
env >/tmp/importer-cache/env
pwd >/tmp/importer-cache/pwd
touch "$PYXIS_RUNTIME_PATH/$SLURM_JOB_UID/mine" || exit
stat -c '%U %a' "$PYXIS_RUNTIME_PATH/$SLURM_JOB_UID" >/tmp/importer-cache/stat
readlink /proc/self/fd/0 >/tmp/importer-cache/stdin
ls /proc/self/fd >/tmp/importer-cache/fds
exit 1
EOF
  cd /home/alice
  SITE_VARIABLE=here LD_PRELOAD=/nosuch.so run_and_show as_alice srun --container-image=registry.test/tiny true
  [ "$status" -ne 0 ]
  cd /tmp/importer-cache
  grep -x 'SITE_VARIABLE=here' env
  grep -x 'PYXIS_VERSION=0.24.0' env
  grep -x 'PYXIS_RUNTIME_PATH=/run/situla/importer' env
  grep -Ex 'SLURM_JOB_ID=[0-9]+' env
  grep -x 'SLURM_STEP_ID=0' env
  grep -x "SLURM_JOB_UID=$(id -u alice)" env
  grep -x "SLURM_JOB_GID=$(id -g alice)" env
  grep -x 'HOME=/home/alice' env
  if grep -E '^(LD_PRELOAD|SLURM_PROCID)=' env; then false; fi
  [ "$(cat pwd)" = /home/alice ]
  [ "$(cat stat)" = 'alice 700' ]
  [ "$(cat stdin)" = /dev/null ]
  [ "$(grep -c . fds)" -le 4 ] # 0, 1, 2, and ls's own
  rm -rf /run/situla/importer
}

@test "the program has no rights: it is the job's user, with the job's groups and no capability" {
  importer <<'EOF'
grep -E '^(Uid|CapEff|CapPrm):' /proc/self/status >/tmp/importer-cache/status
id -Gn >/tmp/importer-cache/groups
exit 1
EOF
  run_and_show as_alice srun --container-image=registry.test/tiny true
  [ "$status" -ne 0 ]
  grep -Eq '^Uid:(.*'"$(id -u alice)"'){4}' /tmp/importer-cache/status
  [ "$(grep -Ec 'Cap(Eff|Prm):[[:space:]]0+$' /tmp/importer-cache/status)" -eq 2 ]
  grep -qw crew /tmp/importer-cache/groups
}

@test "batch scripts have an image from it, too" {
  caching_importer
  printf '#!/bin/sh\ncat /srv/hello.txt\n' >/tmp/script
  run_and_show as_alice "$lab_tests/submit" -o /tmp/importer-cache/out --container-image=registry.test/tiny /tmp/script
  [ "$status" -eq 0 ]
  grep -q '^hello from the top layer' /tmp/importer-cache/out
  wait_until 30 released
  grep -Eq '^release .*alice [0-9]+\.[0-9]+$' "$calls"
}

@test "the program is not called for an image in a file" {
  caching_importer
  as_alice srun --container-image=registry.test/tiny true
  rm -f "$calls"
  install -m 0666 /dev/null "$calls"
  run_and_show as_alice srun --container-image=/tmp/importer-cache/registry.test+tiny.sqsh true
  [ "$status" -eq 0 ]
  [ ! -s "$calls" ]
}

@test "named containers: made from it once, reused without it" {
  caching_importer
  snapshot
  run_and_show as_alice srun --container-image=registry.test/tiny --container-name=kept cat hello.txt
  [ "$status" -eq 0 ]
  wait_until 30 released
  run_and_show as_alice srun --container-image=registry.test/tiny --container-name=kept cat hello.txt
  [ "$status" -eq 0 ]
  [ "$(cut -d ' ' -f 1 "$calls" | paste -sd ' ')" = "get release" ]
  as_alice "$SITULA_LAB_PREFIX/bin/enroot" remove -f pyxis_kept
}

@test "the image may be gone from its place while the container runs" {
  caching_importer
  as_alice srun --container-image=registry.test/tiny --container-mounts=/tmp/importer-cache:/cache \
    sh -c 'echo started; until [ -e /cache/gone ]; do sleep 0.1; done; cat hello.txt' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  local step=$!
  wait_until 30 grep -q started "$BATS_TEST_TMPDIR/out"
  rm /tmp/importer-cache/*.sqsh
  touch /tmp/importer-cache/gone
  wait "$step"
  grep '^hello from the top layer' "$BATS_TEST_TMPDIR/out"
}

@test "what the program prints to stderr is shown when it fails, and only then" {
  importer <<'EOF'
echo "looking for $2" >&2
echo "no such image, $(printf '\033[31m')ask the help desk" >&2
exit 3
EOF
  fails_with 'exited with return code 3' 'importer: looking for docker://registry.test/tiny' 'x1b\[31mask the help desk' 'hint: .*importer='
  caching_importer
  run_and_show as_alice srun --container-image=registry.test/tiny true
  [ "$status" -eq 0 ]
  if grep -q 'importer:' <<<"$output"; then false; fi
}

@test "a program that is missing, not executable, or no program" {
  rm -f /tmp/importer
  snapshot
  run_and_show as_alice srun --container-image=registry.test/tiny true
  [ "$status" -ne 0 ]
  grep -q '/tmp/importer get: execute /tmp/importer: No such file' <<<"$output"
  grep -q 'hint: .*importer=' <<<"$output"
  importer </dev/null
  chmod 0644 /tmp/importer
  run_and_show as_alice srun --container-image=registry.test/tiny true
  grep -q 'execute /tmp/importer: Permission denied' <<<"$output"
  head -c 4096 /dev/urandom >/tmp/importer
  chmod 0755 /tmp/importer
  run_and_show as_alice srun --container-image=registry.test/tiny true
  grep -q 'execute /tmp/importer: Exec format error' <<<"$output"
  rm /tmp/importer
  nothing_left
}

@test "a program that prints no path" {
  importer <<<'exit 0'
  fails_with 'it printed no path'
  importer <<<'echo'
  rm -f "$calls" && install -m 0666 /dev/null "$calls"
  fails_with 'it printed no path'
}
@test "a program that prints a path that is not absolute" {
  importer <<<'echo image.sqsh'
  fails_with 'not an absolute path: image.sqsh'
}
@test "a program that prints a line that is too long for a path" {
  importer <<<"printf '/%.0sx' {1..5000}; echo"
  fails_with 'too long for a path'
}
@test "a program that prints the path of a missing file, and complains" {
  importer <<<'echo "disk is away" >&2; echo /nosuch/image.sqsh'
  fails_with 'open /nosuch/image.sqsh: No such file' 'importer: disk is away'
}
@test "a program that prints the path of a file that the user may not read" {
  install -m 0600 /dev/null /tmp/importer-cache/secret.sqsh
  importer <<<'echo /tmp/importer-cache/secret.sqsh'
  fails_with 'open /tmp/importer-cache/secret.sqsh: Permission denied'
}
@test "a program that prints the path of a text file, a directory, a FIFO, a device" {
  importer <<<'echo /etc/passwd'
  fails_with '/etc/passwd is not a squashfs file'
  for path in /tmp /tmp/importer-cache/fifo /dev/zero; do
    rm -f "$calls" && install -m 0666 /dev/null "$calls"
    [ -e "$path" ] || mkfifo -m 0666 "$path"
    importer <<<"echo $path"
    fails_with "$path is not a regular file"
  done
}
@test "a program that prints the path of a file that only begins like squashfs" {
  importer <<<'{ printf hsqs; head -c 100000 /dev/urandom; } >/tmp/importer-cache/bad.sqsh; echo /tmp/importer-cache/bad.sqsh'
  snapshot
  run_and_show as_alice timeout 60 srun --container-image=registry.test/tiny true
  [ "$status" -ne 0 ]
  [ "$status" -ne 124 ]
  grep -q 'error: situla: .' <<<"$output"
  rm -f /tmp/importer-cache/bad.sqsh
  nothing_left
}
@test "a program whose output does not end" {
  importer <<<'exec yes /tmp/image.sqsh'
  fails_with 'prints more than 64 KiB'
}
@test "a program whose complaints do not end fills no memory" {
  importer <<<'head -c 300000000 /dev/zero >&2; exit 1'
  fails_with 'exited with return code 1'
}
@test "a program that is killed by a signal" {
  importer <<<'kill -9 $$'
  fails_with 'was killed by SIGKILL'
}
@test "a process that the program leaves behind, with its output open, is not waited for" {
  importer <<EOF
image=/tmp/importer-cache/i.sqsh
$SITULA_LAB_PREFIX/bin/enroot import -o "\$image" "\$2" || exit
echo "\$image"
sleep 300 &
EOF
  local begin=$SECONDS
  run_and_show as_alice srun --container-image=registry.test/tiny true
  [ "$status" -eq 0 ]
  [ $((SECONDS - begin)) -lt 60 ]
  pkill -u alice -x sleep || true # where Slurm tracks processes by cgroup it has ended them
}

@test "scancel while the program works: it ends at once, with what it started, and release is called" {
  importer <<<'echo going >/tmp/importer-cache/going; sleep 1000 & sleep 1001'
  snapshot
  as_alice srun --container-image=registry.test/tiny true >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 30 test -e /tmp/importer-cache/going
  as_alice scancel -u alice
  wait_until 10 released # before KillWait
  wait
  cat "$BATS_TEST_TMPDIR/out"
  wait_until 30 no_sleep
  rm -f /tmp/importer-cache/going
  nothing_left
}

@test "scancel while the tasks run: release is called" {
  caching_importer
  as_alice srun --container-image=registry.test/tiny sh -c 'echo started; exec sleep 300' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 30 grep -q started "$BATS_TEST_TMPDIR/out"
  [ "$(grep -c ^release "$calls")" -eq 0 ]
  as_alice scancel -u alice
  wait_until 30 released
}

@test "a step that fails afterwards: release is called, too" {
  caching_importer
  run_and_show as_alice srun --container-image=registry.test/tiny --container-mounts=/tmp:/bin/sh/below-a-file true
  [ "$status" -ne 0 ]
  wait_until 30 released
  grep -q below-a-file <<<"$output"
}

@test "a release that fails or hangs does not hurt the step, and what it starts ends with it" {
  release='sleep 1002 & exit 4' caching_importer
  run_and_show as_alice srun --container-image=registry.test/tiny true
  [ "$status" -eq 0 ]
  wait_until 30 released
  release='sleep 1003; exit 0' caching_importer
  run_and_show as_alice srun --container-image=registry.test/tiny true
  [ "$status" -eq 0 ]
  wait_until 30 released 2
  wait_until 30 no_sleep
}

# bats file_tags=lab:two-nodes

# By the name that the user wrote.
@test "get and release once on every node of a step" {
  install -m 0666 /dev/null /shared/calls
  cat >/shared/importer <<EOF
#!/bin/bash
echo "\$1 \$2 \$(hostname)" >>/shared/calls
[ "\$1" = get ] || exit 0
image=\$PYXIS_RUNTIME_PATH/\$SLURM_JOB_UID/\$SLURM_JOB_ID.sqsh
$SITULA_LAB_PREFIX/bin/enroot import -o "\$image" "\$2" && echo "\$image"
EOF
  chmod 0755 /shared/importer
  run_and_show as_alice srun -N2 -n4 --container-image=registry.test/tiny:latest sh -c 'echo "$SLURM_PROCID $(cat hello.txt)"'
  [ "$status" -eq 0 ]
  [ "$(grep -c '^[0-3] hello from the top layer$' <<<"$output")" -eq 4 ]
  all_released() { [ "$(grep -c ^release /shared/calls)" -eq 2 ]; }
  wait_until 30 all_released
  cat /shared/calls
  [ "$(sort /shared/calls)" = "get docker://registry.test/tiny:latest node1
get docker://registry.test/tiny:latest node2
release  node1
release  node2" ]
  # What pyxis has below its runtime_path: a directory for each user.
  [ "$(stat -c '%U %a' "/tmp/pyxis/$(id -u alice)")" = 'alice 700' ]
  [ "$(find "/tmp/pyxis/$(id -u alice)" -name '*.sqsh' | wc -l)" -eq 1 ]
}
