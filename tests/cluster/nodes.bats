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

@test "an error of all nodes and tasks is said once" {
  run_and_show srun -N4 -n8 --container-image=registry.test/tiny:none true
  [ "$status" -ne 0 ]
  # Or twice, where a busy machine lets a node be late (monitor.bats).
  [ "$(grep -c 'registry.test/tiny:none' <<<"$output")" -le 2 ]
  grep -q '^srun: error: situla: node\[' <<<"$output"
}

@test "a job of several nodes: its steps of one node mean the same, also when the tag moves between them" {
  skopeo copy -q docker://registry.test/tiny docker://registry.test/moving:now
  # shellcheck disable=SC2016
  run_and_show salloc -Q -N2 bash -euc '
    step() { srun -N1 -n1 -w "$1" --container-image=registry.test/moving:now sh -c ". /etc/os-release 2>/dev/null; echo inside \${ID:-tiny}"; }
    step node1
    skopeo copy -q docker://registry.test/debian:12 docker://registry.test/moving:now
    step node2'
  [ "$status" -eq 0 ]
  first=$(grep -m1 '^inside' <<<"$output")
  [ "$(grep -cx "$first" <<<"$output")" -eq 2 ]
  run_and_show srun -N1 -n1 -w node2 --container-image=registry.test/moving:now sh -c '. /etc/os-release; echo inside $ID'
  [[ $output == *"inside debian"* ]]
}

@test "several nodes: a registry that is down keeps out nobody whom it has let in on all of them" {
  run_and_show srun -N4 --container-image="fault.test#moody-down" echo inside
  [ "$(grep -cx inside <<<"$output")" -eq 4 ]
  curl -s "https://fault.test/mood/moody-down?is=503" >/dev/null
  run_and_show srun -N4 --container-image="fault.test#moody-down" echo inside
  [ "$status" -eq 0 ]
  [ "$(grep -cx inside <<<"$output")" -eq 4 ]
  grep -q 'fault.test does not answer' <<<"$output"
  curl -s "https://fault.test/mood/moody-down?is=fine" >/dev/null
}

@test "several nodes: srun asks for all of them, also where they get nothing of its environment" {
  requests() { curl -s https://fault.test/stats/moody-bare | jq .requests; }
  local before whole
  run_and_show srun -N4 --container-image="fault.test#moody-bare" echo inside
  [ "$status" -eq 0 ]
  before=$(requests)
  run_and_show srun -N4 --container-image="fault.test#moody-bare" echo inside
  whole=$(($(requests) - before))
  before=$(requests)
  run_and_show srun -N4 --export=NONE --container-image="fault.test#moody-bare" echo inside
  [ "$(grep -cx inside <<<"$output")" -eq 4 ]
  [ "$(($(requests) - before))" -eq "$whole" ]
}

@test "several nodes: a job's later steps ask nobody, hear of a tag that has moved, and wait for no registry that is silent" {
  # shellcheck disable=SC2016
  run_and_show salloc -Q -N2 bash -euc '
    step() { srun --overlap -N2 --container-image="fault.test#moody-$1" echo inside; }
    requests() { curl -s https://fault.test/stats/moody-moves | jq .requests; }
    mood() { curl -s "https://fault.test/mood/moody-$1?is=$2" >/dev/null; }
    step moves
    before=$(requests)
    step moves
    echo "$(($(requests) - before)) requests"
    step sleeps
    mood moves moved
    mood sleeps silent
    sleep 60
    step moves
    asked() { [ "$(requests)" -gt "$before" ]; }
    for ((i = 0; i < 100; ++i)); do asked && break; sleep 0.1; done
    sleep 1
    step moves
    step moves
    best=99
    for i in 1 2 3; do
      began=$SECONDS
      step sleeps
      took=$((SECONDS - began))
      [ $took -ge $best ] || best=$took
    done
    echo "took $best s"'
  curl -s "https://fault.test/mood/moody-moves?is=fine" "https://fault.test/mood/moody-sleeps?is=fine" >/dev/null
  [ "$status" -eq 0 ]
  grep -qx '0 requests' <<<"$output"
  [ "$(grep -cx inside <<<"$output")" -eq 18 ]
  [ "$(grep -c "has moved since this job's first step" <<<"$output")" -eq 1 ]
  # Asked in front of the step it would have been 5 s at least.
  [ "$(sed -n 's/^took \([0-9]*\) s$/\1/p' <<<"$output")" -lt 5 ]
}
