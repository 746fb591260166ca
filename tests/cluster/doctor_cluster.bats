# lab: --nodes 3 --user root
# situla doctor --cluster: three real nodes, of which one is broken after the other.
load helpers

# What a command does on one node lasts there: it has mounts, /run and /var/lib/situla of its own.
on_node() { srun --nodelist="node$1" -n1 "${@:2}"; }

status_of() { jq -r --arg node "$1" '.nodes[] | select(.node == $node) | .status' <<<"$output"; }
check_of() { jq -r --arg node "$1" --arg name "$2" '.nodes[] | select(.node == $node) | .report.checks[] | select(.name == $name) | .status' <<<"$output"; }

@test "nodes that agree are one line, for root and for an ordinary user" {
  run_and_show situla doctor --cluster
  [ "$status" -eq 0 ]
  grep -Eq '^node\[1-3\] +(ok|warn) .* kernel$' <<<"$output"
  run_and_show as_alice situla doctor --cluster -p lab -w 'node[2-3]'
  [ "$status" -eq 0 ]
  grep -Eq '^node\[2-3\] +(ok|warn) ' <<<"$output"
  [[ "$output" != *node1* ]]
}

@test "all reports as JSON" {
  run --separate-stderr situla doctor --cluster --json
  [ "$status" -eq 0 ]
  [ "$(jq -r .summary.nodes <<<"$output")" = 3 ]
  [ "$(jq -r '[.nodes[].report.host] | join(" ")' <<<"$output")" = "node1 node2 node3" ]
  [ "$(jq -r '.nodes[1].report.tier' <<<"$output")" = kernel ]
}

@test "a container that variables ask for is none of the doctor's" {
  SITULA_CONTAINER_IMAGE=registry.test/none PYXIS_CONTAINER_MOUNTS=/none:/none run_and_show situla doctor --cluster
  [ "$status" -eq 0 ]
}

@test "the node with another situla.toml, the one with a store that others can enter, and their fixes" {
  on_node 2 sh -c 'echo "mount = \"fuse\"" >/run/other.toml; chmod 644 /run/other.toml; [ -e /etc/situla/situla.toml ] || touch /etc/situla/situla.toml
    mount --bind /run/other.toml /etc/situla/situla.toml'
  on_node 3 chmod o+w /var/lib/situla
  run_and_show situla doctor --cluster
  local text=$output code=$status
  run --separate-stderr situla doctor --cluster --json
  on_node 2 umount /etc/situla/situla.toml
  on_node 3 chmod o-w /var/lib/situla
  [ "$code" -eq 1 ]
  grep -Eq '^images: tier +node\[1,3\] +ok .*kernel' <<<"$text"
  grep -Eq '^ +node2 +ok .*FUSE .*mount = "fuse"' <<<"$text"
  grep -Eq '^situla: store +node\[1-2\] +(ok|warn)' <<<"$text"
  grep -Eq '^ +node3 +fail +/var/lib/situla can be entered by others' <<<"$text"
  grep -Eq '^ +fix: chmod 700 /var/lib/situla$' <<<"$text"
  [ "$status" -eq 1 ]
  [ "$(status_of node3)" = fail ]
  [ "$(check_of node3 store)" = fail ]
  [ "$(check_of node1 store)" != fail ]
}

@test "a node whose plugstack.conf lacks the plugin" {
  on_node 2 sh -c 'echo "# nothing" >/run/plugstack.conf; chmod 644 /run/plugstack.conf; mount --bind /run/plugstack.conf /etc/slurm/plugstack.conf'
  run_and_show situla doctor --cluster
  on_node 2 umount /etc/slurm/plugstack.conf
  [ "$status" -eq 1 ]
  grep -Eq '^slurm: plugstack +node\[1,3\] +ok' <<<"$output"
  grep -Eq '^ +node2 +fail .*does not load spank_situla.so' <<<"$output"
}

# "draining" while Slurm cleans up behind the last job.
node3_is_drained() { [ "$(sinfo -h -n node3 -o %T)" = drained ]; }

@test "nodes that cannot be asked and nodes that do not answer are named" {
  scontrol update NodeName=node3 State=DRAIN Reason=test
  wait_until 30 node3_is_drained
  on_node 2 sh -c 'touch /run/nothing; mount --bind /run/nothing "$0"' "$SITULA_LAB_PREFIX/bin/situla"
  run_and_show situla doctor --cluster
  on_node 2 umount "$SITULA_LAB_PREFIX/bin/situla"
  scontrol update NodeName=node3 State=RESUME
  [ "$status" -eq 1 ]
  grep -Eq '^node1 +(ok|warn) ' <<<"$output"
  grep -Eq '^node2 +no answer +.*(Permission denied|execve)' <<<"$output"
  grep -Eq '^node3 +not asked +drained' <<<"$output"
  # Only those: nothing failed where it was asked.
  scontrol update NodeName=node3 State=DRAIN Reason=test
  run_and_show situla doctor --cluster
  scontrol update NodeName=node3 State=RESUME
  [ "$status" -eq 0 ]
}

@test "inside of a job its own nodes" {
  run_and_show salloc -Q -w 'node[1-2]' -N2 situla doctor --cluster
  [ "$status" -eq 0 ]
  grep -Eq '^node\[1-2\] +(ok|warn) ' <<<"$output"
  [[ "$output" != *node3* ]]
}

node3_is_idle() { [ "$(sinfo -h -n node3 -o %T)" = idle ]; }

@test "a time limit for nodes that hang, and no job stays behind" {
  on_node 3 sh -c 'printf "#!/bin/sh\nexec sleep 600\n" >/run/hangs; chmod 755 /run/hangs; mount --bind /run/hangs "$0"' "$SITULA_LAB_PREFIX/bin/situla"
  # The doctor waits 4 of these 8 seconds for a busy node, and Slurm cleans up behind the last job.
  wait_until 60 node3_is_idle
  run_and_show situla doctor --cluster --timeout 8
  on_node 3 umount -l "$SITULA_LAB_PREFIX/bin/situla"
  [ "$status" -eq 1 ]
  grep -Eq '^node3 +no answer +no answer in 8 s' <<<"$output"
  wait_until 30 sh -c '[ -z "$(squeue -h -n situla-doctor)" ]'
}

@test "an interrupted doctor takes its jobs back" {
  on_node 3 sh -c 'printf "#!/bin/sh\nexec sleep 600\n" >/run/hangs; chmod 755 /run/hangs; mount --bind /run/hangs "$0"' "$SITULA_LAB_PREFIX/bin/situla"
  situla doctor --cluster >"$BATS_TEST_TMPDIR/out" 2>&1 &
  local doctor=$!
  wait_until 30 sh -c '[ -n "$(squeue -h -n situla-doctor -w node3 -t R)" ]'
  kill -TERM $doctor
  local code=0
  wait $doctor || code=$?
  on_node 3 umount -l "$SITULA_LAB_PREFIX/bin/situla"
  cat "$BATS_TEST_TMPDIR/out"
  [ "$code" -eq 1 ]
  grep -q interrupted "$BATS_TEST_TMPDIR/out"
  wait_until 60 sh -c '[ -z "$(squeue -h -n situla-doctor)" ]'
}

@test "mistakes are said" {
  run_and_show situla doctor --cluster -w node77
  [ "$status" -eq 1 ]
  [[ "$output" == *node77* ]]
  run_and_show situla doctor --cluster -p nopartition
  [ "$status" -eq 1 ]
  [[ "$output" == *nopartition* ]]
  run_and_show situla doctor -w node1
  [ "$status" -eq 1 ]
  [[ "$output" == *--cluster* ]]
}
