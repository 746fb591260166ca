# lab:
# --container-unshare: which namespaces a container has of its own, and what tasks that share or join it see. As alice, on a node.
load helpers

setup_file() { srun --container-image=registry.test/tiny true; }

setup() {
  work=$(mktemp -d "$HOME/unshare.XXXXXX")
  cd "$work"
  enroot remove -f pyxis_x 2>/dev/null || true
}

teardown() {
  scancel -u alice 2>/dev/null || true
  wait 2>/dev/null || true
  wait_until 30 sh -c '! pgrep -u alice situla'
  cd /
  rm -rf "$work"
}

inside() { srun --container-image=registry.test/tiny "$@"; }
host() { readlink "/proc/self/ns/$1"; }

@test "each namespace by itself, all together, and none" {
  local kind wanted
  for wanted in net ipc uts pid net,ipc uts,pid net,ipc,uts,pid; do
    run_and_show inside --container-unshare=$wanted sh -c 'for kind in net ipc uts pid; do readlink /proc/self/ns/$kind; done'
    [ "$status" -eq 0 ]
    for kind in net ipc uts pid; do
      if [[ ",$wanted," == *",$kind,"* ]]; then
        [[ "$output" == *"$kind:"* ]]
        [[ "$output" != *"$(host $kind)"* ]]
      else
        [[ "$output" == *"$(host $kind)"* ]]
      fi
    done
  done
  run_and_show inside --container-unshare=mount true
  [ "$status" -ne 0 ]
  [[ "$output" == *'--container-unshare: unknown namespace: mount'* ]]
}

@test "net: a loopback that works, no other interface, a sysfs of its own" {
  run_and_show inside -n4 --container-unshare=net sh -c '
    readlink /proc/self/ns/net
    [ "$(ls /sys/class/net)" = lo ] && echo only lo
    touch /sys/class/net/x 2>&1 | grep -q . && echo read-only
    if [ $SLURM_LOCALID = 0 ]; then echo "through the port" | timeout 60 nc -l -p 7777
    elif [ $SLURM_LOCALID = 1 ]; then for i in $(seq 100); do nc -w 5 127.0.0.1 7777 </dev/null && break; sleep 0.3; done; fi'
  [ "$(grep -c '^net:' <<<"$output")" -eq 4 ]
  [ "$(grep '^net:' <<<"$output" | sort -u | wc -l)" -eq 1 ]
  [ "$(grep -cx 'only lo' <<<"$output")" -eq 4 ]
  [ "$(grep -cx read-only <<<"$output")" -eq 4 ]
  grep -qx 'through the port' <<<"$output"
}

@test "ipc: shared memory and queues of its own, which the tasks share" {
  : >/dev/shm/of-the-host
  run_and_show inside -n2 --container-unshare=ipc sh -c 'ls /dev/shm; [ $SLURM_LOCALID = 0 ] && : >/dev/shm/inside
    for i in $(seq 300); do [ ! -e /dev/shm/inside ] || break; sleep 0.1; done; ls /dev/shm /dev/mqueue; echo x >/dev/null && head -c1 /dev/zero | wc -c'
  rm /dev/shm/of-the-host
  [ "$status" -eq 0 ]
  [[ "$output" != *of-the-host* ]]
  [ "$(grep -cx inside <<<"$output")" -ge 2 ]
  [ ! -e /dev/shm/inside ]
}

@test "uts: a host name of its own" {
  run_and_show inside --container-remap-root --container-unshare=uts sh -c 'hostname changed && hostname'
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = changed ]
  [ "$(hostname)" != changed ]
}

@test "pid: few processes, exit codes, signals, a terminal, nothing left" {
  run_and_show inside -n2 --container-unshare=pid sh -c 'ls -d /proc/[0-9]* | wc -l; readlink /proc/self/ns/pid'
  [ "$status" -eq 0 ]
  [ "$(grep '^pid:' <<<"$output" | sort -u | wc -l)" -eq 1 ]
  [ "$(grep -E '^[0-9]+$' <<<"$output" | sort -n | tail -n 1)" -lt 15 ]
  run inside --container-unshare=pid sh -c 'exit 42'
  [ "$status" -eq 42 ]
  run inside --container-unshare=pid sh -c 'kill -9 $$'
  [ "$status" -eq 137 ]
  run_and_show script -qec 'srun --pty --container-unshare=pid --container-image=registry.test/tiny sh -c "test -t 0 && tty && exit 3"' /dev/null
  [ "$status" -eq 3 ]
  [[ "$output" == */dev/pts/* ]]
  inside --container-unshare=pid sh -c 'sleep 300 & echo'
  wait_until 30 sh -c '! pgrep -u alice -x sleep'
}

@test "pid: signals by scancel reach the program" {
  inside --container-unshare=pid sh -c 'trap "echo got usr1" USR1; trap "echo got term; exit 5" TERM; echo started; while :; do sleep 0.1; done' >out 2>&1 3>&- &
  wait_until 30 grep -q started out
  scancel -s USR1 -u alice
  wait_until 30 grep -q 'got usr1' out
  scancel -u alice
  wait_until 30 grep -q 'got term' out
  wait
}

@test "from enroot's configuration: ENROOT_UNSHARE_NET of the job's environment" {
  ENROOT_UNSHARE_NET=y run_and_show inside sh -c 'ls /sys/class/net; readlink /proc/self/ns/ipc'
  [ "$status" -eq 0 ]
  [[ "$output" == *"$(host ipc)"* ]]
  [ "${lines[-2]}" = lo ]
  ENROOT_UNSHARE_PID=yes run_and_show inside readlink /proc/self/ns/pid
  [[ "$output" != *"$(host pid)"* ]]
}

@test "a task that joins gets what the container has, and an error when it wants more" {
  srun -J first --container-unshare=net,pid --container-name=x --container-image=registry.test/tiny --container-mounts="$work:/work" \
    sh -c 'readlink /proc/self/ns/net >/work/net; readlink /proc/self/ns/pid >/work/pid; while [ ! -e /work/stop ]; do sleep 0.1; done' >first.log 2>&1 3>&- &
  wait_until 30 test -s pid
  run_and_show srun -n2 --container-name=x:exec sh -c 'readlink /proc/self/ns/net; readlink /proc/self/ns/pid'
  [ "$status" -eq 0 ]
  [ "$(grep -cFx "$(cat net)" <<<"$output")" -eq 2 ]
  [ "$(grep -cFx "$(cat pid)" <<<"$output")" -eq 2 ]
  run_and_show srun --container-unshare=net --container-name=x:exec true
  [ "$status" -eq 0 ]
  run_and_show srun --container-unshare=ipc --container-name=x:exec true
  [ "$status" -eq 1 ]
  [[ "$output" == *'not in a separate IPC namespace'* ]]
  run_and_show srun --container-unshare=net,uts --container-name=x true
  [ "$status" -eq 1 ]
  [[ "$output" == *'not in a separate UTS namespace'* ]]
  : >stop
  wait
}
