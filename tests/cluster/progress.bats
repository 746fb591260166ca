# lab: --nodes 2 --user root
# What somebody sees who waits for an import: bars on a terminal, below what srun itself says; nothing where it would disturb.
load helpers

# What is here already comes at once: each test begins without.
setup() {
  srun -Q -N2 --ntasks-per-node=1 sh -c 'rm -rf /var/lib/situla/images /var/lib/situla/layers /var/lib/situla/grants'
  cd /home/alice
}

teardown() { as_alice tmux -L progress kill-server 2>/dev/null || true; }

# in_terminal SCRIPT: stdin and stderr are a terminal of 100 columns, whose output is $output.
in_terminal() {
  run_and_show as_alice timeout 50 script -qec "stty cols 100 rows 30; $1" /dev/null </dev/null
}

@test "bars on the terminal of a task that waits for a long import, and one line of them afterwards" {
  in_terminal "srun -n1 --container-image=fault.test/slow-3 sh -c 'echo terminal=\${SITULA_TERMINAL-none}'"
  [ "$status" -eq 0 ]
  [[ "$output" == *"importing docker image: fault.test/slow-3"*"total ["*"MiB/s"*"imported docker image: fault.test/slow-3"* ]]
  [[ "$output" == *"terminal=none"* ]]
  # One line remains, and nothing moves the cursor from there on: the task's output comes by another way.
  [[ "${output##*$'\x1b'}" == "[Jimporting 2 layers, 1011.2 KiB: "*"terminal=none"* ]]
}

@test "several tasks of a node have one bar; a log and an image that is here have none" {
  in_terminal "srun -N1 -w node1 -n3 --container-image=content.test/slow-3 true"
  [ "$status" -eq 0 ]
  [[ "$output" == *"total ["* ]]
  [ "$(grep -o 'importing 2 layers, [^:]*: [0-9.]* s' <<<"$output" | wc -l)" -eq 1 ]
  as_alice srun -N1 -w node1 -n2 --container-image=registry.test/debian:12 true 2>"$BATS_TEST_TMPDIR/told"
  [ "$(grep -c '^situla: import[a-z]* docker image: registry.test/debian:12' "$BATS_TEST_TMPDIR/told")" -eq 2 ]
  in_terminal "srun -N1 -w node1 -n1 --container-image=fault.test/slow-3-large true 2>log"
  [ "$status" -eq 0 ]
  [[ "$output$(cat log)" != *"total ["* ]]
  in_terminal "srun -N1 -w node1 -n1 --container-image=fault.test/slow-3-large true"
  [ "$status" -eq 0 ]
  [[ "$output" != *"total ["* ]]
}

@test "where nothing answers beside srun, the first of several nodes draws, and says that it is that" {
  in_terminal "srun -N2 -n4 --container-image=fault.test/slow-4 true & until pkill -KILL -u alice -x situla-monitor; do sleep 0.01; done; wait"
  [ "$status" -eq 0 ]
  [[ "$output" == *"node1, first of 2: importing"*"total ["* ]]
  [ "$(grep -o 'first of 2: importing 2 layers, [^:]*: [0-9.]* s' <<<"$output" | wc -l)" -eq 1 ]
  [[ "$output" != *"node2, first"* ]]
}

no_steps() { [ -z "$(squeue -h --steps)" ]; }

# shown REGEX: what is on the screen now has such a line.
shown() { as_alice tmux -L progress capture-pane -p -t screen | grep -Eq "$1"; }

@test "what srun says on Ctrl-C stays on the screen while the bars are drawn on" {
  as_alice tmux -L progress -f /dev/null new-session -d -s screen -x 100 -y 30 "srun -N1 -n1 --container-image=fault.test/slow-9 sleep 30; sleep 60" 3>&-
  wait_until 30 shown '^total \['
  as_alice tmux -L progress send-keys -t screen C-c
  wait_until 10 shown 'one more within 1 sec to abort'
  # Five drawings later, and one bar.
  sleep 1.2
  as_alice tmux -L progress capture-pane -p -t screen
  shown 'one more within 1 sec to abort'
  [ "$(as_alice tmux -L progress capture-pane -p -t screen | grep -c '^total \[')" -eq 1 ]
  # Twice within a second ends it.
  as_alice tmux -L progress send-keys -t screen C-c
  sleep 0.3
  as_alice tmux -L progress send-keys -t screen C-c
  wait_until 60 no_steps
  shown 'one more within 1 sec to abort'
  # Nothing of the bar is left where the next prompt comes.
  as_alice tmux -L progress capture-pane -p -t screen
  if shown 'total \['; then false; fi
}
