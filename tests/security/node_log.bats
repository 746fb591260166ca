# lab: --user root --proctrack cgroup
# What a user's processes say through Situla, slurmstepd writes into the node's log: no step may write more there than a bound.
load ../cluster/helpers

setup() {
  log="$SITULA_LAB/logs/slurmd.node1.log"
  version=$(sed -n 's/^constexpr uint32_t kVersion = \(0x[0-9a-f]*\);$/\1/p' "$BATS_TEST_DIRNAME/../../common/protocol/messages.cpp")
  work=$(mktemp -d /home/bob/log.XXXXXX)
  chown bob: "$work"
}

teardown() {
  as bob scancel -u bob -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$work"
}

# speaks PROGRAM LEVEL SRUN-ARGUMENT...: bob's own program, for three seconds. $grown: bytes of the log. On a busy machine it may take
# more than one step to catch the program.
speaks() {
  local program=$1 level=$2 before speaker
  shift 2
  before=$(stat -c %s "$log")
  as bob python3 "$BATS_TEST_DIRNAME/node_log.py" "$version" "$level" "$program" 3 >"$work/sent" 2>"$work/said" 3>&- &
  speaker=$!
  while kill -0 "$speaker" 2>/dev/null; do
    as bob timeout 60 srun --container-image=registry.test/tiny "$@" >"$work/out" 2>&1 || true
  done
  wait "$speaker" || { cat "$work/said"; return 1; }
  grown=$(($(stat -c %s "$log") - before))
  echo "said $(cat "$work/sent"), the log has $grown more, srun said $(wc -c <"$work/out")"
  [ "$(cat "$work/sent")" -gt 1000000 ]
}

# before: the log had 72647308 bytes more after three seconds, and so on for as long as the job might run
@test "a saver that sends messages without an end" {
  speaks situla-saver 3 --container-save="$work/x.sqsh" sh -c 'kill -9 $PPID; kill -9 $$'
  [ "$grown" -lt 200000 ]
  grep -q 'more messages of this step are not shown' "$log"
}

# before: 25928364 bytes more, and so on until build_timeout
@test "a builder that sends messages without an end" {
  # One that is caught when its work is done is heard for as long as the step.
  speaks situla-builder 1 sleep 5
  [ "$grown" -lt 200000 ]
}

# before: as many answers as questions, and for each that named a copy of his a process of root and two lines of the log
@test "a builder that asks for the mount of its container's copy is answered once" {
  as bob srun --container-name=copied --container-image=registry.test/tiny true
  as bob python3 "$BATS_TEST_DIRNAME/node_log.py" "$version" copied situla-builder 3 >"$work/answers" 2>"$work/said" 3>&- &
  speaker=$!
  while kill -0 "$speaker" 2>/dev/null; do as bob timeout 60 srun --container-name=copied true || true; done >"$work/out" 2>&1
  wait "$speaker" || { cat "$work/said"; return 1; }
  echo "answers: $(cat "$work/answers")"
  cat "$work/out"
  [ "$(cat "$work/answers")" -eq 1 ]
  grep -q 'out of turn' "$work/out"
  as bob enroot remove -f pyxis_copied
}
