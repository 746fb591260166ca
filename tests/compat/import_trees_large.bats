# lab: --user root --disk --with pytorch
# The same for an image of two gigabytes, and what starting it is good for.
bats_require_minimum_version 1.5.0
load import_trees
load import_many

@test "pytorch" {
  rm -rf "$work"
  work=$(mktemp -d /root/situla-test.XXXXXX)
  same_tree pytorch:latest pytorch:latest
}

@test "import torch, as the first thing after a cold import" {
  run runuser -u alice -- env HOME=/home/alice srun --container-image=registry.test/pytorch python3 -c 'import torch; print(int(torch.ones(3).sum()))'
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = 3 ]
}

@test "a million files in bounded memory" {
  rm -rf "$work"
  work=$(mktemp -d /root/situla-test.XXXXXX)
  peak_stays_low 1000000
}
