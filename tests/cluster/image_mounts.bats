# lab:
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

inside() { run_and_show srun --chdir="$shards" --container-image=registry.test/tiny "$@"; }

@test "200 shards in one step, for several tasks, and one process for all of them" {
  local option=$(printf '%s.sqsh:/data/%s:sqsh\n' $(seq 1 200 | sed 'p') | paste -sd,)
  inside --ntasks=4 --ntasks-per-node=4 --nodes=1 --overcommit --container-mounts="$option" sh -c 'cat /data/*/number | sort -n | tail -n 1; cat /data/*/deep/text | wc -l; [ "$SLURM_PROCID" != 0 ] || sleep 3' 3>&-
  [ "$status" -eq 0 ]
  [ "$(grep -cx 200 <<<"$output")" -eq 8 ]
  wait_until 30 no_server
}

@test "what is in an image, a name alone, an environment file, and start" {
  inside --container-mounts=7.sqsh/deep:/deep:sqsh,./8.sqsh/number:/number:sqsh+noexec sh -c 'cat /deep/text /number; touch /deep/x'
  [ "$status" -ne 0 ]
  [[ "$output" == *'deep 7'* ]]
  grep -qx 8 <<<"$output"
  [[ "$output" == *'Read-only file system'* ]]
  printf 'image = "registry.test/tiny"\nmounts = ["./9.sqsh:/data:sqsh"]\n' >"$shards/nine.toml"
  run_and_show srun --chdir="$shards" --environment="$shards/nine.toml" cat /data/number
  [ "$status" -eq 0 ]
  grep -qx 9 <<<"$output"
  cd "$shards"
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
  srun --chdir="$shards" --container-image=registry.test/tiny --container-mounts=1.sqsh:/data:sqsh sleep 300 3>&- &
  wait_until 60 serves
  scancel -s KILL -u alice
  wait
  wait_until 30 no_server
  srun --chdir="$shards" --container-image=registry.test/tiny --container-mounts=1.sqsh:/data:sqsh sh -c 'sleep 4; timeout 20 cat /data/deep/text; echo "cat ended $?"' >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  wait_until 60 serves
  pkill -KILL -u alice situla-image
  wait
  cat "$BATS_TEST_TMPDIR/out"
  grep -q 'cat ended 1' "$BATS_TEST_TMPDIR/out"
}
