# Common to the suites that run inside a lab: who submits, and what is left on a node. Loaded by the .bats files.

lab_tests=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")

bats_require_minimum_version 1.5.0
. "$lab_tests/../support/wait.bash"

# What came on stderr, then what came on stdout: srun forwards the two in no order. The whole of it on failure: bats prints
# what a failing test printed.
run_and_show() {
  run --separate-stderr "$@"
  output=${stderr:+$stderr${output:+$'\n'}}$output
  # Slurm says so when a job has to wait for the last one's end, which is nobody's matter here.
  if [[ $output == *"srun: job "* ]]; then
    local line kept=
    while IFS= read -r line; do
      [[ $line =~ ^srun:\ job\ [0-9]+\ (queued\ and\ waiting\ for|has\ been\ allocated)\ resources$ ]] || kept+=$line$'\n'
    done <<<"$output"
    output=${kept%$'\n'}
  fi
  mapfile -t lines <<<"$output"
  echo "status=$status"
  echo "$output"
}

# In a suite that runs as root: the command as alice, as she would type it.
as_alice() { as alice "$@"; }
as() {
  local user=$1
  shift
  runuser -u "$user" -- env HOME="/home/$user" USER="$user" LOGNAME="$user" "$@"
}

# asleep SECONDS: alice's process that sleeps so long, as an image has sleep or as busybox is called.
asleep() { pgrep -u alice -f "^[^ ]*sleep $1\$"; }

# running_job NAME: the number of the only job of that name that runs. Those of the test before may still be completing.
running_job() {
  local number
  for _ in {1..250}; do
    number=$(squeue -h -t running -n "$1" -o %i)
    if [[ $number =~ ^[0-9]+$ ]]; then
      echo "$number"
      return
    fi
    sleep 0.3
  done
  squeue >&2
  return 1
}

# What is on the node now. Node-wide image mounts are a cache and go by age; suites that count set image_mount_idle = 0.
# The store's and the runtime's own folders are made once and stay.
left() {
  # Not in one pipeline: a grep would be among the processes, by its name or still by that of the shell it was.
  local found
  found=$("$lab_tests/left" "$SITULA_LAB" "$@")
  grep -v -E -e '^file (/var/lib/situla/(images|leases|layers|slots|grants|counts)|/run/situla)(/(sha256|node[0-9]+|[0-9]+(/[0-9a-f]{40})?|images|images/share-[0-9]+|root|access|containers|jobs|copies|copies/[0-9]+[.][0-9a-f]{32}|reports|reports/[0-9]+(/[0-9]+[.][a-z0-9]+)?|importer|importer/[0-9]+|nvidia.json|cgroups))?$' \
    -e '^process .*bats' -e '^file /tmp/bats' -e '^file /tmp/situla-test' -e "^process .*/tests/cluster/" -e '^process alice srun ' -e '^process root runuser ' <<<"$found"
}

snapshot() { left >"$BATS_TEST_TMPDIR/before"; }

# Nothing more than at the snapshot, within 30 seconds: a busy machine is slow. slurmstepd itself lingers for a second or two with proctrack/linuxproc.
nothing_left() {
  local deadline=$((SECONDS + ${1:-30}))
  [ -s "$BATS_TEST_TMPDIR/before" ] || { echo "no snapshot was taken"; return 1; }
  while :; do
    left >"$BATS_TEST_TMPDIR/after"
    comm -13 "$BATS_TEST_TMPDIR/before" "$BATS_TEST_TMPDIR/after" | grep -v 'process root slurmstepd:' >"$BATS_TEST_TMPDIR/new" || return 0
    [ $SECONDS -lt $deadline ] || break
    sleep 0.4
  done
  echo "left behind:"
  cat "$BATS_TEST_TMPDIR/new"
  return 1
}
