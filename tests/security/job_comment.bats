# lab: --user root --proctrack cgroup
# What of a user's gets into the record of a job (job_comment), and what is gained from the process that writes there?
load ../cluster/helpers

settings=/etc/situla/situla.toml

setup() {
  cd /home/alice
  rm -rf /run/seen && mkdir -m 1777 /run/seen
}
teardown() {
  umount /usr/bin/squeue 2>/dev/null || true
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
  rm -f "$settings"
}

set_to() { printf 'job_comment = "%s"\n' "$1" >"$settings"; }
said() { scontrol show job "$1" | sed -n "s/^   $2=//p" | sed 's/ *$//'; }
says() { [ -n "$(said "$1" "$2")" ]; }
start() {
  as_alice srun --job-name="$1" "${@:2}" sleep 300 >"$BATS_TEST_TMPDIR/$1.out" 2>&1 3>&- &
  job=$(running_job "$1")
}
# In the place of Slurm's squeue, for steps of this node.
stand_in() {
  # The tests ask the real one.
  mkdir -p /run/bin
  cp /usr/bin/squeue /run/bin/
  PATH=/run/bin:$PATH
  printf '%s\n' '#!/bin/bash' "$@" >/run/squeue
  chmod 755 /run/squeue
  mount --bind /run/squeue /usr/bin/squeue
}

@test "an image's name is a word, whatever it holds, and changes nothing else of the job" {
  set_to admin_comment
  local name=$'x\' JobName=forged "Nice=0; $(touch ran) `touch ran`\nAdminComment=+=y \e[1m.sqsh'
  as_alice situla import -o "/home/alice/tiny.sqsh" docker://registry.test/tiny
  mv tiny.sqsh "$name"
  start hostile --container-image="/home/alice/$name" --comment=mine
  wait_until 40 says "$job" AdminComment
  said "$job" AdminComment
  [[ $(said "$job" AdminComment) =~ ^'situla: /home/alice/x%27%20JobName%3dforged%20%22Nice%3d0%3b%20%24%28touch%20ran%29%20%60touch%20ran%60%5cx0aAdminComment%3d+%3dy%20%5cx1b%5b1m.sqsh file;'$ ]]
  [ "$(scontrol show job "$job" | grep -c 'AdminComment=')" -eq 1 ]
  [ "$(squeue -h -j "$job" -o %j)" = hostile ]
  [ "$(said "$job" Comment)" = mine ]
  ! find /home/alice /tmp / -maxdepth 1 -name ran | grep . || false
}

@test "the process that writes has no capability and no descriptor, and lives where it should" {
  # shellcheck disable=SC2016 # in the stand-in
  stand_in 'who=$(cut -d" " -f4 /proc/self/stat)' \
    'for pid in self $PPID; do' \
    '  { grep -E "^(Uid|Gid|Groups|Cap.*|NoNewPrivs):" /proc/$pid/status; cat /proc/$pid/cgroup; tr "\0" "\n" </proc/$pid/environ; } >/run/seen/$pid.status 2>&1' \
    '  ls -l /proc/$pid/fd >/run/seen/$pid.fds 2>&1' \
    'done' 'mv /run/seen/$PPID.status /run/seen/recorder.status; mv /run/seen/$PPID.fds /run/seen/recorder.fds; touch /run/seen/done' 'exec sleep 987'
  local kind uid
  for kind in comment admin_comment; do
    rm -f /run/seen/*
    set_to $kind
    start "$kind" --container-image=registry.test/tiny
    wait_until 40 test -e /run/seen/done
    grep . /run/seen/*.status /run/seen/*.fds
    uid=0
    [ $kind = admin_comment ] || uid=$(id -u alice)
    for who in self recorder; do
      # Of squeue: the shell itself.
      [ "$(grep -c -E '^Cap(Inh|Prm|Eff|Bnd|Amb):.0{16}$' /run/seen/$who.status)" -eq 5 ]
      grep -q -x -P "Uid:\t$uid\t$uid\t$uid\t$uid" /run/seen/$who.status
      grep -q -x -P 'NoNewPrivs:\t1' /run/seen/$who.status
      if [ $kind = comment ]; then
        grep -q -E ":freezer:.*/job_$job/step_0" /run/seen/$who.status
      else
        grep -q -E ':freezer:.*/situla/broker/' /run/seen/$who.status
      fi
    done
    # Nothing but /dev/null, pipes between the two, and the script that is read.
    ! grep -E -- '->' /run/seen/recorder.fds | grep -v -E -e '/dev/null$' -e 'pipe:' -e '\[pidfd\]' || false
    # Nothing of the user's environment.
    ! grep -E '^(HOME|USER|SLURM_JOB|LD_)' /run/seen/recorder.status || false
    as_alice scancel "$job"
    wait || true
  done
}

@test "programs that are not root's are not run" {
  set_to admin_comment
  stand_in 'touch /run/seen/forged'
  chown alice /run/squeue
  as_alice env PATH="/home/alice/bin:$PATH" SLURM_CONF=/etc/slurm/slurm.conf srun --container-image=registry.test/tiny sleep 2
  [ ! -e /run/seen/forged ]
  # And one that is, is.
  chown root /run/squeue
  as_alice srun --container-image=registry.test/tiny sleep 2
  [ -e /run/seen/forged ]
}

@test "what a user calls his job is not taken for what an administrator wrote" {
  set_to admin_comment
  local name=$'n\n   AdminComment=situla: registry.test/tiny '
  as_alice srun --job-name="$name" --comment="$name" --container-image=registry.test/tiny sleep 300 >/dev/null 2>&1 3>&- &
  recorded() { job=$(squeue -h -u alice -t running -O JobID:16 | grep -o '^[0-9]*' | head -n 1) && [[ $(squeue -h -j "$job" -O admin_comment:1100) == "situla: registry.test/tiny sha256:"* ]]; }
  wait_until 40 recorded
}

@test "a user who stops the process that writes his comment holds up nothing, and it is gone with the step" {
  set_to comment
  snapshot
  stand_in 'exec sleep 987'
  as_alice srun --job-name=stopped --container-image=registry.test/tiny sh -c 'sleep 8; echo went on' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  local srun=$!
  wait_until 30 pgrep -x situla-recorder
  as_alice pkill -STOP -x situla-recorder
  as_alice pkill -STOP -f '^sleep 987$'
  wait $srun
  grep -q 'went on' "$BATS_TEST_TMPDIR/out"
  umount /usr/bin/squeue
  nothing_left
}

@test "a user cannot touch the one that writes an AdminComment" {
  set_to admin_comment
  stand_in 'exec sleep 987'
  start touch --container-image=registry.test/tiny
  wait_until 30 pgrep -x situla-recorder
  local pid
  pid=$(pgrep -x situla-recorder)
  run as_alice kill "$pid"
  [ "$status" -ne 0 ]
  run as_alice strace -p "$pid"
  [ "$status" -ne 0 ]
  run as_alice ls "/proc/$pid/fd"
  [ "$status" -ne 0 ]
}
