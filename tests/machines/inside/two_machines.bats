# Two machines, with kernels of their own and a network between them; these tests run on node1, which serves NFS: the users' files and, with
# --fs nfs, the store. Without, each node has a store of its own, and what one node has fetched goes to the other (distribute = "sbcast").
load helpers
BATS_TEST_TIMEOUT=900

debian=registry.test#debian:12
mpi=registry.test#mpi
once=${once/^/^node[12]: }
left() { on_both /tests/look; }
on_both() { srun -Q -N2 --ntasks-per-node=1 "$@"; }

setup() {
  cd /
  snapshot
  : >/run/registry.log
}

teardown() {
  [ -n "$BATS_TEST_COMPLETED" ] || as_alice scancel -u alice
}

# power on|off: of node2, at its host.
power() { echo "machine: node2 $1" >/dev/ttyS1; }

# who_fetches IMAGE: the addresses that asked the registry for its layers.
who_fetches() { sed -n "s,^\([0-9.]*\) .*GET /v2/$1/blobs/.*,\1,p" /run/registry.log | sort -u; }
node2_fetches() { who_fetches "$1" | grep -qx 192.0.2.2; }

no_node_has() {
  if on_nfs; then situla rm --force "$1"; else on_both situla rm "$1"; fi
}

# On a store that nodes share, for an hour nobody takes what lies still for a dead one's; and a node's slots are that node's.
an_hour_later() {
  on_nfs || return 0
  runuser -u situla -- find /var/lib/situla/{leases,images} -type f '(' -name '*.next' -o -name '*.part' ')' -exec touch -d '2 hours ago' '{}' +
  forget "$1"
  step -w node2 --container-image="$1" true
  [ "$status" -eq 0 ]
}

@test "both nodes, which are machines of their own, start an image that is fetched once" {
  step -N2 --container-image=$debian sh -c '. /etc/os-release; echo "$SLURMD_NODENAME $(cat /proc/sys/kernel/random/boot_id) $VERSION_CODENAME"'
  [ "$status" -eq 0 ]
  [ "$(grep -c '^node[12] .* bookworm$' <<<"$output")" -eq 2 ]
  [ "$(cut -d' ' -f2 <<<"$output" | sort -u | wc -l)" -eq 2 ]
  cat /run/registry.log
  [ "$(who_fetches debian | wc -l)" -eq 1 ]
  run on_both sh -c 'situla images | grep -c debian'
  [ "$output" = $'1\n1' ]
  nothing_left
}

# MPICH's own messages are not sent here: a rank of Debian 12's that has ended waits for the others in PMI's barrier, without answering what
# UCX over TCP still asks of it, and the others ask for ever.
@test "MPI over both, by PMI2 and by PMIx" {
  step -N2 --ntasks-per-node=2 --mpi=pmi2 --container-image=$mpi pmi2
  [ "$(grep -c -E '^rank [0-3] of 4 on node[12], next on node[12]$' <<<"$output")" -eq 4 ]
  PMIX_MCA_gds=hash step -N2 --ntasks-per-node=2 --mpi=pmix --container-image=$mpi hello
  [ "$status" -eq 0 ]
  [ "$(grep -c -E '^rank [0-3] of 4 on node[12], [01] of 2 here, .*sum 6, ring ok, ' <<<"$output")" -eq 4 ]
  [ "$(grep -o -E '^rank [0-3]' <<<"$output" | sort -u | wc -l)" -eq 4 ]
  nothing_left
}

@test "a batch script of two nodes, in a home that both have" {
  as_alice tee batch.sh >/dev/null <<'BATCH'
#!/bin/sh
#SBATCH -N2
#SBATCH --output=batch.out
srun --container-image=registry.test#debian:12 --container-mount-home sh -c 'echo "$SLURMD_NODENAME" >"$HOME/from.$SLURM_PROCID"; echo done'
BATCH
  as_alice sbatch --wait batch.sh
  as_alice cat batch.out
  [ "$(as_alice grep -c -x done batch.out)" -eq 2 ]
  [ "$(as_alice cat from.0 from.1)" = $'node1\nnode2' ]
  nothing_left
}

@test "scancel of a step that runs on both" {
  begin cancelled -N2 --container-image=$debian sh -c 'echo in; sleep 1000'
  both_in() { [ "$(grep -c '^in$' /run/cancelled.log)" -eq 2 ]; }
  wait_until 60 both_in
  as_alice scancel "$(squeue -h -n cancelled -o %i)"
  wait_until 120 over cancelled
  nothing_left
}

@test "the power of node2 goes while it imports: node1 gets the image, and node2 works again when it is back" {
  no_node_has $debian
  begin lost -w node2 --container-image=$debian true
  wait_until 120 node2_fetches debian
  power off
  from=$SECONDS
  step -w node1 --container-image=$debian sh -c '. /etc/os-release; echo $VERSION_CODENAME'
  echo "after $((SECONDS - from)) s"
  [ "$output" = bookworm ]
  as_alice scancel -u alice
  power on
  idle() { [ "$(sinfo -h -N -o %T | sort -u)" = idle ]; }
  up_again() { scontrol update nodename=node2 state=resume 2>/dev/null; idle && on_both true; }
  wait_until 240 up_again
  # What imports that have been dead for half a minute have left goes with the next one.
  forget $debian
  step -N2 --container-image=$debian sh -c 'echo $SLURMD_NODENAME'
  [ "$(sort <<<"$output")" = $'node1\nnode2' ]
  run situla verify
  echo "$output"
  [ "$status" -eq 0 ]
  an_hour_later $debian
  nothing_left
}
