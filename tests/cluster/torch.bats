# lab: --name large --nodes 2 --with pytorch --disk
# torch.distributed over two nodes with two processes each: started by torchrun, and by srun itself.
load helpers

image=--container-image=registry.test/pytorch

setup_file() {
  export work=$(mktemp -d "$HOME/torch.XXXXXX")
  cat >"$work/sum.py" <<'PYTHON'
import os
import socket

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
values = torch.full((1000,), float(rank + 1))
dist.all_reduce(values)
gathered = [None] * size
dist.all_gather_object(gathered, (rank, int(os.environ["LOCAL_RANK"]), socket.gethostname()))
print(f"rank {rank} of {size}, local {os.environ['LOCAL_RANK']} on {socket.gethostname()}: sum {values.sum().item():.0f}, {len(set(gathered))} met", flush=True)
dist.destroy_process_group()
PYTHON
  # Two gigabytes for each node; the tests are then about something else.
  srun -N2 --ntasks-per-node=1 "$image" true
}

teardown_file() { rm -rf "$work"; }

setup() { cd "$work"; }

# Ranks 1 to 4 add up to 10, a thousand times.
four_ranks() {
  for line in "rank 0 of 4, local 0 on node1" "rank 1 of 4, local 1 on node1" "rank 2 of 4, local 0 on node2" "rank 3 of 4, local 1 on node2"; do
    grep -x "$line: sum 10000, 4 met" <<<"$output"
  done
}

# Nodes of the lab share one network: a port for each job. --redirects and --tee, which put "[default0]:" before each line, are for Debian's
# torch 1.13, whose defaults for them do not survive Python 3.11.
@test "torchrun with a rendezvous at the first node" {
  cat >job.sh <<SCRIPT
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --output=out.torchrun
endpoint=\$(scontrol show hostname \$SLURM_NODELIST | head -n1):\$((29500 + SLURM_JOB_ID))
srun $image --container-mounts=$work:/job torchrun --redirects 1 --tee 1 --nnodes 2 --nproc_per_node 2 --rdzv_id \$SLURM_JOB_ID --rdzv_backend=c10d --rdzv_endpoint=\$endpoint /job/sum.py
SCRIPT
  run "$lab_tests/submit" job.sh
  output=$(sed 's/^\[default[01]\]://' out.torchrun)
  echo "$output"
  [ "$status" -eq 0 ]
  # Which node becomes the first one is the rendezvous's choice.
  [ "$(grep -cE '^rank [0-3] of 4, local [01] on node[12]: sum 10000, 4 met$' <<<"$output")" -eq 4 ]
  [ "$(grep -oE '^rank [0-3]' <<<"$output" | sort -u | wc -l)" -eq 4 ]
  [ "$(grep -oE 'local [01] on node[12]' <<<"$output" | sort -u | wc -l)" -eq 4 ]
}

@test "plain srun: the image has PYTORCH_VERSION, so each task has its RANK and LOCAL_RANK" {
  cat >job.sh <<SCRIPT
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=2 --output=out.srun
export MASTER_ADDR=\$(scontrol show hostname \$SLURM_NODELIST | head -n1) MASTER_PORT=\$((29500 + SLURM_JOB_ID)) WORLD_SIZE=\$SLURM_NTASKS
export RANK=77 LOCAL_RANK=77
srun $image --container-mounts=$work:/job python3 /job/sum.py
SCRIPT
  run "$lab_tests/submit" job.sh
  output=$(cat out.srun)
  echo "$output"
  [ "$status" -eq 0 ]
  four_ranks
}
