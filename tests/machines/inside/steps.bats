# Situla on a node as sites have them: systemd, cgroup v2, AppArmor, Slurm that confines processors, memory and devices. The last test leaves
# steps under way: after_reboot.bats looks at the same disk.
load helpers

tiny=registry.test#tiny
debian=registry.test#debian:12

setup() { snapshot; }

# What a test that failed has left would make the next ones fail.
teardown() {
  [ -n "$BATS_TEST_COMPLETED" ] || as_alice scancel -u alice
}

@test "the machine is one: cgroup v2, AppArmor, two processors, and the doctor has nothing to say" {
  [ "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs ]
  [ "$(cat /sys/module/apparmor/parameters/enabled)" = Y ]
  [ "$(nproc)" = 2 ]
  run situla doctor
  echo "$output"
  [ "$status" -eq 0 ]
  ! grep -E '^ *fail' <<<"$output" || false
  run systemctl --failed --no-legend
  [ -z "$output" ]
}

@test "a cold start, and a warm one" {
  step --container-image=$tiny cat /etc/os-release /srv/hello.txt
  [ "$status" -eq 0 ]
  [[ $output == *'ID=tiny'*'hello from the top layer'* ]]
  [ "$(situla images | grep -c tiny)" -eq 1 ]
  step --container-image=$tiny sh -c 'id -un; nproc'
  [ "$output" = $'alice\n1' ]
  nothing_left
}

@test "an image's files are the user's by the way that this kernel and the store's file system have" {
  way=$(word owner)
  case $way in idmap) mount=kernel ;; reflink | dm) mount=$way ;; copy) mount=extracted ;; esac
  run situla doctor
  echo "$output"
  if [ "$mount" = extracted ]; then
    [[ $output =~ tier\ +images\ become\ root\ file\ systems\ by\ extraction ]]
  else
    [[ $output =~ image-owner\ +$way: ]]
  fi
  before=$(wc -l </var/log/slurm/slurmd.log)
  step --container-image=$tiny sh -c 'stat -c %u /srv/hello.txt; id -u'
  [ "$output" = "$(id -u alice)"$'\n'"$(id -u alice)" ]
  # slurmd's log gets it when the tasks are over.
  logged() { line=$(tail -n +$((before + 1)) /var/log/slurm/slurmd.log | grep "situla: image=$tiny "); }
  wait_until 30 logged
  echo "$line"
  [[ $line == *" mount=$mount "* ]]
  nothing_left
}

@test "an import of 50 MB: what reads foreign bytes runs in the step, the broker and the store program in Situla's own cgroup" {
  begin cold --container-image=$debian sh -c '. /etc/os-release; echo $VERSION_CODENAME'
  wait_until 60 runs situla-importer
  running 'situla-*' >/run/programs
  while read -r pid program; do
    group=$(cgroup_of "$pid")
    echo "$program $group"
    case $program in
      */situla-importer | */situla-builder) [[ $group == */step_0/* ]] ;;
      *) [[ $group == */situla/broker/"$(id -u alice)" ]] ;;
    esac
  done </run/programs
  grep -q situla-broker /run/programs
  grep -q situla-store /run/programs
  ends cold 0
  says cold '^bookworm$'
  nothing_left
}

@test "what serves an image file of a user runs in the step, beside its tasks" {
  as_alice situla import -o /home/alice/tiny.sqsh docker://$tiny
  begin served --container-image=./tiny.sqsh sh -c 'echo in; sleep 15; cat /srv/hello.txt'
  wait_until 60 says served in
  running situla-builder >/run/programs
  while read -r pid program; do
    group=$(cgroup_of "$pid")
    echo "$program $group"
    [[ $group == */step_0/user/situla ]]
  done </run/programs
  [ -s /run/programs ]
  ends served 0
  says served 'hello from the top layer'
  nothing_left
}

@test "a named container keeps what is written; a saved one is an image" {
  step --container-image=$tiny --container-name=kept --container-writable sh -c 'echo one >/srv/note'
  [ "$status" -eq 0 ]
  step --container-name=kept --container-writable --container-save=/home/alice/saved.sqsh sh -c 'cat /srv/note; echo two >>/srv/note'
  [ "$output" = one ]
  step --container-image=./saved.sqsh cat /srv/note
  [ "$output" = $'one\ntwo' ]
  step --container-image=$tiny --container-writable sh -c 'echo gone >/srv/note; cat /srv/note'
  [ "$output" = gone ]
  nothing_left
}

@test "import, create, start, export and remove, where users have their files" {
  as_alice situla import -o own.sqsh docker://$tiny
  as_alice situla create -n own own.sqsh
  as_alice situla start --rw own sh -c 'echo more >/srv/more; rm /srv/hello.txt'
  as_alice situla export -o again.sqsh own
  run --separate-stderr as_alice situla start again.sqsh sh -c 'cat /srv/more; ls /srv'
  echo "${stderr:-}$output"
  [[ $output == more$'\n'*more* ]]
  [[ $output != *hello.txt* ]]
  as_alice situla remove -f own
  as_alice rm own.sqsh again.sqsh
  found=$(as_alice find .local/share/enroot -mindepth 1 -maxdepth 1 '(' -name own -o -name '.*' ')' && as_alice find . -maxdepth 1 -name '.*.sqsh*')
  echo "$found"
  [ -z "$found" ]
  nothing_left
}

@test "sbatch and salloc" {
  as_alice tee /home/alice/batch.sh >/dev/null <<'BATCH'
#!/bin/sh
#SBATCH --container-image=registry.test/tiny
. /etc/os-release
echo "batch in $ID"
BATCH
  run as_alice sbatch --wait --output=/home/alice/batch.out /home/alice/batch.sh
  echo "$output"
  as_alice cat /home/alice/batch.out
  [ "$status" -eq 0 ]
  as_alice grep -qx 'batch in tiny' /home/alice/batch.out
  run as_alice salloc -Q -n2 srun --container-image=$tiny sh -c 'echo task $SLURM_PROCID'
  echo "$output"
  [ "$(grep ^task <<<"$output" | sort)" = $'task 0\ntask 1' ]
  nothing_left
}

@test "GPUs of each task: the container has those of the step, and a task opens its own only" {
  # Nobody answers behind these nodes: ENXIO is the kernel's word for one that may be opened, EPERM for one that may not.
  # shellcheck disable=SC2016
  probe='for n in 0 1; do if [ -c /dev/nvidia$n ]; then echo "$SLURM_PROCID: $n $( (: </dev/nvidia$n) 2>&1 | sed "s/.*: //")"; else echo "$SLURM_PROCID: no $n"; fi; done'
  NVIDIA_VISIBLE_DEVICES=all step -n2 --gpus-per-task=1 --container-image=$tiny sh -c "$probe"
  [ "$status" -eq 0 ]
  [ "$(grep -c 'Operation not permitted' <<<"$output")" -eq 2 ]
  [ "$(grep -c 'No such device or address' <<<"$output")" -eq 2 ]
  for task in 0 1; do
    [ "$(grep -c "^$task: . No such device" <<<"$output")" -eq 1 ]
  done
  [ "$(grep 'No such device' <<<"$output" | cut -d' ' -f2 | sort -u | wc -l)" -eq 2 ]
  nothing_left
}

@test "a task that takes more memory than the job has is killed, and Slurm says why" {
  # dd keeps a block in memory.
  step --mem=64M --container-image=$tiny dd if=/dev/zero of=/dev/null bs=200M count=1
  [ "$status" -ne 0 ]
  grep -qi -E 'oom|out.of.memory' <<<"$stderr"
  step --mem=64M --container-image=$tiny echo fine
  [ "$output" = fine ]
  nothing_left
}

@test "an import that takes more memory than the job has fails with the reason, and leaves nothing" {
  forget $debian
  files=$(find /var/lib/situla/images -type f | sort)
  step --mem=20M --container-image=$debian true
  [ "$status" -ne 0 ]
  grep -q "the step's memory was used up" <<<"$stderr"
  nothing_left
  [ "$(find /var/lib/situla/images -type f | sort)" = "$files" ]
  step --mem=512M --container-image=$debian true
  [ "$status" -eq 0 ]
}

@test "slurmd restarts under a running step" {
  begin lasting --container-image=$tiny --container-writable sh -c 'echo in; sleep 12; cat /srv/hello.txt'
  wait_until 60 says lasting in
  systemctl restart slurmd
  ends lasting 0
  says lasting 'hello from the top layer'
  step --container-image=$tiny echo next
  [ "$output" = next ]
  nothing_left
}

@test "the packages are upgraded under a running step, which goes on with its programs; the next has the new ones" {
  begin upgraded --container-image=$tiny --container-name=kept --container-writable sh -c 'echo in; until [ -e /srv/end ]; do sleep 0.5; done; cat /srv/note; rm /srv/end'
  wait_until 60 says upgraded in
  run apt-get -qq install -y --no-install-recommends /srv/packages/2/situla_*.deb /srv/packages/2/situla-slurm-plugin_*.deb
  echo "$output"
  [ "$status" -eq 0 ]
  # shellcheck disable=SC2016
  [[ $(dpkg-query -W -f '${Version}' situla) == *-2 ]]
  step --container-image=$tiny echo new
  [ "$output" = new ]
  step --container-name=kept --container-writable sh -c 'touch /srv/end'
  [ "$status" -eq 0 ]
  ends upgraded 0
  says upgraded one
  nothing_left
}

@test "scancel of a step that runs, and of one that imports" {
  begin cancelled --container-image=$tiny sleep 1000
  job() { squeue -h -t running -n "$1" -o %i; }
  has_job() { [ -n "$(job "$1")" ]; }
  wait_until 60 has_job cancelled
  wait_until 60 pgrep -u alice -x sleep
  as_alice scancel "$(job cancelled)"
  wait_until 120 over cancelled
  nothing_left
  forget $debian
  begin importing --container-image=$debian sleep 1000
  wait_until 60 runs situla-importer
  as_alice scancel "$(job importing)"
  wait_until 120 over importing
  nothing_left
}

@test "at the end nothing is left: no mount, loop device, cgroup, process or file" {
  left >/run/left.now || true
  cat /run/left.now
  ! grep -v -E "$once" /run/left.now | grep -E '^mount [^ ]*situla/|^/sys/|^process |^/run/situla/(images|containers|jobs)/|^/var/lib/situla/leases|^/(tmp|var/tmp|dev/shm)/' || false
  run systemctl --failed --no-legend
  [ -z "$output" ]
}

@test "the machine is rebooted while a container runs and an image is imported" {
  begin writing --container-image=$tiny --container-name=rebooted --container-writable sh -c 'echo before >/srv/note; sync; echo in; sleep 1000'
  wait_until 60 says writing in
  forget $debian || true
  begin importing --container-image=$debian true
  wait_until 60 runs situla-importer
}
