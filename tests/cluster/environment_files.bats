# lab: --nodes 2
# Environment files: --environment of srun, sbatch, salloc and `situla run`, what wins over them, and what is wrong with them.
load helpers

setup_file() {
  cd "$HOME"
  mkdir -p .edf data
  echo of-alice >data/sample
  cat >.edf/tiny.toml <<'EOF'
image = "registry.test/tiny"
EOF
  cat >.edf/whole.toml <<'EOF'
base_environment = "tiny"
mounts = ["${HOME}/data:/data:ro", "./data:/here"]
workdir = "/data"

[env]
GREETING = "of the file"
PATH = "${PATH}:/of/the/file"
OUTSIDE = ""
COPY = "${JOB_WORD:-none}"

[annotations]
com.hooks.ssh.enabled = "true"
com.hooks.ssh.port = "15263"
com.hooks.cxi.enabled = "false"
EOF
}

setup() {
  cd "$HOME"
  export OUTSIDE=outside JOB_WORD=word
}

show='echo "greeting=$GREETING path=${PATH##*:} outside=${OUTSIDE-unset} copy=$COPY pwd=$PWD"; cat /data/sample /here/sample; touch /new && echo writable'
expected='greeting=of the file path=/of/the/file outside=unset copy=word pwd=/data
of-alice
of-alice
writable'

# Without the lines about imports.
lines_of() { grep -v -e '^situla: ' -e '^srun: situla: ' -e '^salloc: ' -e '^Submitted' "$1"; }

@test "srun: image, mounts, directory and variables are the file's, on all nodes" {
  srun -N2 --environment=whole sh -c "$show" >out 2>err
  cat out err
  [ "$(lines_of out | sort)" = "$(printf '%s\n%s\n' "$expected" "$expected" | sort)" ]
  # What nobody does is said once, and what is not wanted is not said.
  [ "$(grep -c 'annotation com.hooks.ssh' err)" -eq 1 ]
  if grep cxi err; then false; fi
  srun --export=NONE --environment=./.edf/tiny.toml sh -c 'echo "greeting=$GREETING"' | grep -x greeting=hello
  srun --help | grep -A1 -e '--environment=NAME|FILE' | grep -F '[situla]'
}

@test "sbatch: the script runs in the container, and an srun of a script on the host has it as well" {
  printf '#!/bin/sh\n#SBATCH --environment=whole\n#SBATCH -o script.out\n%s\n' "$show" >script
  run_and_show "$lab_tests/submit" script
  [ "$status" -eq 0 ]
  cat script.out
  [ "$(lines_of script.out)" = "$expected" ]
  # Variables of the submitting shell are not there, the environment is; what its files said was replaced there.
  printf '#!/bin/sh\n#SBATCH --environment=whole --export=NONE\n#SBATCH -o script.out\necho "greeting=$GREETING pwd=$PWD copy=$COPY"; cat /here/sample\n' >script
  run_and_show "$lab_tests/submit" script
  [ "$status" -eq 0 ]
  [ "$(lines_of script.out)" = $'greeting=of the file pwd=/data copy=none\nof-alice' ]
  printf '#!/bin/sh\nsrun --environment=whole sh -c '\''%s'\''\n' "$show" >script
  run_and_show "$lab_tests/submit" -o script.out script
  [ "$status" -eq 0 ]
  [ "$(lines_of script.out)" = "$expected" ]
}

@test "a job has what its file said when it was submitted" {
  cp .edf/whole.toml .edf/changing.toml
  run_and_show salloc --environment=changing sh -c "echo broken >.edf/changing.toml; cd /; srun sh -c '$show'"
  [ "$status" -eq 0 ]
  lines_of <(printf '%s\n' "$output") >seen
  [ "$(cat seen)" = "$expected" ]
  [ "$(grep -c 'annotation com.hooks.ssh' <<<"$output")" -eq 1 ]
  run_and_show salloc --environment=tiny sh -c 'srun --export=NONE sh -c "echo greeting=\$GREETING"; srun --environment=whole true'
  [ "$status" -ne 0 ]
  [[ "$output" == *greeting=hello* ]]
  [[ "$output" == *"--environment: specified multiple times"* ]]
  # An srun with a name of its own reads the file itself.
  run_and_show salloc srun --environment=changing true
  [ "$status" -ne 0 ]
  [[ "$output" == *".edf/changing.toml:1: "* ]]
}

@test "the command line wins over variables, and these over the file" {
  mkdir -p other
  echo other >other/sample
  run_and_show srun --environment=whole --container-workdir=/etc --container-readonly --container-mounts="$HOME/other:/data,/usr/lib:/lib64" \
    --container-env=GREETING sh -c 'echo "greeting=$GREETING pwd=$PWD"; cat /data/sample /here/sample; test -e /lib64/os-release; touch /new || echo readonly'
  [[ "$output" == *"greeting=of the file pwd=/etc"* ]]
  GREETING=mine run_and_show srun --environment=whole --container-workdir=/etc --container-readonly --container-mounts="$HOME/other:/data" \
    --container-env=GREETING sh -c 'echo "greeting=$GREETING pwd=$PWD"; cat /data/sample /here/sample; touch /new || echo readonly'
  [[ "$output" == *$'greeting=mine pwd=/etc\nother\nof-alice\nreadonly'* ]]
  SITULA_CONTAINER_WORKDIR=/usr PYXIS_CONTAINER_WRITABLE=no run_and_show srun --environment=whole sh -c 'echo "pwd=$PWD"; touch /new || echo readonly'
  [[ "$output" == *$'pwd=/usr\nreadonly'* ]]
  run_and_show srun --environment=whole --container-image=registry.test/debian:12 sh -c 'grep ^ID= /etc/os-release; pwd'
  [[ "$output" == *$'ID=debian\n/data'* ]]
}

@test "situla run and situla start" {
  run_and_show situla run --environment=whole sh -c "$show"
  [ "$status" -eq 0 ]
  [[ "$output" == *"$expected"* ]]
  situla import -o tiny.sqsh docker://registry.test/tiny
  printf 'image = "./tiny.sqsh"\nwritable = false\nentrypoint = false\nworkdir = "/etc"\n' >.edf/file.toml
  run_and_show situla run --environment file -- sh -c 'pwd; touch /new || echo readonly'
  [ "$status" -eq 0 ]
  [[ "$output" == *$'/etc\nreadonly'* ]] || [[ "$output" == *$'/etc'*readonly* ]]
  run_and_show situla start --environment=whole --env GREETING=option --mount "$HOME/other:/more" tiny.sqsh sh -c 'echo "greeting=$GREETING pwd=$PWD"; cat /more/sample'
  [ "$status" -eq 0 ]
  [[ "$output" == *$'greeting=option pwd=/data\nother'* ]]
}

@test "variables stand above the profile of a login shell, and the entrypoint comes after them" {
  # Debian's /etc/profile sets PATH.
  run_and_show srun --environment=whole --container-image=registry.test/debian:12 sh -c 'echo "path=${PATH##*:}"'
  [[ "$output" == *path=/of/the/file* ]]
  run_and_show srun --environment=whole --container-image=registry.test/debian:12 --no-container-entrypoint sh -c 'echo "path=${PATH##*:}"'
  [[ "$output" == *path=/of/the/file* ]]
  printf 'image = "registry.test/debian:12"\n[env]\nPATH = "${PATH}:/of/debian"\nLANG = ""\n' >.edf/debian.toml
  run_and_show situla run --environment=debian sh -c 'echo "path=${PATH##*:} lang=${LANG-unset}"'
  [[ "$output" == *"path=/of/debian lang=unset"* ]]
  printf 'image = "registry.test/tiny:entrypoint"\n' >.edf/entrypoint.toml
  run_and_show srun --environment=entrypoint sh -c 'echo "ran=$ENTRYPOINT_RAN"'
  [[ "$output" == *ran=yes* ]]
  run_and_show srun --environment=entrypoint --no-container-entrypoint sh -c 'echo "ran=${ENTRYPOINT_RAN-no}"'
  [[ "$output" == *ran=no* ]]
}

@test "situla environment: list, show and check" {
  mkdir -p project
  echo 'image = "registry.test/debian:12"' >project/tiny.toml
  run_and_show env EDF_PATH="$HOME/project:$HOME/.edf" situla environment list
  [ "$(grep -c '^tiny ' <<<"$output")" -eq 2 ]
  grep '^tiny .*/.edf/tiny.toml .*hidden' <<<"$output"
  run_and_show env EDF_PATH="$HOME/project" srun --environment=tiny grep ^ID= /etc/os-release
  [[ "$output" == *ID=debian* ]]
  situla environment show whole >shown.toml
  cat shown.toml
  grep -F "image = \"registry.test/tiny\"  # $HOME/.edf/tiny.toml:1" shown.toml
  # What it prints is a file itself, and means the same.
  printf 'image = "x"\nmounts = ["/a$$b:/c"]\nworkdir = "/$$d"\n[env]\nA = "$${B}${C:-}"\n' >dollars.toml
  situla environment show ./dollars.toml >shown.dollars.toml
  diff <(situla environment show --json ./dollars.toml | jq 'del(.name, .files) | del(..|.from?)') \
    <(situla environment show --json ./shown.dollars.toml | jq 'del(.name, .files) | del(..|.from?)')
  situla environment show ./shown.toml | grep -F '"/home/alice/data:/data:ro"'
  [ "$(situla environment show --json whole | jq -r '.env.GREETING | .value + " " + .from')" = "of the file $HOME/.edf/whole.toml:6" ]
  run_and_show situla environment check whole tiny
  [ "$status" -eq 0 ]
  printf 'imag = "x"\nwritable = 1\n' >bad.toml
  run_and_show situla environment check ./bad.toml
  [ "$status" -eq 1 ]
  [[ "$output" == *"$HOME/bad.toml:1: unknown key \"imag\""* ]]
  [[ "$output" == *'did you mean "image"?'* ]]
  [[ "$output" == *"$HOME/bad.toml:2: writable must be true or false"* ]]
  [ "$(situla environment check --json ./bad.toml whole | jq -c 'map(.ok)')" = '[false,true]' ]
  printf 'image = "x"\nmounts = ["/a:/b:RO"]\n' >flag.toml
  [ "$(situla environment check --json ./bad.toml ./flag.toml nothing | jq -c 'map([.problems[].code])')" = \
    '[["environment-file","environment-file"],["mount-syntax"],["environment-file"]]' ]
}

# refused PATTERN NAME: by each of the three commands, before there is a job.
refused() {
  local command
  for command in srun sbatch salloc; do
    run_and_show timeout 60 "$command" --environment="$2" ./job.sh
    [ "$status" -ne 0 ]
    grep -qF -- "$command: error: situla: --environment: " <<<"$output"
    grep -qF -- "$1" <<<"$output"
  done
}

@test "what is wrong is said before there is a job, with the line of the file" {
  printf '#!/bin/sh\ntrue\n' >job.sh
  chmod +x job.sh
  mkdir -p .edf/folder.toml
  printf 'image = "registry.test/tiny\n' >.edf/toml.toml
  printf 'image = "registry.test/tiny"\nworkdirr = "/"\n' >.edf/unknown.toml
  printf 'base_environment = "two"\n' >.edf/one.toml
  printf '\nbase_environment = "one"\n' >.edf/two.toml
  printf 'image = "x"\n' >.edf/unreadable.toml
  chmod 000 .edf/unreadable.toml
  printf 'image = "x"\nworkdir = "${NOT_SET}"\n' >.edf/unset.toml
  refused 'no environment "tinny" in /home/alice/.edf, ' tinny
  grep -qF 'did you mean "tiny"?' <<<"$output"
  refused 'no environment file ./nothing.toml' ./nothing.toml
  refused '.edf/toml.toml:1: ' toml
  refused '.edf/unknown.toml:2: unknown key "workdirr"' unknown
  grep -qF 'did you mean "workdir"?' <<<"$output"
  refused "base_environment goes in a circle: $HOME/.edf/one.toml -> $HOME/.edf/two.toml -> $HOME/.edf/one.toml" one
  refused '.edf/folder.toml is a directory' folder
  refused '.edf/unreadable.toml: Permission denied' unreadable
  refused '.edf/unset.toml:2: variable NOT_SET is not set' unset
  printf 'image = "x"\nmounts = [\n  "/tmp:/a:RO"]\n' >.edf/flag.toml
  refused '.edf/flag.toml:3: bind /tmp on /a: unknown flag "RO" [mount-syntax]' flag
  grep -qF 'did you mean "ro"?' <<<"$output"
  run_and_show situla run --environment=tinny true
  [ "$status" -eq 1 ]
  [[ "$output" == *'no environment "tinny"'* ]]
}

@test "a source that is missing on the node is told with the line of the file that asks for it" {
  printf 'image = "registry.test/tiny"\nmounts = ["/usr:/data",\n  "/no/such/source:/more"]\n' >.edf/missing.toml
  run_and_show srun --environment=missing true
  [ "$status" -ne 0 ]
  grep -qF "error: situla: $HOME/.edf/missing.toml:3: mounts: source path does not exist: /no/such/source [mount-source]" <<<"$output"
  if grep -q -e '--container-mounts' <<<"$output"; then false; fi
  printf 'image = "registry.test/tiny"\ndevices = ["/dev/nothing"]\n' >.edf/missing.toml
  run_and_show srun --environment=missing true
  [ "$status" -ne 0 ]
  grep -qF "error: situla: $HOME/.edf/missing.toml:2: devices: source path does not exist: /dev/nothing [mount-source]" <<<"$output"
  run_and_show srun --environment=tiny --container-mounts=/no/such/source:/more true
  grep -qF 'error: situla: --container-mounts: source path does not exist: /no/such/source' <<<"$output"
}

@test "a file's home directory: ~ in workdir and mounts" {
  printf 'image = "registry.test/tiny"\nmounts = ["~/data:~/data"]\nworkdir = "~/data"\n' >.edf/home.toml
  run_and_show srun --environment=home sh -c 'pwd; cat sample'
  [ "$status" -eq 0 ]
  [[ "$output" == *"$HOME/data"$'\nof-alice' ]]
  run_and_show situla run --environment=home sh -c 'pwd; cat sample'
  [[ "$output" == *"$HOME/data"$'\nof-alice' ]]
}

@test "without an image the tasks run on the host, and a line says so" {
  printf 'workdir = "/etc"\n' >.edf/empty.toml
  run_and_show srun --environment=empty sh -c 'test -e /srv/hello.txt || echo host'
  [ "$status" -eq 0 ]
  [[ "$output" == *"ignoring --environment, which names no image, because neither"* ]]
  [[ "$output" == *host* ]]
  run_and_show srun --environment=empty --container-image=registry.test/tiny pwd
  [[ "$output" == */etc* ]]
}

@test "a reference that neither the image nor the job can answer ends the step, with the variable's name" {
  printf 'image = "registry.test/tiny"\n[env]\nA = "${NOWHERE_AT_ALL}"\n' >.edf/nowhere.toml
  run_and_show srun --environment=nowhere true
  [ "$status" -ne 0 ]
  [[ "$output" == *"--environment: env A: variable NOWHERE_AT_ALL is not set"* ]]
}
