# lab: --user root --proctrack cgroup --gpus 1 --slurm-file tests/security/confine/cgroup.conf --slurm-conf SelectTypeParameters=CR_Core_Memory
# Where does what Situla starts live? In the job's cgroup, with the job's limits, or in Situla's own; nothing in slurmd's. This file runs
# on version 1 and version 2 of cgroups alike.
load ../cluster/helpers
load logins

setup_file() { keep_login; }

teardown() {
  as_alice scancel -u alice 2>/dev/null || true
  pkill -u alice -f '[s]leep 98[0-9]' || true
}

teardown_file() { restore_login; }

# before: "situla-importer --store: OUTSIDE job", and the same for situla-broker, situla-builder request, and bash and sleep of .credentials
@test "every process of an import, of a step and of a save lives in the job's cgroup or in Situla's own" {
  password_from 'sleep 1'
  mkfifo "$BATS_TEST_TMPDIR/end"
  "$BATS_TEST_DIRNAME/confine/where" $$ alice situla situla-import <"$BATS_TEST_TMPDIR/end" >"$BATS_TEST_TMPDIR/seen" 3>&- &
  exec 9>"$BATS_TEST_TMPDIR/end"
  run_and_show as_alice srun -n2 --container-image=auth.test/tiny --container-save=/home/alice/saved.sqsh sleep 1 9>&- 3>&-
  [ "$status" -eq 0 ]
  run_and_show as_alice srun --container-name=kept --container-image=auth.test/tiny sleep 0.5 9>&- 3>&-
  [ "$status" -eq 0 ]
  # With what follows the jobs: one may still be where it was started.
  wait_until 60 no_jobs
  exec 9>&-
  wait
  cat "$BATS_TEST_TMPDIR/seen"
  # What has to be seen for this to mean anything.
  for name in situla-broker situla-importer situla-builder 'sleep'; do grep -q "^$name" "$BATS_TEST_TMPDIR/seen"; done
  ! grep OUTSIDE "$BATS_TEST_TMPDIR/seen" || false
}

# before: 286 sleep 987, long after its job
@test "what a command in .credentials starts ends with the job" {
  password_from '(setsid sleep 987 >/dev/null 2>&1 </dev/null &)'
  run_and_show as_alice srun --container-image=auth.test/tiny true
  [ "$status" -eq 0 ]
  run wait_until 30 no_process 'sleep 987'
  pgrep -a -u alice sleep || true
  [ "$status" -eq 0 ]
}
no_jobs() { [ -z "$(squeue -h)" ]; }
no_process() { ! pgrep -f -x "$1" >/dev/null; }

# before: srun --mem=100 succeeds, and 400 MiB are taken
@test "what a command in .credentials starts has no more memory than the job" {
  rm -f /shared/took
  password_from 'python3 -c "x = b\"1\" * (400 << 20); open(\"/shared/took\", \"w\")" 2>/dev/null'
  run_and_show as_alice srun --mem=100 --container-image=auth.test/tiny true
  [ ! -e /shared/took ]
  # It is the limit: with more, it does.
  run_and_show as_alice srun --mem=1000 --container-image=auth.test/tiny true
  [ -e /shared/took ]
}

# before: only "the importer was killed by SIGKILL", hint: the system log
@test "an import for which the job has not enough memory says so" {
  run_and_show as_alice srun --mem=20 --container-image=registry.test/debian:12 true
  [ "$status" -ne 0 ]
  grep -q "the importer was killed by SIGKILL: the step's memory was used up" <<<"$output"
  grep -q 'hint: ask for more memory (--mem)' <<<"$output"
}

# before: "opened" also without --gres=gpu
@test "what a command in .credentials starts opens no device that the job has not got" {
  local device=/dev/loop0
  [ ! -e /dev/vmgpu0 ] || device=/dev/vmgpu0
  chmod 666 "$device"
  password_from "(exec <$device) 2>/dev/null && echo opened >>/shared/devices || echo refused >>/shared/devices"
  for gpu in --gres=none --gres=gpu:1; do
    rm -f /shared/devices
    run_and_show as_alice srun "$gpu" --container-image=auth.test/tiny true
    [ "$status" -eq 0 ]
    [ "$gpu" = --gres=none ] || expected=opened
    [ "$(sort -u /shared/devices)" = "${expected:-refused}" ]
  done
}

# before: the process lived on in /job_N, with the job's GPU, until somebody killed it by hand
@test "what a hook of a named container started ends with the job" {
  password_from true
  mkdir -p /home/alice/.config/enroot/hooks.d
  cat >/home/alice/.config/enroot/hooks.d/10-stay.sh <<'HOOK'
#!/bin/bash
python3 -c 'import os, signal, time
for number in (1, 2, 15): signal.signal(number, signal.SIG_IGN)
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
time.sleep(986.5)' </dev/null >/dev/null 2>&1
HOOK
  chmod 755 /home/alice/.config/enroot/hooks.d/10-stay.sh
  chown -R alice: /home/alice/.config
  run_and_show as_alice srun --container-name=stays --container-image=registry.test/tiny true
  rm -r /home/alice/.config/enroot/hooks.d
  [ "$status" -eq 0 ]
  run wait_until 20 no_process '.*time.sleep.986.5..*'
  pgrep -af 'sleep.986.5' || true
  [ "$status" -eq 0 ]
  # Nothing waits for it any more.
  wait_until 20 no_process 'situla-broker epilog.*'
}

# before: there is no such file: all users share the limits of situla/broker
@test "processes and memory that one user's brokers take are not missed by another's" {
  password_from true
  run_and_show as_alice srun --container-image=registry.test/tiny true
  [ "$status" -eq 0 ]
  local limits
  limits=$(find /sys/fs/cgroup -path "*/situla/broker/$(id -u alice)/pids.max")
  [ -n "$limits" ]
  [ "$(cat "$limits")" = 1024 ]
  # As if hers were all there.
  echo 1 >"$limits"
  run_and_show as_alice timeout 60 srun --container-image=registry.test/tiny true
  [ "$status" -ne 0 ]
  run_and_show as bob timeout 60 srun --container-image=registry.test/tiny echo works
  echo 1024 >"$limits"
  [ "${lines[-1]}" = works ]
}

# before: a stopped situla-builder for good, in no job's cgroup
@test "what cleans up after a step ends when root says so, whatever a process of the same user has done to it" {
  [ "$(uname -m)" = x86_64 ] || skip "outlive.py is written for x86_64"
  [ "$(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null || echo 0)" = 0 ] || skip "this kernel lets users trace children only"
  as_alice srun --container-writable --container-image=registry.test/tiny \
    sh -c 'cd /opt; i=0; while [ $i -lt 20000 ]; do : >$i; i=$((i + 1)); done; exec sleep 988' 3>&- &
  wait_until 60 asleep 988
  as_alice python3 "$BATS_TEST_DIRNAME/outlive.py" 60 situla-builder clean >"$BATS_TEST_TMPDIR/outlived" 3>&- &
  local attacker=$!
  pkill -KILL -u alice -f '^situla-builder container'
  as_alice scancel -u alice
  wait "$attacker"
  local cleaner
  cleaner=$(cat "$BATS_TEST_TMPDIR/outlived")
  [ -n "$cleaner" ]
  run wait_until 30 is_gone "$cleaner"
  ps -o pid,stat,args -p "$cleaner" || true
  kill -KILL "$cleaner" 2>/dev/null || true
  [ "$status" -eq 0 ]
}
is_gone() { ! kill -0 "$1" 2>/dev/null; }
