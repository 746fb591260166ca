# lab:
# More commands in a container that runs already, and which containers run: enroot exec and enroot list --fancy, COMPAT.md section 3.
bats_require_minimum_version 1.5.0

setup_file() {
  export work=$(mktemp -d "$HOME/exec.XXXXXX")
  export ENROOT_DATA_PATH=$work/data
  cd "$work"
  enroot import -o tiny.sqsh docker://registry.test#tiny
  enroot create tiny.sqsh
  enroot create -n idle tiny.sqsh
  # A directory tree, however other containers are kept.
  SITULA_CREATE=tree enroot create -n tree tiny.sqsh
}

teardown_file() {
  cd /
  chmod -R u+rwX "$work"
  rm -rf "$work"
}

setup() {
  cd "$work"
  running=()
}

teardown() {
  for pid in "${running[@]}"; do kill -KILL "$pid" 2>/dev/null || true; done
  wait
}

# start ARG...: starts a container in the background and waits until its command runs; its process is $pid.
start() {
  enroot start "$@" sh -c 'cd /etc; export ROLE=main; exec sleep 1000' >/dev/null 2>&1 3>&- &
  pid=$!
  running+=("$pid")
  for _ in {1..600}; do
    [ "$(cat "/proc/$pid/comm")" != sleep ] || return 0
    sleep 0.05
  done
  return 1
}

# The process number in a line of the table: the second column, or the first one where the name is not repeated.
pids() { awk -v name="$1" '!/^NAME / { if ($0 !~ /^ /) shown = $1; if (shown == name) print ($0 ~ /^ /) ? $1 : $2 }'; }

@test "list -f: scripts cut columns 1 and 2 after one header line" {
  start tiny
  run --separate-stderr enroot list -f
  [ "$status" -eq 0 ]
  [ -z "$stderr" ]
  [ "$(awk '{ $1 = $1 } NR == 1' <<<"$output")" = "NAME PID COMM STATE STARTED TIME MNTNS USERNS COMMAND" ]
  [ "$(awk 'NR > 1 && $1 != "<unknown>" { print $1 }' <<<"$output")" = "idle
tiny
tree" ]
  [ "$(awk 'NR > 1 && $1 == "tiny" { print $2, $3 }' <<<"$output")" = "$pid sleep" ]
  [ "$(awk 'NR > 1 && $1 == "idle" { print NF }' <<<"$output")" = 1 ]
  # The last columns: namespaces as the kernel numbers them, and the command.
  line=$(grep '^tiny' <<<"$output")
  [[ $line == *" $(readlink "/proc/$pid/ns/mnt" | tr -dc 0-9) "*" $(readlink "/proc/$pid/ns/user" | tr -dc 0-9) "*"sleep 1000" ]]
}

@test "list -f: several processes of one container, writable or not, and containers without a name" {
  start tiny
  first=$pid
  start --rw tiny
  second=$pid
  start tree
  third=$pid
  start --rw tree
  fourth=$pid
  start tiny.sqsh
  unnamed=$pid
  run --separate-stderr enroot list --fancy
  [ "$(pids tiny <<<"$output")" = "$first
$second" ]
  [ "$(pids tree <<<"$output")" = "$third
$fourth" ]
  [ "$(pids '<unknown>' <<<"$output" | grep -x "$unnamed")" = "$unnamed" ]
  # With other containers in sight it has no name.
  [ "$(ENROOT_DATA_PATH=/nonexistent enroot list -f | pids '<unknown>' | grep -cxE "$first|$second")" = 2 ]
}

@test "list -f shows nothing of a container that has ended" {
  start tiny
  kill -KILL "$pid"
  wait "$pid" || true
  run --separate-stderr enroot list -f
  [ "$status" -eq 0 ]
  [ -z "$(pids tiny <<<"$output")" ]
}

@test "exec: the container's files, directory, environment and user; the command's exit code" {
  start tiny
  [ "$(enroot exec "$pid" pwd)" = /etc ]
  [ "$(enroot exec "$pid" sh -c 'echo $ROLE; id -u; cat /proc/1/comm >/dev/null; [ -e /etc/rc ]')" = "main
$(id -u)" ]
  [ "$(HOST=host enroot exec -e A=b --env=C=d --env HOST "$pid" sh -c 'echo $A $C $HOST')" = "b d host" ]
  run enroot exec -- "$pid" sh -c 'exit 42'
  [ "$status" -eq 42 ]
  run enroot exec "$pid" sh -c 'kill -TERM $$'
  [ "$status" -eq 143 ]
  [ "$(echo through | enroot exec "$pid" cat)" = through ]
  # What begins with a dash behind the number is the command's.
  [ "$(enroot exec "$pid" echo --help)" = --help ]
}

@test "exec: what one changes the other sees" {
  start --rw tiny
  enroot exec "$pid" touch /from-exec
  enroot start tiny ls /from-exec
  enroot start --rw tiny rm /from-exec
  run enroot exec "$pid" ls /from-exec
  [ "$status" -ne 0 ]
  enroot exec "$pid" sh -c 'echo text >/tmp/shared'
  [ "$(enroot exec "$pid" cat /tmp/shared)" = text ]
  [ ! -e /tmp/shared ]
}

@test "exec: root stays root inside, and nobody gets more than the container has" {
  start --root tiny
  [ "$(enroot exec "$pid" id -u)" = 0 ]
  # apt and dpkg change owners and ids with one mapped id.
  enroot exec "$pid" sh -c 'touch /tmp/f && chown 7:8 /tmp/f'
  start tiny
  [ "$(enroot exec "$pid" grep CapPrm /proc/self/status | awk '{print $2}')" = 0000000000000000 ]
  [ "$(enroot exec "$pid" grep NoNewPrivs /proc/self/status | awk '{print $2}')" = 1 ]
}

@test "exec: into a Slurm step, by the number that list -f shows" {
  srun --container-image=registry.test#tiny sh -c 'cd /usr; sleep 300' >/dev/null 2>&1 3>&- &
  running+=("$!")
  for _ in {1..300}; do
    # What prepares the container is listed as well, for a moment.
    step=$(enroot list -f | awk '$1 ~ /^pyxis_[0-9]+[.][0-9]+$/ && /sleep 300/ { print $2 }')
    [ -z "$step" ] || break
    sleep 0.1
  done
  [ "$(enroot exec "$step" sh -c 'echo $SLURM_PROCID; [ -e /etc/rc ] && id -u')" = "0
$(id -u)" ]
  scancel -u alice
}

@test "exec: what cannot be done is said" {
  errors() {
    run --separate-stderr enroot exec "$@"
    [ "$status" -eq 1 ]
    [ -z "$output" ]
    echo "$stderr"
  }
  errors 4000000 true
  [ "$stderr" = "[ERROR] Process not found: 4000000 [container-not-found]" ]
  errors $$ true
  [[ "$stderr" == "[ERROR] process $$ is not in a container"* ]]
  others=$(ps -eo pid=,user= | awk '$2 == "root" { print $1; exit }')
  errors "$others" true
  [[ "$stderr" == "[ERROR] process $others belongs to another user"* ]]
  errors abc true
  [[ "$stderr" == "[ERROR] Invalid argument: abc"* ]]
  start tiny
  errors "$pid"
  [[ "$stderr" == "[ERROR] exec: PID and COMMAND are required"* ]]
  errors -e 1A=x "$pid" true
  [[ "$stderr" == "[ERROR] Invalid argument: 1A=x"* ]]
  errors "$pid" /no/such/program
  [ "$stderr" = "[ERROR] execute /no/such/program: No such file or directory [command]" ]
  kill -KILL "$pid"
  wait "$pid" || true
  errors "$pid" true
  [ "$stderr" = "[ERROR] Process not found: $pid [container-not-found]" ]
}
