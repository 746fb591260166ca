# lab:
# The main road, as an ordinary user on one node: every form of a reference, mounts, environment, root, writing.
load helpers

setup() {
  cd "$HOME"
  mkdir -p /tmp/x
  echo content >/tmp/x/f
}

pretty='PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"'

@test "every way to write the reference of the same image" {
  local reference
  for reference in registry.test/debian:12 registry.test#debian:12 docker://registry.test/debian:12 docker://registry.test#debian:12 \
    registry.test/debian:12-zstd registry.test/debian:12-v2s2 registry.test/debian; do
    run_and_show srun --container-image="$reference" grep PRETTY /etc/os-release
    [ "$status" -eq 0 ]
    [[ "$output" == *"$pretty"* ]]
  done
}

@test "the messages that people grep, once per node" {
  run_and_show srun -n1 --container-image=registry.test/tiny true
  [ "$output" = "situla: importing docker image: registry.test/tiny
situla: imported docker image: registry.test/tiny" ]
  # Nothing is imported a second time.
  run_and_show srun -n1 --container-image=registry.test/tiny true
  [ "$output" = "situla: imported docker image: registry.test/tiny" ]
  run_and_show srun -n4 --container-image=registry.test/tiny true
  [ "$output" = "situla: imported docker image: registry.test/tiny" ]
  run_and_show srun -n4 --container-image=registry.test/nosuchimage true
  [ "$status" -ne 0 ]
  [ "$(grep -c "failed to import docker image: registry.test/nosuchimage" <<<"$output")" -eq 1 ]
  # A file is not imported.
  situla import -o tiny.sqsh docker://registry.test/tiny
  run_and_show srun -n1 --container-image=./tiny.sqsh true
  [ "$output" = "" ]
}

# The tag is asked for before the job only where several nodes have to mean the same.
@test "srun starts no program of its own for one node: of a registry, of a file, by name" {
  [ -e tiny.sqsh ] || situla import -o tiny.sqsh docker://registry.test/tiny
  local image
  for image in --container-image=registry.test/tiny --container-image=./tiny.sqsh "--container-image=registry.test/tiny --container-name=asks_nobody" \
    --container-name=asks_nobody; do
    # shellcheck disable=SC2086
    run_and_show strace -qq -f -o srun.trace -e trace=execve,execveat srun $image true
    [ "$status" -eq 0 ]
    cat srun.trace
    [ "$(grep -c exec srun.trace)" -eq 1 ]
  done
  enroot remove -f pyxis_asks_nobody
  rm srun.trace
}

@test "by digest" {
  local digest
  digest=$(skopeo inspect --format '{{.Digest}}' docker://registry.test/debian:12)
  run_and_show srun --container-image="registry.test/debian@$digest" grep PRETTY /etc/os-release
  [ "$status" -eq 0 ]
  [[ "$output" == *"$pretty"* ]]
}

@test "basic and bearer authentication with .credentials" {
  run_and_show srun --container-image=auth.test/debian:12 grep PRETTY /etc/os-release
  [ "$status" -eq 0 ]
  [[ "$output" == *"$pretty"* ]]
  run_and_show srun --container-image=token.test/debian:12 grep PRETTY /etc/os-release
  [ "$status" -eq 0 ]
  [[ "$output" == *"$pretty"* ]]
  run_and_show srun --container-image=token.test/public/tiny cat /etc/passwd
  [ "$status" -eq 0 ]
}

@test "a squashfs file made by situla import" {
  rm -f debian.sqsh
  situla import -o debian.sqsh docker://registry.test/debian:12
  run_and_show srun --container-image=./debian.sqsh grep PRETTY /etc/os-release
  [ "$status" -eq 0 ]
  [[ "$output" == *"$pretty"* ]]
  run_and_show srun --container-image="$PWD/debian.sqsh" grep PRETTY /etc/os-release
  [ "$status" -eq 0 ]
}

@test "a squashfs file made by mksquashfs" {
  rm -rf plain.sqsh plain
  mkdir -p plain/bin plain/etc plain/proc plain/sys plain/dev plain/tmp
  cp /bin/busybox plain/bin/busybox
  ln -s busybox plain/bin/sh
  ln -s busybox plain/bin/cat
  echo made by hand >plain/etc/motd
  mksquashfs plain plain.sqsh -quiet -no-progress -all-root
  run_and_show srun --container-image=./plain.sqsh cat /etc/motd
  [ "$status" -eq 0 ]
  [[ "$output" == *"made by hand"* ]]
}

@test "eight tasks share one root, with a read-only bind, a tmpfs and a working directory" {
  run_and_show srun -n8 --container-image=registry.test/tiny --container-mounts=/tmp/x:/data:ro,tmpfs:/scratch \
    --container-workdir=/data sh -c 'pwd; id -u; cat f; stat -c %d:%i /bin; readlink /proc/self/ns/mnt; touch /data/new 2>&1; touch /scratch/$SLURM_PROCID && echo wrote'
  [ "$status" -eq 0 ]
  [ "$(grep -cx /data <<<"$output")" -eq 8 ]
  [ "$(grep -cx content <<<"$output")" -eq 8 ]
  [ "$(grep -cx "$(id -u)" <<<"$output")" -eq 8 ]
  [ "$(grep -cx wrote <<<"$output")" -eq 8 ]
  [ "$(grep -c 'Read-only file system' <<<"$output")" -eq 8 ]
  [ "$(grep mnt: <<<"$output" | sort -u | wc -l)" -eq 1 ]
}

@test "remapped root" {
  run_and_show srun --container-remap-root --container-image=registry.test/tiny id -u
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = 0 ]
  run_and_show srun --no-container-remap-root --container-image=registry.test/tiny id -u
  [ "${lines[-1]}" = "$(id -u)" ]
}

@test "a write to a read-only container fails with EROFS, to a writable one it is gone afterwards" {
  run_and_show srun --container-readonly --container-image=registry.test/tiny touch /new
  [ "$status" -eq 1 ]
  [[ "$output" == *"Read-only file system"* ]]
  run_and_show srun --container-writable --container-image=registry.test/tiny sh -c 'echo here >/new && rm /bin/vi && cat /new'
  [ "$status" -eq 0 ]
  [[ "$output" == *here* ]]
  run_and_show srun --container-writable --container-image=registry.test/tiny sh -c 'ls /new /bin/vi'
  [[ "$output" == *"/new: No such file"* ]]
  [[ "$output" == */bin/vi* ]]
}

@test "the image's environment wins, --container-env keeps the job's, LANG is removed" {
  export GREETING=job LANG=C.UTF-8 MINE=job
  run_and_show srun --container-image=registry.test/tiny sh -c 'echo $GREETING,$MINE,${LANG-unset}'
  [ "${lines[-1]}" = "hello,job,unset" ]
  run_and_show srun --container-env=GREETING,LANG --container-image=registry.test/tiny sh -c 'echo $GREETING,$MINE,${LANG-unset}'
  [ "${lines[-1]}" = "job,job,C.UTF-8" ]
}

@test "each task keeps its own SLURM variables" {
  run_and_show srun -n4 --container-image=registry.test/tiny sh -c 'echo rank $SLURM_PROCID $SLURM_LOCALID'
  [ "$status" -eq 0 ]
  [ "$(grep -c '^rank' <<<"$output")" -eq 4 ]
  [ "$(grep '^rank' <<<"$output" | sort -u | wc -l)" -eq 4 ]
}

@test "working directory: the image's, or the one asked for, or an error" {
  run_and_show srun --container-image=registry.test/tiny pwd
  [ "${lines[-1]}" = /srv ]
  run_and_show srun --container-workdir=/etc --container-image=registry.test/tiny pwd
  [ "${lines[-1]}" = /etc ]
  run_and_show srun --container-workdir=/nowhere --container-image=registry.test/tiny pwd
  [ "$status" -eq 1 ]
  [[ "$output" == *"/nowhere"* ]]
}

@test "home is mounted when asked for" {
  echo mine >"$HOME/note"
  run_and_show srun --container-mount-home --container-image=registry.test/tiny sh -c 'cat ~/note'
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = mine ]
  run_and_show srun --no-container-mount-home --container-image=registry.test/tiny sh -c 'cat ~/note'
  [ "$status" -ne 0 ]
}

@test "variables in mounts are expanded on the node" {
  mkdir -p "/tmp/scratch/$USER"
  echo s >"/tmp/scratch/$USER/s"
  run_and_show srun --container-mounts='/tmp/scratch/$USER:/scratch' --container-image=registry.test/tiny cat /scratch/s
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = s ]
}

@test "the tasks' exit code is the step's" {
  run srun --container-image=registry.test/tiny sh -c 'exit 7'
  [ "$status" -eq 7 ]
}

@test "sbatch runs the script inside" {
  cat >job.sh <<'SCRIPT'
#!/bin/sh
#SBATCH --container-image=registry.test/debian:12
grep PRETTY /etc/os-release
SCRIPT
  rm -f out
  sbatch --wait -o out job.sh
  cat out
  grep -qx "$pretty" out
}

@test "salloc and srun inside" {
  run_and_show salloc -n1 srun --container-image=registry.test/tiny cat /etc/hostname
  [ "$status" -eq 0 ]
}

@test "--pty gives a terminal" {
  run_and_show script -qec 'srun --pty --container-image=registry.test/tiny sh -c "test -t 0 && tty"' /dev/null
  [ "$status" -eq 0 ]
  [[ "$output" == */dev/pts/* ]]
}

@test "defaults from PYXIS_ variables" {
  PYXIS_CONTAINER_IMAGE=registry.test/tiny run_and_show srun sh -c 'echo $GREETING'
  [ "${lines[-1]}" = hello ]
}

@test "options without an image are said to be ignored" {
  run_and_show srun --container-workdir=/tmp true
  [ "$status" -eq 0 ]
  [[ "$output" == *"ignoring --container-workdir because neither --container-image nor --container-name is set"* ]]
}

@test "both of a pair fail" {
  run_and_show srun --container-image=registry.test/tiny --container-writable --container-readonly true
  [ "$status" -ne 0 ]
  [[ "$output" == *"both --container-writable and --container-readonly"* ]]
}

@test "the program has no descriptors but its own three, and no signal is blocked" {
  run_and_show srun --container-image=registry.test/tiny sh -c 'ls /proc/self/fd | wc -l; grep -E "^Sig(Blk|Ign)" /proc/self/status'
  [ "$status" -eq 0 ]
  [[ "$output" == *$'\n4'* || "${lines[0]}" == 4 ]]
  [[ "$output" == *"SigBlk:"$'\t'"0000000000000000"* ]]
}

@test "on a node without GPUs an image that asks for them starts, and a job that asks is told" {
  mkdir -p "$HOME/asks/etc" "$HOME/asks/bin" "$HOME/asks"/{proc,sys,dev,tmp}
  cp /bin/busybox "$HOME/asks/bin/sh"
  echo NVIDIA_VISIBLE_DEVICES=all >"$HOME/asks/etc/environment"
  mksquashfs "$HOME/asks" "$HOME/asks.sqsh" -quiet -no-progress -all-root >/dev/null
  run_and_show srun -Q --container-image="$HOME/asks.sqsh" sh -c 'echo in $NVIDIA_VISIBLE_DEVICES'
  [ "$status" -eq 0 ]
  [[ "$output" == *"in all" ]]
  NVIDIA_VISIBLE_DEVICES=all run_and_show srun -Q --container-image=registry.test/tiny echo ran
  [ "$status" -ne 0 ]
  [[ "$output" != *ran* ]]
  [[ "$output" == *"no NVIDIA driver"*hint:* ]]
}
