# lab: --user root --nodes 2
# What a user can learn of his steps on a node: situla explain JOB, and situla status while something is imported.
load helpers

reports=/run/situla/reports

setup() { cd /home/alice; }
teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
  rm -f /etc/situla/situla.toml
}

# run_step ARGUMENT...: a step of alice's on node1; its job is in $job, whatever becomes of it.
run_step() {
  run_and_show as_alice salloc -Q -w node1 sh -c 'echo "job=$SLURM_JOB_ID"; exec srun "$@"' sh "$@"
  job=$(sed -n 's/^job=//p' <<<"$output")
  [[ $job =~ ^[0-9]+$ ]]
  wait_until 30 has_ended "$job.0"
}
has_ended() { grep -q '"ended":' "$reports/$(id -u alice)/$1"; }
# record STEP: what is in the file.
record() { cat "$reports/$(id -u alice)/$1"; }

@test "a step that works: its image, its phases and their times" {
  run_step --container-image=registry.test/tiny true
  [ "$status" -eq 0 ]
  record "$job.0" | jq -e --arg digest "$(situla digest registry.test/tiny)" --argjson uid "$(id -u alice)" --argjson job "$job" '
    .job == $job and .step == 0 and .uid == $uid and .node == "node1" and .image == "registry.test/tiny" and .tasks == 1 and .digest == $digest
    and .source == "registry" and .mount == "kernel" and .bytes > 4096 and ([.phases[].name] - ["hooks", "scripts"]) == ["import", "mount", "prepare", "tasks"]
    and all(.phases[]; .ms >= 0 and .begin > 1e12) and .ended >= .phases[-1].begin and (has("failure") | not)'
  run_and_show as_alice situla explain "$job"
  [ "$status" -eq 0 ]
  [[ "${lines[0]}" == "step $job.0 on node1: ended" ]]
  [[ "$output" == *$'\n  image     registry.test/tiny\n'* ]]
  [[ "$output" =~ "  import   "[0-9]{4}-[0-9]{2}-[0-9]{2}" "[0-9:.]+" "+[0-9.]+" "m?s$'\n' ]]
  run_and_show as_alice situla explain --json "$job.0"
  [ "$output" = "$(record "$job.0")" ]
}

@test "a step whose image the registry does not have: the error as it was told, its code, its hint and what the manual says" {
  run_step --container-image=registry.test/none-at-all true
  [ "$status" -ne 0 ]
  told=$(grep -o 'failed to import docker image: .*' <<<"$output" | head -n 1)
  code=$(sed -n 's/.* \[\([a-z-]*\)\]$/\1/p' <<<"$told")
  hint=$(sed -n 's/.*hint: //p' <<<"$output" | head -n 1)
  [ -n "$code" ]
  [ -n "$hint" ]
  run_and_show as_alice situla explain "$job"
  [ "$status" -eq 0 ]
  [[ "${lines[0]}" == "step $job.0 on node1: failed [$code]" ]]
  [[ "$output" == *$'\n  [ERROR] '"$told"$'\n  hint: '"$hint"* ]]
  [[ "$output" == *$'\n['"$code"$']\n'"$(situla explain "$code" | head -n 1)"* ]]
}

@test "a hook that takes long is seen as such" {
  mkdir -p /etc/enroot/hooks.d
  printf '#!/bin/sh\nsleep 0.5\n' >/etc/enroot/hooks.d/99-slow.sh
  chmod 755 /etc/enroot/hooks.d/99-slow.sh
  run_step --container-image=registry.test/tiny true
  rm /etc/enroot/hooks.d/99-slow.sh
  [ "$status" -eq 0 ]
  record "$job.0" | jq -e '[.phases[] | select(.name == "hooks").ms] | length == 1 and .[0] >= 500'
}

@test "an import that takes longer than import_timeout" {
  mkdir -p /etc/situla
  echo 'import_timeout = 3' >/etc/situla/situla.toml
  run_step --container-image=fault.test/slow true
  [ "$status" -ne 0 ]
  run_and_show as_alice situla explain "$job"
  [[ "$output" == *"importing the image took longer than 3 s [time-limit]"*"import it once into a file (situla import -o FILE)"* ]]
  record "$job.0" | jq -e '.phases[-1].name == "import" and .phases[-1].ms >= 3000 and .progress.done < .progress.total'
}

@test "a container that takes longer than build_timeout: the hook that hangs was named" {
  echo 'build_timeout = 12' >/etc/situla/situla.toml
  mkdir -p /etc/enroot/hooks.d
  printf '#!/bin/sh\nexec sleep 309\n' >/etc/enroot/hooks.d/50-hangs.sh
  chmod 755 /etc/enroot/hooks.d/50-hangs.sh
  run_step --container-image=registry.test/tiny true
  rm /etc/enroot/hooks.d/50-hangs.sh /etc/situla/situla.toml
  [ "$status" -ne 0 ]
  [[ "$output" == *"/etc/enroot/hooks.d/50-hangs.sh is still running after 10 s"* ]]
  [[ "$output" == *"preparing the container took longer than 12 s [time-limit]"*"hint: a hook or the image's /etc/rc may hang"* ]]
  if pgrep -f '^sleep 309$'; then false; fi
}

@test "a record is its user's to read, and nobody's to change" {
  run_step --container-image=registry.test/tiny true
  file=$reports/$(id -u alice)/$job.0
  as_alice cat "$file" >/dev/null
  run_and_show as bob cat "$file"
  [ "$status" -ne 0 ]
  [[ "$output" == *"Permission denied"* ]]
  run_and_show as bob situla explain "$job"
  [ "$status" -eq 1 ]
  [[ "$output" == *"explain $job: this node has no record of it"*"[not-found]"* ]]
  [ "$(stat -c '%U:%G' "$file" "$(dirname "$file")" "$reports" | sort -u)" = root:root ]
  [ "$(stat -c %a "$(dirname "$file")" "$reports" | sort -u)" = 755 ]
  for change in "rm -f $file" "chmod 600 $file" "sh -c 'echo x >>$file'" "touch $(dirname "$file")/x"; do
    run_and_show as_alice sh -c "$change"
    [ "$status" -ne 0 ]
  done
  # For root it is a record as any other.
  run_and_show situla explain "$job"
  [[ "${lines[0]}" == "step $job.0 on node1: ended" ]]
}

@test "a user has 64 records, and none that is older than a day" {
  run_step --container-image=registry.test/tiny true
  directory=$reports/$(id -u alice)
  for number in {1..80}; do
    cp "$directory/$job.0" "$directory/1.$number"
    touch -d "$((100 - number)) minutes ago" "$directory/1.$number"
  done
  mkdir -p "$reports/4242"
  cp "$directory/$job.0" "$reports/4242/1.0"
  touch -d '25 hours ago' "$reports/4242/1.0"
  run_step --container-image=registry.test/tiny true
  [ "$(find "$directory" -type f | wc -l)" -eq 64 ]
  [ ! -e "$directory/1.17" ]
  [ -e "$directory/1.80" ]
  [ -e "$directory/$job.0" ]
  [ ! -e "$reports/4242/1.0" ]
  rm -r "$reports/4242" "$directory"/1.*
}

@test "status: a slow import, and the step that waits for it; explain says the same of a step that is not over" {
  as_alice srun -J first -w node1 --container-image=fault.test/slow true >"$BATS_TEST_TMPDIR/first" 2>&1 3>&- &
  first=$(running_job first)
  wait_until 30 eval 'situla status | grep -q "^$first.0 .*importing.* of .*%"'
  as_alice srun -J second -w node1 --container-image=fault.test/slow true >"$BATS_TEST_TMPDIR/second" 2>&1 3>&- &
  second=$(running_job second)
  wait_until 30 eval 'as_alice situla status | grep -q "^$second.0 .*waiting"'
  run_and_show as_alice situla status
  [[ "$output" =~ $first.0" "+"alice"" "+"importing"" "+[0-9:]+" "+[0-9.]+" "[KM]?i?B"/s  fault.test/slow  "[0-9.]+" "[KM]iB" of "[0-9.]+" "[KM]iB" ("[0-9]+" %)" ]]
  [[ "$output" == *"for the import of job $first.0 on node1"* ]]
  as_alice situla status --json | jq -s -e --argjson first "$first" 'length == 2 and any(.[]; .job == $first and .progress.total > 0)'
  run_and_show as bob situla status
  [ "$output" = "nothing of yours is imported or prepared on this node" ]
  run_and_show as_alice situla explain "$second"
  [[ "${lines[0]}" == "step $second.0 on node1: waiting" ]]
  [[ "$output" == *"goes on"* ]]
  as_alice scancel "$first" "$second"
  wait
  wait_until 30 eval '[ "$(situla status)" = "nothing is imported or prepared on this node" ]'
  run_and_show as_alice situla explain "$first"
  # As slurmstepd goes before or after it has told the broker, the step was cancelled or has just ended; it does not go on.
  [[ "${lines[0]}" == "step $first.0 on node1: failed [cancelled]" || "${lines[0]}" == "step $first.0 on node1: ended" ]]
  [[ "$output" != *"goes on"* ]]
}

@test "a broker that was killed leaves a step that is lost, and nothing goes on" {
  as_alice srun -J killed -w node1 --container-image=registry.test/tiny sleep 300 >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  job=$(running_job killed)
  wait_until 30 eval 'as_alice situla explain "$job" | grep -q "^step $job.0 on node1: running"'
  pkill -KILL -x situla-broker
  wait_until 30 eval 'as_alice situla explain "$job" | grep -q "^step $job.0 on node1: lost"'
  [[ $(situla status) == "nothing is imported"* ]]
}

@test "other nodes: the error has the line that asks them, and their records make one picture" {
  as_alice srun -J both -N2 -n2 --container-image=registry.test/tiny sleep 300 >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  job=$(running_job both)
  wait_until 30 eval 'as_alice situla explain "$job" | grep -q running'
  as_alice srun -J there -w node2 --container-image=registry.test/tiny sleep 300 >"$BATS_TEST_TMPDIR/there" 2>&1 3>&- &
  there=$(running_job there)
  # While it runs.
  run_and_show as_alice situla explain "$there"
  [ "$status" -eq 1 ]
  [[ "$output" == *"this node has no record of it; the job runs on node2 [not-found]"* ]]
  line=$(sed -n 's/.*hint: //p' <<<"$output")
  [ "$line" = "srun --jobid=$there --overlap -N1 -n1 situla explain $there" ]
  wait_until 30 eval 'as_alice $line | grep -q "^step $there.0 on node2: running"'
  # And afterwards.
  as_alice scancel "$there"
  wait_until 30 eval '[ -z "$(squeue -h -t running -j "$there")" ]'
  run_and_show as_alice situla explain "$there"
  line=$(sed -n 's/.*hint: //p' <<<"$output")
  [ "$line" = "srun -w node2 -N1 -n1 situla explain $there" ]
  wait_until 30 eval 'as_alice $line | grep -q "^step $there.0 on node2: "'
  # All nodes of a job.
  as_alice srun --jobid="$job" --overlap -N2 -n2 situla explain --json "$job" >/home/alice/records
  [ "$(wc -l </home/alice/records)" -eq 2 ]
  as_alice situla explain --records - --svg - "$job" </home/alice/records >"$BATS_TEST_TMPDIR/job.svg"
  python3 - "$BATS_TEST_TMPDIR/job.svg" "$job" <<'PYTHON'
import sys
import xml.etree.ElementTree as tree
picture = tree.parse(sys.argv[1]).getroot()
texts = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
assert f"job {sys.argv[2]}: registry.test/tiny" in texts, texts
assert all(f"{sys.argv[2]}.0 node{number}" in texts for number in (1, 2)), texts
assert {"import", "prepare", "tasks"} <= set(texts), texts
PYTHON
  run_and_show as_alice situla explain --svg /home/alice/job.svg --records /home/alice/records "$job"
  [ "$status" -eq 0 ]
  grep -q '</svg>' /home/alice/job.svg
  echo 'srun: error' >/home/alice/wrong
  run_and_show as_alice situla explain --records /home/alice/wrong "$job"
  [ "$status" -eq 1 ]
  [[ "$output" == *"wrong: line 1: "*"[wrong-input]"* ]]
  # Of a job that nobody knows.
  run_and_show as_alice situla explain 999999
  [ "$status" -eq 1 ]
  [[ "$output" == *"hint: records are kept on the node where the step ran, for a day"* ]]
}
