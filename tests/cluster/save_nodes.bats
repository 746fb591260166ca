# lab: --nodes 2
# --container-save of a step on several nodes: each saves its own container. As alice, on node1.
load helpers

on_each_node() { srun -N2 --ntasks-per-node=1 "$@"; }

@test "each node saves, and it is said once that they share a path" {
  cd "$HOME"
  run_and_show srun -N2 -n4 --container-writable --container-image=registry.test/tiny --container-save=/tmp/situla-saved.sqsh \
    sh -c '[ $SLURM_LOCALID != 0 ] || echo "from node $SLURM_NODEID" >/which'
  [ "$status" -eq 0 ]
  [ "$(grep -c 'each of the 2 nodes saves its container there' <<<"$output")" -eq 1 ]
  [ "$(grep -c 'exported container' <<<"$output")" -eq 2 ]
  run_and_show on_each_node --container-image=/tmp/situla-saved.sqsh cat /which
  [ "$status" -eq 0 ]
  grep -qx 'from node 0' <<<"$output"
  grep -qx 'from node 1' <<<"$output"
  on_each_node rm /tmp/situla-saved.sqsh
}

@test "onto a shared path: one of them, whole" {
  cd "$HOME"
  run_and_show srun -N2 --container-writable --container-image=registry.test/tiny --container-save=shared.sqsh sh -c 'echo "node $SLURM_NODEID" >/which'
  [ "$status" -eq 0 ]
  [[ "$(unsquashfs -cat shared.sqsh which)" == 'node '[01] ]]
  [ -z "$(find . -name '.situla*')" ]
}

@test "a node that cannot says so, the other saves" {
  srun -N1 -n1 -w node2 mkdir -m 500 /tmp/situla-only
  mkdir /tmp/situla-only
  cd "$HOME"
  run_and_show srun -N2 --container-image=registry.test/tiny --container-save=/tmp/situla-only/x.sqsh true
  [ "$status" -ne 0 ]
  [[ "$output" == *'node2: error: situla: --container-save /tmp/situla-only/x.sqsh: Permission denied'* ]]
  on_each_node sh -c 'rm -rf /tmp/situla-only'
}
