# lab: --user root --proctrack cgroup --slurm-conf KillWait=15 --slurm-conf MessageTimeout=60 --situla-conf tests/cluster/no_idle.toml
# Steps of all kinds of two users at once: each ends as it must, and nothing grows. tests/soak/README.md; thousands of them: tests/soak/soak.
load helpers

soak() { run_and_show "$lab_tests/../soak/soak" "$@"; }

@test "sixty steps of all kinds" {
  soak --steps 60 --sample-every 60 --seed "${SITULA_SOAK_SEED:-1}"
  [ "$status" -eq 0 ]
  grep -qx '0 ended in another way than they must; nothing grew' <<<"$output"
}

@test "what is left behind is found" {
  soak --steps 1 --settle 1 --leak mount --leak file --leak process
  [ "$status" -eq 1 ]
  grep -q '^left after 1 steps: mount /mnt tmpfs (1)$' <<<"$output"
  grep -q '^left after 1 steps: process alice sleep 1000000 (1)$' <<<"$output"
  grep -q '^0 ended in another way than they must; grown: .*processes,.*mounts of the node,.*files in /run/situla' <<<"$output"
}
