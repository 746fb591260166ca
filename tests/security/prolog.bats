# lab: --user root --proctrack cgroup --slurm-file tests/security/confine/cgroup.conf --slurm-conf SelectTypeParameters=CR_Core_Memory --slurm-conf PrologFlags=Alloc --situla-conf tests/cluster/no_idle.toml
# What a job's prolog begins runs before the job has a cgroup: where does it live, and what of the user's may run there?
load ../cluster/helpers
load logins

setup_file() { keep_login; }

setup() {
  cd /home/alice || return
  rm -rf /var/lib/situla/*
}

# As alice, but not as_alice: runuser stops with its child, which a later test stops, and nothing of hers would make it go on.
alone() { setpriv --reuid alice --regid alice --init-groups env HOME=/home/alice USER=alice LOGNAME=alice "$@"; }

teardown() {
  pkill -KILL -u alice -f stop.py || true
  as_alice scancel -u alice 2>/dev/null || true
  pkill -KILL -u alice -x salloc || true
  rm -f /shared/ran
}

teardown_file() { restore_login; }

is_held() { curl -s "http://proxy.test:3128/stats/$1" | jq -e .held >/dev/null; }
prolog_runs() { pgrep -f 'situla-broker prolog' >/dev/null; }

@test "on a node whose cgroups no step has shown yet, nothing is begun" {
  rm -f /run/situla/cgroups
  as_alice salloc -Q --mem=100 --container-image=registry.test/tiny sleep 2
  [ -z "$(find /var/lib/situla -name '*.sqsh')" ]
  [ ! -e /run/situla/cgroups ]
  wait_until 10 eval '! prolog_runs'
}

@test "who fetches lives in Situla's own cgroups, the user's process and the importer in those with his limits" {
  run_and_show as_alice srun --mem=100 --container-image=registry.test/tiny true
  [ "$status" -eq 0 ]
  alone env ENROOT_STALL_TIMEOUT=600 https_proxy=http://hold-701:x@proxy.test:3128 salloc -Q --mem=100 --container-image=registry.test/debian:12 sleep 60 3>&- &
  wait_until 30 is_held hold-701
  local pid name where count=0
  for pid in $(pgrep -f 'situla-(broker prolog|store|importer)'); do
    name=$(tr '\0' ' ' <"/proc/$pid/cmdline")
    where=$(sed -n 's/^[0-9]*:pids:\|^0:://p' "/proc/$pid/cgroup")
    echo "$name $where"
    case $name in
      *situla-importer*) [[ $where == */situla/cleanup/$(id -u alice)* ]] ;;
      *) [[ $where == */situla/broker/$(id -u alice)* ]] ;;
    esac
    count=$((count + 1))
  done
  [ "$count" -ge 3 ]
  # None that Slurm gives to jobs.
  local devices
  devices=$(find /sys/fs/cgroup/devices -path "*/situla/cleanup/$(id -u alice)/devices.list")
  [ "$(sort "$devices" | tr '\n' ,)" = 'c 1:3 rwm,c 1:5 rwm,c 1:7 rwm,c 1:8 rwm,c 1:9 rwm,' ]
}

@test "a command in .credentials is not run before the job has its cgroup, and the first step runs it" {
  password_from 'touch /shared/ran'
  chmod 1777 /shared
  # shellcheck disable=SC2016
  run_and_show as_alice salloc -Q --mem=100 --container-image=auth.test/tiny sh -c '
    sleep 2
    [ ! -e /shared/ran ] || echo "run in the prolog"
    srun true && [ -e /shared/ran ] && echo "run in the step"'
  [[ $output != *"run in the prolog"* ]]
  [[ $output == *"run in the step"* ]]
}

@test "neither is a credential helper that the user has on his PATH" {
  rm -rf /home/alice/own
  mkdir -p /home/alice/own/bin
  printf '#!/bin/sh\ntouch /shared/ran\n' >/home/alice/own/bin/docker-credential-own
  chmod 755 /home/alice/own/bin/docker-credential-own
  echo '{"credsStore": "own"}' >/home/alice/own/config.json
  chown -R alice: /home/alice/own
  password_from true
  as_alice env DOCKER_CONFIG=/home/alice/own PATH=/home/alice/own/bin:"$PATH" salloc -Q --mem=100 --container-image=registry.test/tiny sh -c 'sleep 3'
  [ ! -e /shared/ran ]
  [ -n "$(find /var/lib/situla -name '*.sqsh')" ]
  rm -rf /home/alice/own
}

images() { find /var/lib/situla -name '*.sqsh' | wc -l; }

@test "the login in a user's files is used, and nobody else's, whatever a job says of where it is" {
  echo "machine auth.test login alice password secret" >/home/alice/.config/enroot/.credentials
  chown -R alice: /home/alice/.config
  chmod 600 /home/alice/.config/enroot/.credentials
  as bob env ENROOT_CONFIG_PATH=/home/alice/.config/enroot HOME=/home/alice salloc -Q -D /tmp --mem=100 --container-image=auth.test/tiny sleep 3
  [ "$(images)" -eq 0 ]
  as_alice salloc -Q --mem=100 --container-image=auth.test/tiny sleep 3
  [ "$(images)" -eq 1 ]
}

# A process of alice's stops all others of hers, again and again; ahead of others (nice), for the one that it is meant for lives for milliseconds.
stop_all() {
  cat >/shared/stop.py <<'PYTHON'
import os, signal, time
print("ready", flush=True)
end = time.time() + 5
while time.time() < end:
    try:
        os.kill(-1, signal.SIGSTOP)
    except ProcessLookupError:
        pass
PYTHON
  nice -n -15 runuser -u alice -- python3 /shared/stop.py >"$BATS_TEST_TMPDIR/stop" 2>&1 3>&- &
  wait_until 20 grep -q ready "$BATS_TEST_TMPDIR/stop"
}
writer_is_there() { pgrep -u alice -f '^situla-(broker prolog|builder request before-job)' >/dev/null; }
end_job() {
  pkill -CONT -u alice || true
  scancel -u alice -s KILL || true
}

# before: it stayed for import_timeout, an hour
@test "the user's process that writes the request is gone after half a minute, whatever its user does with it" {
  as_alice srun -Q --mem=100 --container-image=registry.test/tiny true
  local id
  for _ in $(seq 10); do
    wait_until 20 eval '! prolog_runs'
    rm -rf /var/lib/situla/*
    # Not salloc: that it answers nothing ends its job after ten seconds.
    id=$(as_alice sbatch --parsable --hold -o /dev/null --mem=100 --container-image=registry.test/debian:12 --wrap 'sleep 60')
    stop_all
    scontrol release "$id"
    sleep 6
    if writer_is_there; then break; fi
    end_job
  done
  writer_is_there
  ps -u alice -o pid,stat,args
  run wait_until 40 eval '! writer_is_there'
  # Ended by its own limit, not with the job.
  local running
  running=$(squeue -h -j "$id" -t running -o %i)
  end_job
  [ "$status" -eq 0 ]
  [ "$running" = "$id" ]
  wait_until 20 eval '! prolog_runs'
}
