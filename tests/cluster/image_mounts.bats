# lab: --name one-node
# lab: --name two-nodes --nodes 2
# Squashfs files as mounts of a container: shards of data, a tree of tools, a file. As alice.
load helpers

setup_file() {
  cd "$BATS_FILE_TMPDIR"
  export shards=$HOME/shards
  rm -rf "$shards"
  mkdir "$shards"
  for number in {1..200}; do
    mkdir -p tree/deep
    echo "$number" >tree/number
    echo "deep $number" >tree/deep/text
    mksquashfs tree "$shards/$number.sqsh" -all-root -quiet -no-progress >/dev/null
    rm -rf tree
  done
  srun --container-image=registry.test/tiny true
}

teardown() {
  scancel -u alice 2>/dev/null || true
  wait 2>/dev/null || true
}

teardown_file() { rm -rf "$shards"; }

serves() { pgrep -u alice situla-image; }
no_server() { ! serves; }

inside() { run_and_show srun -w node1 --chdir="$shards" --container-image=registry.test/tiny "$@"; }

@test "200 shards in one step, for several tasks, and one process for all of them" {
  local option=$(printf '%s.sqsh:/data/%s:sqsh\n' $(seq 1 200 | sed 'p') | paste -sd,)
  inside --ntasks=4 --ntasks-per-node=4 --nodes=1 --overcommit --container-mounts="$option" sh -c 'cat /data/*/number | sort -n | tail -n 1; cat /data/*/deep/text | wc -l; [ "$SLURM_PROCID" != 0 ] || sleep 3' 3>&-
  [ "$status" -eq 0 ]
  [ "$(grep -cx 200 <<<"$output")" -eq 8 ]
  wait_until 30 no_server
}

# bats test_tags=lab:one-node
@test "holes are zeros, also where another image of the same process has smaller blocks" {
  local number size
  mkdir "$BATS_TEST_TMPDIR/tree"
  for number in {1..8}; do truncate -s 1M "$BATS_TEST_TMPDIR/tree/$number"; done
  for size in 16K 128K; do mksquashfs "$BATS_TEST_TMPDIR/tree" "$shards/$size.sqsh" -b $size -all-root -quiet -no-progress >/dev/null; done
  # The end of one block, and the beginning of the next.
  inside --container-mounts=16K.sqsh:/small:sqsh,128K.sqsh:/large:sqsh sh -c '
    for n in 1 2 3 4 5 6 7 8; do dd if=/small/$n bs=4096 count=1 2>/dev/null; done | tr -d "\000" | wc -c
    for n in 1 2 3 4 5 6 7 8; do dd if=/large/$n bs=114688 skip=1 count=1 2>/dev/null; done | tr -d "\000" | wc -c
    dd if=/large/1 bs=114688 skip=1 count=1 2>/dev/null | wc -c'
  [ "$status" -eq 0 ]
  [ "$(tail -n 3 <<<"$output" | paste -sd ' ')" = "0 0 114688" ]
}

@test "what is in an image, a name alone, an environment file, and start" {
  inside --container-mounts=7.sqsh/deep:/deep:sqsh,./8.sqsh/number:/number:sqsh+noexec sh -c 'cat /deep/text /number; touch /deep/x'
  [ "$status" -ne 0 ]
  [[ "$output" == *'deep 7'* ]]
  grep -qx 8 <<<"$output"
  [[ "$output" == *'Read-only file system'* ]]
  printf 'image = "registry.test/tiny"\nmounts = ["./9.sqsh:/data:sqsh"]\n' >"$shards/nine.toml"
  cd "$shards"
  run_and_show srun --environment=./nine.toml cat /data/number
  [ "$status" -eq 0 ]
  grep -qx 9 <<<"$output"
  enroot import -o tiny.sqsh docker://registry.test/tiny
  run_and_show enroot start --mount 10.sqsh/deep:/data:sqsh tiny.sqsh cat /data/text
  [ "$status" -eq 0 ]
  [ "$output" = 'deep 10' ]
  rm tiny.sqsh
  wait_until 30 no_server
}

@test "what is not there, no image, a directory or no part of it ends the step before a task runs" {
  inside --container-mounts=gone.sqsh:/data:sqsh echo ran
  [ "$status" -ne 0 ]
  [[ "$output" == *"source path does not exist: ./gone.sqsh"* ]]
  [[ "$output" == *'[mount-source]'* ]]
  echo 'not an image' >"$shards/text.sqsh"
  inside --container-mounts=text.sqsh:/data:sqsh echo ran
  [ "$status" -ne 0 ]
  [[ "$output" == *'mount image '*'text.sqsh on /data'*'squashfs'* ]]
  inside --container-mounts=.:/data:sqsh echo ran
  [ "$status" -ne 0 ]
  [[ "$output" == *'is a directory'* ]]
  inside --container-mounts=1.sqsh/none:/data:sqsh echo ran
  [ "$status" -ne 0 ]
  [[ "$output" == *none* ]]
  if grep -qx ran <<<"$output"; then false; fi
  inside --container-mounts=gone.sqsh:/data:sqsh+nofail echo ran
  [ "$status" -eq 0 ]
  grep -qx ran <<<"$output"
  wait_until 30 no_server
}

@test "a step that is killed leaves no server, and a server that is killed fails reads and hangs nobody" {
  srun -w node1 --chdir="$shards" --container-image=registry.test/tiny --container-mounts=1.sqsh:/data:sqsh sleep 300 3>&- &
  wait_until 60 serves
  scancel -s KILL -u alice
  wait
  wait_until 30 no_server
  srun -w node1 --chdir="$shards" --container-image=registry.test/tiny --container-mounts=1.sqsh:/data:sqsh sh -c 'echo mounted; sleep 4; timeout 20 cat /data/deep/text; echo "cat ended $?"' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 60 grep -qx mounted "$BATS_TEST_TMPDIR/out"
  pkill -KILL -u alice situla-image
  wait
  cat "$BATS_TEST_TMPDIR/out"
  grep -q 'cat ended 1' "$BATS_TEST_TMPDIR/out"
}

# sif IMAGE: a SIF file by hand around it (sylabs/sif, "Layout of a SIF file").
sif() {
  python3 - "$1" "${1%.sqsh}.sif" <<'PYTHON'
import struct, sys
content = open(sys.argv[1], "rb").read()
objects = [(0x4001, b"Bootstrap: docker\n", 0, 0), (0x4004, content, 1, 2)]
table = data = b""
for number, (kind, body, file_system, partition) in enumerate(objects, 1):
    table += struct.pack("<i?IIIqqqqqqq128s384s", kind, True, number, 0xf0000001, 0, 32768 + len(data), len(body), len(body), 0, 0, 0, 0, b"x",
                         struct.pack("<ii3s", file_system, partition, b"02"))
    data += body + bytes(-len(body) % 4096)
header = struct.pack("<32s10s3s3s16sqqqqqqqq", b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC", b"01", b"02", bytes(16), 0, 0, 46, 48, 4096, len(table), 32768, len(data))
open(sys.argv[2], "wb").write(header.ljust(4096, b"\0") + table.ljust(28672, b"\0") + data)
PYTHON
}

@test "a SIF file is an image, and data" {
  cd "$shards"
  enroot import -o app.sqsh docker://registry.test/tiny
  sif app.sqsh
  sif 5.sqsh
  run_and_show srun --chdir="$shards" --container-image=app.sif --container-mounts=5.sif/deep:/data:sqsh sh -c 'cat /srv/hello.txt /data/text'
  [ "$status" -eq 0 ]
  [[ "$output" == *hello* ]]
  [[ "$output" == *'deep 5'* ]]
  run_and_show enroot start app.sif cat /srv/hello.txt
  [ "$status" -eq 0 ]
  [[ "$output" == *hello* ]]
  enroot create -n of-sif app.sif
  run_and_show enroot start -w of-sif sh -c 'echo new >/changed; cat /srv/hello.txt /changed'
  [ "$status" -eq 0 ]
  enroot export -f -o saved.sqsh of-sif
  run_and_show enroot start saved.sqsh cat /srv/hello.txt /changed
  [ "$status" -eq 0 ]
  enroot remove -f of-sif
  rm -f app.s* 5.sif saved.sqsh
  wait_until 30 no_server
}
