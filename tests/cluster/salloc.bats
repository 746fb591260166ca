# lab: --slurm-conf LaunchParameters=use_interactive_step
# salloc without a command: its shell is a step on the first node, as most sites have it.
load helpers

# Types a line into the shell that salloc starts; the answer tells where that shell is.
ask_shell() {
  run_and_show timeout 60 script -qec "salloc -n1 $1" /dev/null <<<'echo "shell=$(test -e '"$SITULA_LAB"'/config && echo host || echo container)"; '"${2:-}"'
exit'
}

setup() { cd "$HOME"; }

@test "the shell is on the host, and steps in it have containers" {
  ask_shell "" 'srun --container-image=registry.test/tiny sh -c '\''echo greeting=$GREETING'\'' </dev/null'
  [[ "$output" == *"shell=host"* ]]
  [[ "$output" == *"greeting=hello"* ]]
}

@test "with --container-image the shell is in the container" {
  ask_shell --container-image=registry.test/debian:12
  [[ "$output" == *"shell=container"* ]]
}
