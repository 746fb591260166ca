# lab: --nodes 2 --user root --plugin-arg importer=/shared/importer --plugin-arg runtime_path=/tmp/pyxis
# A cluster's own program on several nodes: each asks it once and releases once, by the name that the user wrote.
load helpers

@test "get and release once on every node of a step" {
  install -m 0666 /dev/null /shared/calls
  cat >/shared/importer <<EOF
#!/bin/bash
echo "\$1 \$2 \$(hostname)" >>/shared/calls
[ "\$1" = get ] || exit 0
image=\$PYXIS_RUNTIME_PATH/\$SLURM_JOB_UID/\$SLURM_JOB_ID.sqsh
$SITULA_LAB_PREFIX/bin/enroot import -o "\$image" "\$2" && echo "\$image"
EOF
  chmod 0755 /shared/importer
  run_and_show as_alice srun -N2 -n4 --container-image=registry.test/tiny:latest sh -c 'echo "$SLURM_PROCID $(cat hello.txt)"'
  [ "$status" -eq 0 ]
  [ "$(grep -c '^[0-3] hello from the top layer$' <<<"$output")" -eq 4 ]
  all_released() { [ "$(grep -c ^release /shared/calls)" -eq 2 ]; }
  wait_until 5 all_released
  cat /shared/calls
  [ "$(sort /shared/calls)" = "get docker://registry.test/tiny:latest node1
get docker://registry.test/tiny:latest node2
release  node1
release  node2" ]
  # What pyxis has below its runtime_path: a directory for each user.
  [ "$(stat -c '%U %a' "/tmp/pyxis/$(id -u alice)")" = 'alice 700' ]
  [ "$(find "/tmp/pyxis/$(id -u alice)" -name '*.sqsh' | wc -l)" -eq 1 ]
}
