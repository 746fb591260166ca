# lab: --nodes 2 --with mpi --user root --slurm-conf TmpFS=/var/tmp
# MPI programs whose library is in the image, started by srun over two nodes, and by mpirun inside of one container. The programs and what
# they print: images/mpi/. Open MPI speaks PMIx, MPICH and libpmi2 speak PMI2.
load helpers

image=--container-image=registry.test/mpi

setup_file() {
  # Every message of the tests is then about something else.
  as_alice srun -N2 --ntasks-per-node=1 "$image" true
}

# PMIx 4.2.2 keeps what the ranks tell each other in shared memory that all of a node read (ds21), and on a busy machine a rank reads too early
# and crashes: 8 of 250 runs of the program outside of any container, none of 180 with what the server sends instead (hash).
setup() {
  cd /home/alice
  export PMIX_MCA_gds=hash
  snapshot
}

step() { run_and_show as_alice timeout 180 srun -N2 --ntasks-per-node=2 "$image" "$@"; }

# ranks COUNT NODES USERID SEGMENTS: every rank once, all with the right sum and messages, and every way of communication open between the
# ranks of a node. The ring leaves out no neighbour, so a rank that knows SEGMENTS segments exchanged messages through them.
ranks() {
  local sum=$(($1 * ($1 - 1) / 2)) line="rank [0-9]+ of $1 on node[12], [0-9] of $(($1 / $2)) here"
  [ "$status" -eq 0 ]
  line+=", uid $3: sum $sum, ring ok, window ok, peer's memory readable, $4 shared segments"
  [ "$(grep -cxE "$line" <<<"$output")" -eq "$1" ]
  [ "$(grep -oE '^rank [0-9]+' <<<"$output" | sort -u | wc -l)" -eq "$1" ]
  [ "$(grep -oE ' on node[12]' <<<"$output" | sort -u | wc -l)" -eq "$2" ]
  if grep -iE 'pmix error|warning|error' <<<"$output"; then false; fi
}

@test "PMIx: four ranks on two nodes, through shared memory where they can" {
  step --mpi=pmix hello
  ranks 4 2 60801 2
  nothing_left
}

@test "PMIx: the server's shared memory is there for the ranks" {
  local attempt
  unset PMIX_MCA_gds
  for attempt in 1 2 3 4; do
    step --mpi=pmix hello
    grep 'Failing at address: (nil)' <<<"$output" || break
  done
  ranks 4 2 60801 2
  nothing_left
}

@test "PMIx: the modules that the server names, as libraries in images read them, without a hook" {
  unset PMIX_MCA_gds
  step --mpi=pmix sh -c 'echo "gds $PMIX_MCA_gds is $PMIX_GDS_MODULE"; echo "psec $PMIX_MCA_psec is $PMIX_SECURITY_MODE"'
  [ "$status" -eq 0 ]
  [ "$(grep -cE '^gds ([a-z0-9,]+) is \1$' <<<"$output")" -eq 4 ]
  [ "$(grep -cE '^psec ([a-z0-9,]+) is \1$' <<<"$output")" -eq 4 ]
}

@test "PMIx: a writable and a read-only root" {
  step --mpi=pmix --container-writable hello
  ranks 4 2 60801 2
  step --mpi=pmix --container-readonly hello
  ranks 4 2 60801 2
  nothing_left
}

@test "PMIx: a user who is root inside" {
  step --mpi=pmix --container-remap-root hello
  ranks 4 2 0 2
  nothing_left
}

@test "PMIx: the server's directories are where they are outside, the host's other ones are not" {
  step --mpi=pmix sh -c 'ls -d $PMIX_SERVER_TMPDIR/pmix_dstor* /var/tmp/*; ls /var/spool/slurmd'
  [ "$status" -eq 0 ]
  [ "$(grep -c '^/var/spool/slurmd/pmix\.[0-9]*\.0//*pmix_dstor_ds21' <<<"$output")" -eq 4 ]
  # Slurm makes it where TmpFS says.
  [ "$(grep -c '^/var/tmp/spmix_appdir_60801_[0-9]*\.0$' <<<"$output")" -eq 4 ]
  [ "$(grep '^pmix' <<<"$output" | sort -u | wc -l)" -eq 1 ]
  if grep -e cred_state -e '^stepd' <<<"$output"; then false; fi
}

@test "PMIx: the application's directory elsewhere" {
  run_and_show as_alice env SLURM_PMIX_TMPDIR=/tmp srun -N2 --ntasks-per-node=2 --mpi=pmix "$image" sh -c 'ls -d /tmp/* && hello'
  [ "$(grep -c '^/tmp/spmix_appdir_60801_[0-9]*\.0$' <<<"$output")" -eq 4 ]
  ranks 4 2 60801 2
  run_and_show as_alice env SLURM_PMIX_TMPDIR=/tmp srun -N2 --ntasks-per-node=2 --mpi=pmix --container-mounts=/tmp:/tmp "$image" hello
  ranks 4 2 60801 2
}

@test "PMIx: steps that use a named container one after the other, each with its own directories" {
  step --container-name=mpi --mpi=pmix hello
  ranks 4 2 60801 2
  run_and_show as_alice srun -N2 --ntasks-per-node=2 --container-name=mpi --mpi=pmix sh -c 'ls -d /var/spool/slurmd/* /var/tmp/*; hello'
  ranks 4 2 60801 2
  [ "$(grep -c '^/var/spool/slurmd/pmix\.[0-9]*\.0$' <<<"$output")" -eq 4 ]
  [ "$(grep -c '^/var/tmp/spmix_appdir_60801_[0-9]*\.0$' <<<"$output")" -eq 4 ]
  # The lab's nodes share the home directories.
  as_alice srun -N1 -n1 enroot remove -f pyxis_mpi
  nothing_left
}

@test "each task has variables of its own" {
  step --mpi=pmix sh -c 'echo $SLURM_PROCID $PMIX_RANK $SLURM_LOCALID on $SLURMD_NODENAME'
  [ "$status" -eq 0 ]
  [ "$(grep '^[0-3] ' <<<"$output" | sort)" = "0 0 0 on node1
1 1 1 on node1
2 2 0 on node2
3 3 1 on node2" ]
  step --mpi=pmi2 sh -c 'echo $SLURM_PROCID $PMI_RANK of $PMI_SIZE, $(readlink /proc/self/fd/$PMI_FD | cut -d: -f1)'
  [ "$status" -eq 0 ]
  [ "$(grep '^[0-3] ' <<<"$output" | sort)" = "0 0 of 4, socket
1 1 of 4, socket
2 2 of 4, socket
3 3 of 4, socket" ]
}

@test "with PYTORCH_VERSION, the image's or the job's, each task has its RANK and LOCAL_RANK, whatever was set" {
  local ranks=("0 0" "1 1" "2 0" "3 1")
  run_and_show as_alice env PYTORCH_VERSION=2 RANK=77 LOCAL_RANK=77 srun -N2 --ntasks-per-node=2 "$image" sh -c 'echo $RANK $LOCAL_RANK'
  [ "$(grep -E '^[0-9]' <<<"$output" | sort)" = "$(printf '%s\n' "${ranks[@]}")" ]
  as_alice mkdir -p /home/alice/.config/enroot/environ.d
  echo PYTORCH_VERSION=2 >/home/alice/.config/enroot/environ.d/torch.env
  run_and_show as_alice env RANK=77 LOCAL_RANK=77 srun -N2 --ntasks-per-node=2 "$image" sh -c 'echo $RANK $LOCAL_RANK'
  rm /home/alice/.config/enroot/environ.d/torch.env
  [ "$(grep -E '^[0-9]' <<<"$output" | sort)" = "$(printf '%s\n' "${ranks[@]}")" ]
  run_and_show as_alice env RANK=77 LOCAL_RANK=77 srun -N2 --ntasks-per-node=2 "$image" sh -c 'echo $RANK $LOCAL_RANK'
  [ "$(grep -cx '77 77' <<<"$output")" -eq 4 ]
}

@test "a step of another kind has none of this" {
  unset PMIX_MCA_gds
  step --mpi=none sh -c 'env | grep -c ^PMI; ls /var/spool/slurmd'
  [ "$status" -ne 0 ]
  [ "$(grep -cx 0 <<<"$output")" -eq 4 ]
  [ "$(grep -c "/var/spool/slurmd'.*No such file" <<<"$output")" -eq 4 ]
}

@test "PMI2: libpmi2 in the image, four ranks on two nodes, also as root inside" {
  for more in --container-readonly --container-writable --container-remap-root; do
    step --mpi=pmi2 $more pmi2
    [ "$status" -eq 0 ]
    [ "$(grep '^rank' <<<"$output" | sort)" = "rank 0 of 4 on node1, next on node1
rank 1 of 4 on node1, next on node2
rank 2 of 4 on node2, next on node2
rank 3 of 4 on node2, next on node1" ]
  done
  nothing_left
}

# Over two nodes Debian's MPICH does not come back from MPI_Finalize in this lab, outside of containers neither.
@test "PMI2: MPICH in the image, four ranks of one node" {
  run_and_show as_alice timeout 180 srun -N1 -n4 --mpi=pmi2 "$image" hello-mpich
  ranks 4 1 60801 5
  nothing_left
}

@test "shared memory alone is enough for the ranks of one node, and is not for two" {
  run_and_show as_alice env OMPI_MCA_btl=self,vader timeout 180 srun -N1 -n4 --mpi=pmix "$image" hello
  ranks 4 1 60801 4
  run_and_show as_alice env OMPI_MCA_btl=self,vader timeout 180 srun -N2 --ntasks-per-node=2 --mpi=pmix "$image" hello
  [ "$status" -ne 0 ]
  grep 'unable to reach each other' <<<"$output"
  nothing_left
}

@test "sbatch: steps of both kinds, one after the other and at the same time" {
  cat >/home/alice/mpi.sh <<SCRIPT
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=2 --output=/home/alice/mpi.out
export SRUN_CONTAINER="$image"
srun --mpi=pmix \$SRUN_CONTAINER hello
srun --mpi=pmi2 \$SRUN_CONTAINER pmi2 | sed 's/^rank/pmi2 rank/'
srun --overlap --mpi=pmix \$SRUN_CONTAINER sh -c 'hello | sed "s/^/first: /"' &
srun --overlap --mpi=pmix \$SRUN_CONTAINER sh -c 'hello | sed "s/^/second: /"' &
wait -n && wait -n && echo both
SCRIPT
  run as_alice timeout 180 "$lab_tests/submit" /home/alice/mpi.sh
  echo "$output"
  cat /home/alice/mpi.out
  [ "$status" -eq 0 ]
  for which in "" "first: " "second: "; do
    [ "$(grep -c "^${which}rank [0-3] of 4 .* sum 6, ring ok" /home/alice/mpi.out)" -eq 4 ]
  done
  [ "$(grep -c '^pmi2 rank [0-3] of 4' /home/alice/mpi.out)" -eq 4 ]
  grep -x both /home/alice/mpi.out
  rm /home/alice/mpi.sh /home/alice/mpi.out
  nothing_left
}

@test "mpirun inside of one container starts its ranks itself" {
  run_and_show as_alice timeout 180 srun -N1 -n1 "$image" mpirun -n 4 --oversubscribe hello
  ranks 4 1 60801 4
  run_and_show as_alice timeout 180 srun -N1 -n1 --container-remap-root "$image" mpirun -n 4 --oversubscribe --allow-run-as-root hello
  ranks 4 1 0 4
  printf '#!/bin/bash\nmpirun -n 4 --oversubscribe hello\n' >/home/alice/run.sh
  run as_alice timeout 180 "$lab_tests/submit" -N1 -n4 --output=/home/alice/run.out "$image" /home/alice/run.sh
  output=$(cat /home/alice/run.out)
  echo "$output"
  ranks 4 1 60801 4
  rm /home/alice/run.sh /home/alice/run.out
  nothing_left
}

# The image's mpirun finds srun (hooks/slurm), which starts its daemons in containers like its own. As outside: in the batch script Slurm's
# variables are about the job, in a step about that.
@test "mpirun of Open MPI and of MPICH in one container start their ranks on the nodes of the job" {
  printf '#!/bin/sh\nmpirun -np 4 --map-by ppr:2:node hello\n' >script
  as_alice timeout 180 sbatch -Q -W -N2 --ntasks-per-node=2 -o /home/alice/out "$image" script
  run cat out
  ranks 4 2 60801 2
  printf '#!/bin/sh\nmpiexec.hydra -np 4 -ppn 2 sh -c "echo \\$PMI_RANK on \\$(hostname)"\n' >script
  as_alice timeout 180 sbatch -Q -W -N2 --ntasks-per-node=2 -o /home/alice/out "$image" script
  run cat out
  echo "$output"
  [ "$(grep -E '^[0-3] on' <<<"$output" | sort)" = $'0 on node1\n1 on node1\n2 on node2\n3 on node2' ]
  rm out script
  nothing_left
}
