# lab: --name node --user root --proctrack cgroup --slurm-conf KillWait=15 --situla-conf tests/cluster/no_idle.toml
# lab: --name nodes --user root --proctrack cgroup --slurm-conf KillWait=15 --nodes 2 --situla-conf tests/faults/nodes.toml
# A system call of one of Situla's programs fails: the step goes on as if nothing had been, or fails with a message; nothing is left, and the next step
# works. tests/faults/README.md says how, and walks through all of them. SITULA_FAULT_SEED chooses other points.
load helpers

setup_file() {
  [ "$(uname -m)" = x86_64 ] || skip "the injector knows the registers of x86-64 only"
  "$lab_tests/../../build/release/tests/faults/inject" --program true --fault EIO --report "$BATS_FILE_TMPDIR/report" -- true || skip "no ptrace(2) here"
}

matrix() { run_and_show "$lab_tests/../faults/matrix" "$@"; }

# tried N: at least so many points were there to be tried.
tried() { [ "$(grep -c -- ' --nth [0-9]*: ' <<<"$output")" -ge "$1" ]; }

# point PATTERN...: of one point, which ends rightly and whose message matches the pattern.
point() {
  local pattern=$1
  shift
  matrix --verbose --nth 1 "$@"
  [ "$status" -eq 0 ]
  grep -q -- "--nth 1: " <<<"$output" || { echo "no such call"; return 1; }
  grep -Eq -- "$pattern" <<<"$output" || { echo "no line matches: $pattern"; return 1; }
}

# bats test_tags=lab:nodes
@test "some points of a step of two nodes, one of which gives the image to the other" {
  SITULA_FAULTS_LAB=nodes matrix --verbose --points 5 --seed "${SITULA_FAULT_SEED:-1}"
  [ "$status" -eq 0 ]
  tried 1
}
# bats test_tags=lab:nodes
@test "where nothing can be made in the place of what other nodes have sent, that is removed all the same" {
  SITULA_FAULTS_LAB=nodes point 'mknodat claim.0' --scenario nodes --program situla-broker --error ENOSPC --call mknodat --operand claim.0
}

# bats file_tags=lab:node
@test "some points of the matrix" {
  matrix --verbose --points 24 --seed "${SITULA_FAULT_SEED:-1}" --scenario cold --scenario mounts --scenario named --scenario save --scenario start
  [ "$status" -eq 0 ]
  tried 6
}

# Once a part of the container was missing, and nobody said so.
@test "a file of the image that cannot be opened is not taken for missing" {
  point 'status 1: .*Too many open files' --scenario start --program situla --error EMFILE --call openat2 --operand /etc/rc
  point 'status 1: .*Cannot allocate memory' --scenario start --program situla --error ENOMEM --operand /etc/group --call openat2
}
@test "nofail skips a mount that is missing, not one that cannot be made just now" {
  point 'status 1: .*/dev/shm.*Too many open files' --scenario start --program situla --error EMFILE --call open_tree --operand /dev/shm
}

@test "cgroups that cannot be looked up are not taken for none" {
  point 'Cannot allocate memory' --scenario warm --program situla-broker --error ENOMEM --call openat --operand /proc/self/mountinfo
}

@test "ioctl(2): no loop device is no end of a start; whose namespaces cannot be told is, with the cause" {
  point 'served by a process.*find a free loop device: No space left on device' --scenario mounts --program situla-broker --error ENOSPC --call ioctl
  point 'status 1: .*find the user namespace that owns a namespace: Too many open files' --scenario warm --program situla-broker --error EMFILE --call ioctl
}

@test "futex(2): who is woken for nothing waits on" {
  point 'status 0' --scenario cold --program situla-importer --error EAGAIN --call futex
  point 'status 0' --scenario cold --program situla-importer --error EINTR --call futex
}

@test "nothing to receive yet is not the end of a connection" {
  point 'status 0' --scenario warm --program situla-broker --error EAGAIN --call recvmsg
}

@test "a thread that does not start, a helper that is killed, have a message" {
  point 'start a thread: Resource temporarily unavailable' --scenario cold --program situla-store --error EAGAIN --call clone3
  point 'collecting the credentials was killed by SIGKILL' --scenario cold --program situla-builder --argument request --error kill --call read
}

@test "a clock that jumps: nothing waits for a day, and what a certificate says of it is told" {
  point 'hint: look at this node.s clock' --scenario cold --program situla-importer --error clock-back
  point 'status 0' --scenario cold --program situla-store --error clock-forward
  point 'status 0' --scenario warm --program situla-broker --error clock-back
}

@test "the socket of a running container does not keep its first name" {
  point 'status [01]' --scenario file --program situla-broker --error ENOSPC --call rename
}
