# lab: --name text
# lab: --name json --situla-conf tests/cluster/json_log.toml
# What the administrator reads in slurmd's log: one line for every step with a container.
load helpers

setup() { cd "$HOME"; }

# log_line: runs srun with the given arguments; the step's line, without its time.
log_line() {
  local log=$SITULA_LAB/logs/slurmd.node1.log before
  before=$(wc -l <"$log")
  srun "$@" true
  wait_until 30 eval "tail -n +$((before + 1)) '$log' | grep -q 'situla: image='"
  line=$(tail -n +$((before + 1)) "$log" | grep 'situla: image=')
  echo "$line"
  [ "$(wc -l <<<"$line")" -eq 1 ]
}

# bats test_tags=lab:text
@test "a step is logged with image, digest, source, mount and milliseconds: from the registry, then from the store" {
  local digest
  digest=$(situla digest registry.test/tiny)
  log_line --container-image=registry.test/tiny
  [[ $line =~ "[1.0] situla: image=registry.test/tiny name=- digest=$digest source=registry mount=kernel import="[0-9]+"ms prepare="[0-9]+"ms"$ ]]
  log_line --container-image=registry.test/tiny
  [[ $line == *" digest=$digest source=store mount=kernel import="* ]]
}

# bats test_tags=lab:text
@test "a step is logged: a file, a named container, one that is joined, and how long saving took" {
  situla import -o tiny.sqsh docker://registry.test/tiny
  log_line --container-image=./tiny.sqsh --container-save=saved.sqsh
  [[ $line =~ "image=./tiny.sqsh name=- source=file mount=fuse prepare="[0-9]+"ms save="[0-9]+"ms"$ ]]
  log_line --container-image=./tiny.sqsh --container-name=logged
  [[ $line == *"image=./tiny.sqsh name=logged source=container mount=layers-fuse prepare="* ]]
  srun --container-name=logged sleep 60 &
  wait_until 30 eval 'situla list --fancy | grep -q sleep'
  log_line --overlap --container-name=logged:exec
  [[ $line == *"image=- name=logged source=running mount=joined prepare="* ]]
  scancel --user alice
  wait
}

# bats test_tags=lab:json
@test "json_log: the same as an object" {
  log=$SITULA_LAB/logs/slurmd.node1.log
  srun --container-image=registry.test/tiny true
  wait_until 30 eval "[ \$(grep -c 'situla: {' '$log') -ge 1 ]"
  sed -n 's/.*situla: \({.*}\)$/\1/p' "$log" | head -n 1 | tee /dev/stderr |
    jq -e --arg digest "$(situla digest registry.test/tiny)" --argjson uid "$(id -u)" '.job > 0 and .step == 0 and .uid == $uid and .image == "registry.test/tiny"
      and .named == false and .digest == $digest and .source == "registry" and .mount == "kernel" and .bytes > 4096 and .import_ms >= 0 and .prepare_ms >= 0'
  ! grep -q 'situla: image=' "$log"
}
