# lab: --user root --proctrack cgroup --gpus 3 --drm amd,0000:05:00.0,id=a1 --drm amd,0000:26:00.0,id=a2 --drm amd,0000:85:00.0,id=a3 --drm aspeed,0000:02:00.0 --drm --devices=real --slurm-conf TaskPlugin=task/affinity,task/cgroup --slurm-file tests/cluster/slurm/cgroup.conf --situla-conf tests/cluster/drm.toml
# AMD's GPUs in Slurm steps: a container has the nodes of its step's GPUs, without a word of the image or the job. Slurm confines
# the devices by their render nodes; the machine's GPUs are what tests/gpu/make-drm-root makes of them.
load helpers

setup_file() {
  mkdir -p /shared/cdi
  as_alice srun -Q --container-image=registry.test/debian:12 true
}

setup() {
  cd /home/alice
  unset AMD_VISIBLE_DEVICES ENROOT_RESTRICT_DEV
  snapshot
}

teardown() {
  rm -f /shared/cdi/*
  chmod 666 /shared/drm/dev/dri/card*
}

# $output is what the step prints; what srun says is shown only.
step() {
  run --separate-stderr as_alice srun -Q --container-image=registry.test/debian:12 "$@"
  printf '%s\n' "status=$status" "$output" "$stderr"
}
nodes='ls /dev/dri | grep -v by-path | tr "\n" " "; test -c /dev/kfd && echo kfd'

@test "a /dev of the container's own has the nodes of the step's GPUs, and no others" {
  export ENROOT_RESTRICT_DEV=y
  step --gres=gpu:1 sh -c "$nodes"
  [ "$status" -eq 0 ]
  [ "$output" = "card0 renderD128 kfd" ]
  step --gres=gpu:3 sh -c "$nodes"
  [ "$output" = "card0 card1 card2 renderD128 renderD129 renderD130 kfd" ]
  step --gres=gpu:1 sh -c 'readlink /dev/dri/by-path/pci-0000:05:00.0-render; stat -c "%t:%T" /dev/dri/renderD128'
  [ "$output" = $'../renderD128\ne2:80' ]
  nothing_left
}

@test "a step without GPUs gets none, and a job may say so" {
  export ENROOT_RESTRICT_DEV=y
  step sh -c 'ls /dev/dri /dev/kfd 2>/dev/null; echo end'
  [ "$output" = end ]
  AMD_VISIBLE_DEVICES=void step --gres=gpu:2 sh -c 'ls /dev/dri /dev/kfd 2>/dev/null; echo end'
  [ "$output" = end ]
  # In the node's /dev they are hidden; the screen's node stays, and so does KFD, which finds nothing.
  unset ENROOT_RESTRICT_DEV
  for refusal in void none; do
    AMD_VISIBLE_DEVICES=$refusal step --gres=gpu:2 sh -c "$nodes"
    [ "$output" = "card3 kfd" ]
  done
  nothing_left
}

@test "in the node's /dev all is as it was: Slurm forbids what is not the step's" {
  # Cards are open to a group that users are seldom in.
  chmod 660 /shared/drm/dev/dri/card[0-2]
  step --gres=gpu:1 sh -c 'ls /dev/dri | grep -c renderD; grep -c " /dev/dri" /proc/self/mountinfo || true'
  [ "$output" = $'3\n0' ]
  # There may be no driver behind the numbers; the cgroup is asked before.
  step --gres=gpu:1 sh -c 'for n in 128 129 130; do (: </dev/dri/renderD$n) 2>&1; done; true'
  if grep 'renderD128: Operation not permitted' <<<"$output"; then false; fi
  grep 'renderD129: Operation not permitted' <<<"$output"
  grep 'renderD130: Operation not permitted' <<<"$output"
  nothing_left
}

@test "AMD_VISIBLE_DEVICES chooses among the step's GPUs, which are counted from 0" {
  export ENROOT_RESTRICT_DEV=y
  AMD_VISIBLE_DEVICES=1 step --gres=gpu:2 sh -c "$nodes"
  [ "$output" = "card1 renderD129 kfd" ]
  AMD_VISIBLE_DEVICES=2 step --gres=gpu:2 true
  [ "$status" -ne 0 ]
  [[ "$stderr" == *"device error: 2: unknown device"*"hint: this job may use 0 = 0000:05:00.0 (renderD128), 1 = "* ]]
  nothing_left
}

@test "what a job does not choose is hidden in the node's /dev, too; a screen's node stays" {
  AMD_VISIBLE_DEVICES=1 step --gres=gpu:2 sh -c "$nodes"
  [ "$output" = "card1 card3 renderD129 kfd" ]
  nothing_left
}

@test "names of the Container Device Interface work without a specification" {
  export ENROOT_RESTRICT_DEV=y
  step --gres=gpu:2 --container-devices=amd.com/gpu=0 sh -c "$nodes"
  [ "$output" = "card0 renderD128 kfd" ]
  printf 'cdiVersion: "0.6.0"\nkind: amd.com/gpu\ndevices: [{name: "0", containerEdits: {env: ["BY=specification"], deviceNodes: [{path: /dev/kfd}]}}]\n' >/shared/cdi/amd.yaml
  step --gres=gpu:2 --container-devices=amd.com/gpu=0 sh -c 'echo $BY; ls /dev/dri 2>/dev/null; echo end'
  [ "$output" = $'specification\nend' ]
  nothing_left
}

@test "per-task GPUs: the container has those of all tasks" {
  export ENROOT_RESTRICT_DEV=y
  step -n3 --gpus-per-task=1 sh -c 'ls /dev/dri | grep -c renderD'
  [ "$output" = $'3\n3\n3' ]
  nothing_left
}

@test "the doctor names the GPUs" {
  run_and_show as_alice situla doctor
  [[ "$output" == *"GPUs of AMD and Intel"*"amd 2"*"0000:85:00.0, /dev/dri/renderD130, /dev/dri/card2, GPU-00000000000000a3"* ]]
}
