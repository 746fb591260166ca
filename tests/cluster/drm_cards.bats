# lab: --user root --proctrack cgroup --gpus 2 --drm intel,0000:18:00.0 --drm intel,0000:2a:00.0 --drm aspeed,0000:02:00.0 --drm --devices=real --slurm-conf TaskPlugin=task/affinity,task/cgroup --slurm-file tests/cluster/slurm/cgroup.conf --slurm-file tests/cluster/slurm/cards/gres.conf --situla-conf tests/cluster/drm.toml
# Intel's GPUs in Slurm steps. Slurm knows them by their cards (AutoDetect=oneapi) and forbids the cards of others; their render
# nodes, by which programs compute, can be opened by all. A container has only its own.
load helpers

setup_file() { as_alice srun -Q --container-image=registry.test/debian:12 true; }

setup() {
  cd /home/alice
  unset ENROOT_RESTRICT_DEV
  snapshot
}

# $output is what the step prints; what srun says is shown only.
step() {
  run --separate-stderr as_alice srun -Q --container-image=registry.test/debian:12 "$@"
  printf '%s\n' "status=$status" "$output" "$stderr"
}
nodes='ls /dev/dri | grep -v by-path | tr "\n" " "'

@test "a /dev of the container's own has the card and the render node of the step's GPU" {
  export ENROOT_RESTRICT_DEV=y
  step --gres=gpu:1 sh -c "$nodes; ls /dev/dri/by-path | tr '\n' ' '"
  [ "$status" -eq 0 ]
  [ "$output" = "card0 renderD128 pci-0000:18:00.0-card pci-0000:18:00.0-render " ]
  step --gres=gpu:2 sh -c "$nodes"
  [ "$output" = "card0 card1 renderD128 renderD129 " ]
  nothing_left
}

@test "in the node's /dev the render node of another's GPU is hidden, and a screen's node stays" {
  step --gres=gpu:1 sh -c "$nodes; ls /dev/dri/by-path | tr '\n' ' '"
  [ "$output" = "card0 card2 renderD128 pci-0000:02:00.0-card pci-0000:18:00.0-card pci-0000:18:00.0-render " ]
  nothing_left
}

@test "two steps side by side have one each" {
  run_and_show as_alice sbatch -Q --wait -o cards.out -n2 --gres=gpu:2 --wrap "
    srun -Q --exact -n1 --gres=gpu:1 --container-image=registry.test/debian:12 sh -c 'ls /dev/dri | grep renderD; sleep 5' &
    srun -Q --exact -n1 --gres=gpu:1 --container-image=registry.test/debian:12 sh -c 'ls /dev/dri | grep renderD; sleep 5' &
    wait"
  [ "$status" -eq 0 ]
  cat cards.out
  [ "$(grep -x "renderD[0-9]*" cards.out | sort)" = $'renderD128\nrenderD129' ]
  nothing_left
}

@test "a step without GPUs is left alone" {
  step sh -c 'ls /dev/dri | grep -c renderD; grep -c " /dev/dri" /proc/self/mountinfo || true'
  [ "$output" = $'2\n0' ]
  nothing_left
}
