# lab: none
# The programs of tests/bench that say what a cold start on many nodes costs: the model keeps to what must hold for any such model, and the guide
# prints what it says.

setup() { cd "$BATS_TEST_DIRNAME/../.."; }

# model_says CHECK [OPTION]...: CHECK is python, with `told` as the model's {link: {way: {nodes: seconds}}}.
model_says() {
  local check=$1
  shift
  tests/bench/model --json "$@" | python3 -c "import json, sys; told = json.load(sys.stdin); $check"
}

@test "every program of tests/bench says what it is for" {
  for program in tests/bench/*; do
    [ -x "$program" ] || continue
    run "$program" --help
    echo "$program: $output"
    [ "$status" -eq 0 ]
    [[ $output == *"tests/bench/${program##*/}"* ]]
  done
}

@test "more nodes never take less time, and a faster link never takes more" {
  model_says '
for ways in told.values():
    for way, by_nodes in ways.items():
        seconds = [by_nodes[str(nodes)] for nodes in range(1, 1201)]
        assert seconds == sorted(seconds), way
for way in ("registry", "shared", "sbcast"):
    assert all(told["100 Gb/s"][way][nodes] <= told["10 Gb/s"][way][nodes] for nodes in told["10 Gb/s"][way]), way' --nodes "$(seq -s, 1 1200)"
}

@test "registry: where that is the bottleneck, the bytes of all nodes over its bandwidth" {
  model_says '
for nodes in (1024, 4096):
    assert abs(told["100 Gb/s"]["registry"][str(nodes)] / (nodes * 10e9 / 2e9) - 1) < 0.01' --image 10 --registry 2 --nodes 1024,4096
}

@test "shared and sbcast: one node costs what it costs by the registry, and the registry sends the image once" {
  model_says '
for ways in told.values():
    assert ways["registry"]["1"] == ways["sbcast"]["1"]
    assert abs(ways["registry"]["1"] - ways["shared"]["1"]) < 0.1
    assert ways["shared"]["4096"] < 1.1 * ways["shared"]["1"]'
}

@test "sbcast: a byte goes on as soon as it has come, so that nodes in line cost no time" {
  model_says '
seconds = [told["10 Gb/s"]["sbcast"][nodes] for nodes in ("1", "2", "3", "8", "4680")]
assert seconds[0] + 1 < seconds[1] < seconds[2] == seconds[3] == seconds[4], seconds' --nodes 1,2,3,8,4680
}

@test "alone grows with the logarithm of the nodes, by one hop for eight times as many" {
  model_says '
seconds = [told["10 Gb/s"]["alone"][nodes] for nodes in ("8", "72", "584", "4680")]
steps = [later - earlier for earlier, later in zip(seconds, seconds[1:])]
assert steps[0] > 1 and max(steps) - min(steps) < 0.01 * steps[0], steps' --nodes 8,72,584,4680
}

@test "a slow disk, few processors, a slow file system: each is the bottleneck where it is the narrowest" {
  tests/bench/model --stages --nodes 16 --disk 0.01 | grep -q 'registry .*import 1074 s (disk)'
  tests/bench/model --stages --nodes 16 --cores 1 --registry 1000 | grep -q 'registry .*(processors), start'
  tests/bench/model --stages --nodes 1024 --read 1 --pfs 10 | grep -q 'shared .*read 1[0-9][0-9][0-9] s (file system)'
}

@test "--check: within the factor, and not" {
  file=$BATS_TEST_TMPDIR/nodes.json
  python3 - "$file" <<'END'
import json, sys
start = {"bare": 0.1, "image_bytes": 730e6, "read_bytes": 20e6}
with open(sys.argv[1], "w") as out:
    json.dump({"image": "pytorch", "layer_bytes": 679e6, "cores": 2, "starts": [
        {**start, "way": "registry", "nodes": 1, "cold": 7.6}, {**start, "way": "registry", "nodes": 4, "cold": 30.1}, {**start, "way": "shared", "nodes": 4, "cold": 7.8}]}, out)
END
  tests/bench/model --check "$file"
  sed -i 's/30\.1/12.1/' "$file"
  run tests/bench/model --check "$file"
  echo "$output"
  [ "$status" -eq 1 ]
  [ "$(grep -c 'more than' <<<"$output")" -eq 1 ]
}

@test "the guide and the README of the benchmarks print the model's table" {
  tests/bench/model --markdown >"$BATS_TEST_TMPDIR/table"
  for page in packaging/guides/admin.md tests/bench/README.md; do
    grep '^|' "$BATS_TEST_TMPDIR/table" | while read -r line; do
      grep -qxF -- "$line" "$page" || { echo "$page lacks: $line"; exit 1; }
    done
  done
}
