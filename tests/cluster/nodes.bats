# lab: --nodes 4
# Several nodes, each with its own store, mounts and broker.
load helpers

setup() { cd "$HOME"; }

@test "eight tasks on four nodes see the same root" {
  mkdir -p "$HOME/x"
  echo content >"$HOME/x/f"
  run_and_show srun -N4 -n8 --container-image=registry.test/tiny --container-mounts="$HOME/x:/data:ro,tmpfs:/scratch" --container-workdir=/data \
    sh -c 'echo at $SLURM_NODEID; pwd; cat f; id -u'
  [ "$status" -eq 0 ]
  [ "$(grep -cx /data <<<"$output")" -eq 8 ]
  [ "$(grep -cx content <<<"$output")" -eq 8 ]
  [ "$(grep '^at' <<<"$output" | sort -u | wc -l)" -eq 4 ]
}

@test "an error is said once per node, not per task" {
  run_and_show srun -N4 -n8 --container-image=registry.test/tiny:none true
  [ "$status" -ne 0 ]
  local lines_with_reason
  lines_with_reason=$(grep -c 'registry.test/tiny:none' <<<"$output")
  [ "$lines_with_reason" -ge 1 ]
  [ "$lines_with_reason" -le 4 ]
}
