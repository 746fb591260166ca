# lab: --enroot-hooks tests/compat/hooks
# Ten hook scripts and three configuration scripts as sites and users write them, unchanged. COMPAT.md 6.3. As alice, on a node.
bats_require_minimum_version 1.5.0
. "$BATS_TEST_DIRNAME/../support/wait.bash"

setup_file() {
  mkdir -p /shared/site/licenses /shared/site/mpi/lib /shared/gpfs/projects /shared/gpfs/work /shared/scratch /shared/x11 /shared/sources
  echo "SERVER license 1055" >/shared/site/licenses/license.dat
  echo "a library" >/shared/site/mpi/lib/libfabric.so.1.2
  ln -sf libfabric.so.1.2 /shared/site/mpi/lib/libfabric.so.1
  echo "-----BEGIN CERTIFICATE-----" >/shared/site/ca-bundle.pem
  echo data >/shared/gpfs/projects/file
  touch /shared/x11/X0
  echo 'all:' >/shared/sources/Makefile
  cd "$HOME"
  [ -e debian+12.sqsh ] || enroot import docker://registry.test#debian:12
}

setup() {
  work=$(mktemp -d "$HOME/hooks.XXXXXX")
  cd "$work"
  export ENROOT_DATA_PATH=$work/data
  image=$HOME/debian+12.sqsh
  conf=$BATS_TEST_DIRNAME/conf
}

teardown() {
  cd /
  chmod -R u+rwX "$work"
  rm -rf "$work"
}

# What a container sees of each hook, a line for each; runs inside.
inspect='
  echo "license $LM_LICENSE_FILE $(cat $LM_LICENSE_FILE) $(touch /opt/licenses/x 2>/dev/null || echo ro)"
  echo "proxy $http_proxy $HTTP_PROXY"
  echo "gpfs $(cat /shared/gpfs/projects/file) $(ls -d /shared/gpfs/work)"
  echo "mpi $(cat /opt/site/mpi/lib/libfabric.so.1.2) $LD_LIBRARY_PATH"
  echo "hosts $(grep -c license.site.example /etc/hosts) $(grep -c localhost /etc/hosts)"
  echo "nsswitch $(grep -c ^hosts:.files$ /etc/nsswitch.conf)"
  echo "certificates $(cat $SSL_CERT_FILE) $REQUESTS_CA_BUNDLE"
  echo "timezone $TZ $(cat /etc/timezone)"
'
expected="license /opt/licenses/license.dat SERVER license 1055 ro
proxy http://proxy.test:3128 http://proxy.test:3128
gpfs data /shared/gpfs/work
mpi a library /opt/site/mpi/lib
hosts 1 1
nsswitch 1
certificates -----BEGIN CERTIFICATE----- /etc/site/ca.pem
timezone Europe/Berlin Europe/Berlin"

@test "start: every hook's work is seen inside" {
  http_proxy=http://proxy.test:3128 run --separate-stderr enroot start "$image" sh -c "$inspect"
  echo "$output" "$stderr"
  [ "$status" -eq 0 ]
  [ "$output" = "$expected" ]
}

@test "srun: the same hooks, the same result" {
  http_proxy=http://proxy.test:3128 run --separate-stderr srun --container-image=registry.test/debian:12 sh -c "$inspect"
  echo "$output" "$stderr"
  [ "$status" -eq 0 ]
  [ "$output" = "$expected" ]
}

@test "srun: a scratch directory for each job" {
  run --separate-stderr srun --container-image=registry.test/debian:12 sh -c 'touch /scratch/made && echo $SCRATCH $TMPDIR $SLURM_JOB_ID'
  echo "$output" "$stderr"
  [ "$status" -eq 0 ]
  [ "${output% *}" = "/scratch /scratch" ]
  [ -e "/shared/scratch/alice.${output##* }/made" ]
  [ "$(stat -c %a "/shared/scratch/alice.${output##* }")" = 700 ]
  # No job, no scratch.
  run --separate-stderr enroot start "$image" sh -c 'ls -d /scratch; echo "<$SCRATCH>"'
  [ "$output" = "<>" ]
}

@test "a hook that fails: start and step fail with its name, its code and what it said" {
  export SITE_PROJECT=expired
  run --separate-stderr enroot start "$image" true
  echo "$stderr"
  [ "$status" -eq 1 ]
  grep -Fxq '[WARN] project expired has no time left' <<<"$stderr"
  grep -Fxq '[ERROR] /etc/enroot/hooks.d/90-project.sh exited with return code 13 [hook]' <<<"$stderr"
  run --separate-stderr srun --container-image=registry.test/debian:12 true
  echo "$stderr"
  [ "$status" -eq 1 ]
  grep -q '\[WARN\] project expired has no time left' <<<"$stderr"
  grep -q '/etc/enroot/hooks.d/90-project.sh exited with return code 13' <<<"$stderr"
  unset SITE_PROJECT
  srun --container-image=registry.test/debian:12 true
}

@test "the user's own hooks run after the site's, in start and step" {
  mkdir -p config/hooks.d
  printf '#!/bin/bash\necho "LM_LICENSE_FILE=mine after $(grep -c ^TZ= "${ENROOT_ENVIRON}")" >>"${ENROOT_ENVIRON}"\n' >config/hooks.d/00-mine.sh
  printf 'exit 9\n' >config/hooks.d/50-off.sh
  chmod +x config/hooks.d/00-mine.sh
  export ENROOT_CONFIG_PATH=$work/config
  run --separate-stderr enroot start "$image" printenv LM_LICENSE_FILE
  [ "$output" = "mine after 1" ]
  run --separate-stderr srun --container-image=registry.test/debian:12 printenv LM_LICENSE_FILE
  [ "$output" = "mine after 1" ]
}

@test "a step that is cancelled while a hook runs leaves none of its processes" {
  mkdir -p config/hooks.d
  cat >config/hooks.d/50-slow.sh <<'HOOK'
#!/bin/bash
sleep 4321 &
setsid sleep 4322 &
touch "${HOME}/hook-runs"
sleep 4323
HOOK
  chmod +x config/hooks.d/50-slow.sh
  rm -f "$HOME/hook-runs"
  ENROOT_CONFIG_PATH=$work/config srun --job-name=slow --container-image=registry.test/debian:12 true 3>&- &
  srun_pid=$!
  wait_until 60 all_of_hook
  [ -e "$HOME/hook-runs" ]
  scancel --name=slow
  wait_until 60 none_of_hook
  wait "$srun_pid" || true
}
all_of_hook() { [ "$(pgrep -fc 'sleep 432[123]')" -eq 3 ]; }
none_of_hook() { ! pgrep -f 'sleep 432[123]'; }

@test "a hooks.d as enroot's package leaves it, with a changed script: that runs, what is missing does not" {
  mkdir -p etc/hooks.d
  cat >etc/hooks.d/10-shadow.sh <<'HOOK'
#!/usr/bin/env bash
set -eu
source "${ENROOT_LIBRARY_PATH}/common.sh"
common::checkcmd getent
IFS=: read -r user x uid gid x <<< "$(common::getpwent)"
echo "${user}:x:${uid}:${gid}:changed by the site:/:/bin/sh" >> "${ENROOT_ROOTFS}/etc/passwd"
HOOK
  chmod +x etc/hooks.d/10-shadow.sh
  ENROOT_SYSCONF_PATH=$work/etc ENROOT_MOUNT_HOME=y run --separate-stderr enroot start "$image" sh -c 'tail -n 1 /etc/passwd; grep -c ^nobody:x:65534:65534:nobody:/nonexistent /etc/passwd; ls -d /home/alice'
  echo "$output" "$stderr"
  [ "${lines[0]}" = "alice:x:$(id -u):$(id -g):changed by the site:/:/bin/sh" ]
  [ "${lines[1]}" = 1 ]
  [ "${#lines[@]}" -eq 2 ]
}

@test "conf: variables and mounts of a desktop session" {
  export DISPLAY=:0 XAUTHORITY=$work/authority
  echo cookie >authority
  run --separate-stderr enroot start --conf "$conf/desktop.sh" "$image" sh -c 'echo $DISPLAY $QT_X11_NO_MITSHM $(ls /tmp/.X11-unix) $(cat $XAUTHORITY) $HOME'
  echo "$output" "$stderr"
  [ "$output" = ":0 1 X0 cookie $HOME" ]
}

@test "conf: a server with directives, hooks and rc" {
  token=$(printf 'alice-9000' | sha256sum | cut -c 1-16)
  run --separate-stderr enroot start -c "$conf/notebook.sh" "$image" 9000
  echo "$output" "$stderr"
  [ "$status" -eq 0 ]
  [ "$output" = "serving on 9000 with $token, 1 words
port = 9000" ]
}

@test "conf: a build with sources from the host" {
  run --separate-stderr enroot start --conf="$conf/build.sh" "$image" sh -c 'pwd; ls $SOURCES; echo $MAKEFLAGS; touch x && echo rw; touch /src/x 2>/dev/null || echo ro'
  echo "$output" "$stderr"
  [ "$output" = "/build
Makefile
-j$(nproc)
rw
ro" ]
  grep -Fxq '[INFO] sources from /shared/sources' <<<"$stderr"
  mv /shared/sources /shared/elsewhere
  run --separate-stderr enroot start --conf="$conf/build.sh" "$image" true
  mv /shared/elsewhere /shared/sources
  [ "$status" -eq 1 ]
  grep -Fxq "[ERROR] no sources: /shared/sources" <<<"$stderr"
  grep -Fxq "[ERROR] $conf/build.sh exited with return code 1 [enroot-config]" <<<"$stderr"
}

@test "conf: its EXIT trap runs before the command, and what it has begun in the background stays with it" {
  # shellcheck disable=SC2016
  printf '%s\n' 'dir=$(mktemp -d "$PWD/scratch.XXXXXX")' 'trap '\''rm -r "$dir"; echo tidied >>"$PWD/said"'\'' EXIT' \
    'hooks() { touch "$dir/x"; sleep 4324 >/dev/null 2>&1 & }' 'rc() { exec "$@"; }' >trap.sh
  run --separate-stderr enroot start --conf trap.sh "$image" sh -c 'cat said; ls -d scratch.* 2>/dev/null; pwd' 3>&-
  echo "$output" "$stderr"
  [ "$status" -eq 0 ]
  [ "$(cat said)" = tidied ]
  [ -z "$(ls -d scratch.* 2>/dev/null)" ]
  pkill -f 'sleep 4324'
  printf '%s\n' 'trap "exit 9" EXIT' >trap.sh
  run --separate-stderr enroot start --conf trap.sh "$image" true
  [ "$status" -eq 1 ]
  grep -Fq 'trap.sh exited with return code 9' <<<"$stderr"
}

@test "conf: what it exports is there for --env, for files of variables and mounts, and for hooks; what it unsets is not" {
  mkdir -p etc/hooks.d etc/environ.d etc/mounts.d data
  touch data/x
  echo 'OF_FILE=${SITE_PROJECT}/x' >etc/environ.d/10-site.env
  echo '${DATA} /mnt none x-create=dir,bind,ro' >etc/mounts.d/10-site.fstab
  # shellcheck disable=SC2016
  printf '%s\n' '#!/bin/sh' 'echo "OF_HOOK=$SITE_PROJECT,${GONE-none},$$" >>"$ENROOT_ENVIRON"' >etc/hooks.d/50-site.sh
  chmod +x etc/hooks.d/50-site.sh
  # shellcheck disable=SC2016
  printf '%s\n' 'export TOKEN=$(echo "a b") SITE_PROJECT=p1 DATA=$PWD/data' 'unset GONE' 'NOT_EXPORTED=1' >export.sh
  # shellcheck disable=SC2016
  GONE=here TOKEN=old ENROOT_SYSCONF_PATH=$work/etc run --separate-stderr enroot start --conf export.sh -e TOKEN -e NOT_EXPORTED -e GONE "$image" \
    sh -c 'echo "$TOKEN|$OF_FILE|${OF_HOOK%,*}|${NOT_EXPORTED-}|$GONE|$(ls /mnt)"'
  echo "$output" "$stderr"
  [ "$status" -eq 0 ]
  [ "$output" = "a b|p1/x|p1,none|||x" ]
}

@test "an option with a value may be given twice: the last one counts" {
  printf 'environ() { echo OF=first; }\n' >first.sh
  printf 'environ() { echo OF=second; }\n' >second.sh
  # shellcheck disable=SC2016
  run --separate-stderr enroot start -c first.sh -e A=1 -c second.sh -e B=2 "$image" sh -c 'echo $OF $A $B'
  echo "$output" "$stderr"
  [ "$output" = "second 1 2" ]
}

@test "ENROOT_LOGIN_SHELL as enroot 1 had it, and a caller that ignores its children" {
  ENROOT_LOGIN_SHELL=-/bin/sh run --separate-stderr enroot start "$image" sh -c 'echo inside'
  echo "$output" "$stderr"
  [ "$output" = inside ]
  [ -z "$stderr" ]
  run --separate-stderr python3 -c 'import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execvp(sys.argv[1], sys.argv[1:])' \
    env ENROOT_UNSHARE_PID=y enroot start "$image" sh -c 'exit 7'
  echo "$output" "$stderr"
  [ "$status" -eq 7 ]
}
