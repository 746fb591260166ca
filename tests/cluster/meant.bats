# lab:
# What people write and what they mean: a file's name, a path with ~ or a variable that no shell has seen, a flag in capitals. COMPAT.md section 10.
# As alice, on a node.
load helpers

setup_file() {
  situla import -o "$BATS_FILE_TMPDIR/tiny.sqsh" docker://registry.test#tiny
}

setup() {
  work=$(mktemp -d "$HOME/meant.XXXXXX")
  cd "$work"
  ln "$BATS_FILE_TMPDIR/tiny.sqsh" tiny+latest.sqsh 2>/dev/null || cp "$BATS_FILE_TMPDIR/tiny.sqsh" tiny+latest.sqsh
}

teardown() {
  enroot remove -f pyxis_x meant 2>/dev/null || true
  cd /
  rm -rf "$work"
}

# fails_with TEXT [OPTION]...: a step that must not run, and every line of TEXT is said.
fails_with() {
  local text=$1 line
  shift
  run_and_show srun "$@" echo the task ran
  [ "$status" -ne 0 ]
  while read -r line; do grep -Fq -- "$line" <<<"$output"; done <<<"$text"
  if grep -qx 'the task ran' <<<"$output"; then false; fi
}

@test "a file is understood whatever its name, also the one that import gives" {
  cp tiny+latest.sqsh Tiny.SQSH
  mkdir Images
  cp tiny+latest.sqsh Images/x.sqsh
  local image
  for image in tiny+latest.sqsh ./tiny+latest.sqsh Tiny.SQSH Images/x.sqsh "~/${work##*/}/tiny+latest.sqsh" '$HOME/'"${work##*/}/tiny+latest.sqsh" "/home/\$USER/${work##*/}/Tiny.SQSH"; do
    run_and_show srun --container-image="$image" sh -c 'echo $GREETING'
    [ "$status" -eq 0 ]
    [ "$output" = hello ]
    run_and_show srun --container-image="$image" --container-name=x sh -c 'echo $GREETING'
    [ "$status" -eq 0 ]
    [ "$output" = hello ]
    enroot remove -f pyxis_x
  done
}

@test "a line #SBATCH, which no shell sees" {
  cat >job <<'END'
#!/bin/sh
#SBATCH --container-image=$HOME/images-of-$SLURM_JOB_NAME/tiny.sqsh
#SBATCH --container-mounts=$HOME/images-of-$SLURM_JOB_NAME:/data:ro
#SBATCH --job-name=meant
echo $GREETING; ls /data
END
  mkdir "$HOME/images-of-meant"
  cp tiny+latest.sqsh "$HOME/images-of-meant/tiny.sqsh"
  run_and_show "$lab_tests/submit" --output=out.txt job
  cat out.txt
  rm -r "$HOME/images-of-meant"
  [ "$(cat out.txt)" = $'hello\ntiny.sqsh' ]
}

@test "a file that is not there, and one that has almost its name" {
  fails_with $'image: open tiny+latets.sqsh: No such file or directory\nhint: did you mean tiny+latest.sqsh?' --container-image=tiny+latets.sqsh
  run_and_show enroot create tiny+latets.sqsh
  [ "$status" -eq 1 ]
  [ "$output" = $'[ERROR] No such file or directory: tiny+latets.sqsh [image-not-found]\nhint: did you mean tiny+latest.sqsh?' ]
  enroot create --name meant tiny+latest.sqsh
  run_and_show enroot start tiny+latets.sqsh true
  [ "$status" -eq 1 ]
  grep -qx 'hint: did you mean tiny+latest.sqsh? enroot list shows the containers there are' <<<"$output"
  run_and_show enroot start maent true
  [ "$status" -eq 1 ]
  grep -qx 'hint: did you mean meant? enroot list shows the containers there are' <<<"$output"
  fails_with "hint: image names are lower case; the path of a file begins with / or ./" --container-image=Tiny
  fails_with "hint: if it is a file, write its path with a / or ./ in front" --container-image=my+tiny
  fails_with "hint: it has curly quotation marks" --container-image=“tiny”
}

@test "mounts: a source that is not there is told before anything is imported, in pyxis's words" {
  mkdir data
  fails_with "error: situla: --container-mounts: source path does not exist: /no/such/dir" --container-image=registry.test/nosuchimage --container-mounts=/no/such/dir:/mnt
  fails_with "error: situla: --container-mounts: source path does not exist: ./nodata" --container-image=./tiny+latest.sqsh --container-mounts=./data:/a,./nodata:/mnt
  run_and_show srun --container-image=./tiny+latest.sqsh --container-mounts=./nodata:/mnt:nofail,./data:/a true
  [ "$status" -eq 0 ]
  # One that runs gets no mounts, so nothing is looked for.
  srun --overlap --container-image=./tiny+latest.sqsh --container-name=x sh -c 'echo started; exec sleep 100' >out 2>&1 3>&- &
  wait_until 30 grep -qx started out
  run_and_show srun --overlap --container-name=x --container-mounts=/no/such/dir:/mnt true
  [ "$status" -eq 0 ]
  scancel -u alice
  wait
}

@test "mounts: a flag that there is not is an error, with the one that was meant" {
  mkdir data
  fails_with $'--container-mounts: bind ./data on /a: unknown flag "RO"\nhint: did you mean "ro"?' --container-image=./tiny+latest.sqsh --container-mounts=./data:/a:RO
  fails_with "hint: for what is in this directory write ./data:/mnt" --container-image=./tiny+latest.sqsh --container-mounts=data:/mnt
  fails_with "hint: flags are joined by '+': /data:/data:ro+noexec" --container-image=./tiny+latest.sqsh --container-mounts=./data:/mnt:ro,noexec
  srun --container-image=./tiny+latest.sqsh --container-mounts='~/'"${work##*/}"/data:/mnt test -d /mnt
  fails_with "hint: it has curly quotation marks" --container-image=./tiny+latest.sqsh --container-mounts=“./data:/mnt”
}

@test "mounts: a flag that there is not is told by the command that submits, before there is a job" {
  printf '#!/bin/sh\necho the task ran\n' >job.sh
  chmod +x job.sh
  local command
  for command in srun sbatch salloc; do
    run_and_show "$command" --container-image=registry.test/nosuchimage --container-mounts=./data:/a:RO ./job.sh
    [ "$status" -ne 0 ]
    grep -Fq "$command: error: situla: --container-mounts: bind ./data on /a: unknown flag \"RO\" [mount-syntax]" <<<"$output"
    grep -Fq "$command: error: situla: hint: did you mean \"ro\"?" <<<"$output"
    if grep -q 'job [0-9]\|failed to import' <<<"$output"; then false; fi
  done
  PYXIS_CONTAINER_MOUNTS=./data:/a:readonly run_and_show srun --container-image=registry.test/nosuchimage true
  [ "$status" -ne 0 ]
  grep -Fq -- '--container-mounts (from the environment): bind ./data on /a: unknown flag "readonly"' <<<"$output"
  # What a variable gives is known on the node.
  mkdir data
  MODE=RO fails_with '--container-mounts: bind ./data on /a: unknown flag "RO"' --container-image=./tiny+latest.sqsh --container-mounts='./data:/a:$MODE'
  MODE=ro run_and_show srun --container-image=./tiny+latest.sqsh --container-mounts='./data:/a:$MODE' touch /a/x
  [ "$status" -ne 0 ]
}

@test "a ~ that no shell has seen: directory, mounts and what is saved" {
  mkdir data
  local here='~/'"${work##*/}"
  run_and_show srun --container-image=./tiny+latest.sqsh --container-mount-home --container-workdir="$here/data" pwd
  [ "$status" -eq 0 ]
  [ "$output" = "$work/data" ]
  run_and_show srun --container-image=./tiny+latest.sqsh --container-mount-home '--container-workdir=~' pwd
  [ "$output" = "$HOME" ]
  run_and_show srun --container-image=./tiny+latest.sqsh --container-mounts="$here/data" test -d "$work/data"
  [ "$status" -eq 0 ]
  run_and_show srun --container-image=./tiny+latest.sqsh --container-mounts="./data:$here/inside" test -d "$work/inside"
  [ "$status" -eq 0 ]
  run_and_show srun --container-image=./tiny+latest.sqsh --container-save="$here/saved.sqsh" true
  [ "$status" -eq 0 ]
  [ -s saved.sqsh ]
  fails_with "container working directory $work/data: "$'\nhint: --container-mount-home puts the home directory into the container' --container-image=./tiny+latest.sqsh --container-workdir="$here/data"
  fails_with 'hint: with --container-remap-root the home directory is /root in the container' --container-image=./tiny+latest.sqsh --container-remap-root --container-workdir="$here/data"
}

@test "start --mount takes what srun takes" {
  mkdir data
  enroot create --name meant tiny+latest.sqsh
  run_and_show enroot start --mount ./data:/new/place:ro meant sh -c 'echo x >/new/place/x || echo "not writable"'
  [[ $output == *"not writable" ]]
  run_and_show enroot start --mount ./data:/new/place meant sh -c 'echo x >/new/place/x && cat /new/place/x'
  [ "$output" = x ]
  run_and_show enroot start --mount ./data:/new/place:RO meant true
  [ "$status" -eq 1 ]
  [[ $output == *'--mount: bind ./data on /new/place: unknown flag "RO"'*'did you mean "ro"?'* ]]
}

@test "an empty name among those of --container-env is an error" {
  fails_with "has an empty name" --container-image=./tiny+latest.sqsh --container-env=GREETING,
  fails_with "has an empty name" --container-image=./tiny+latest.sqsh --container-env=A,,B
}

@test "run and start of an image of a registry: the command's output and exit status, and nothing is left" {
  snapshot
  before=$(ls -A /tmp)
  run_and_show situla run registry.test#tiny sh -c 'echo $GREETING; ls /proc/self/fd; exit 7'
  [ "$status" -eq 7 ]
  grep -qx hello <<<"$output"
  # 0, 1, 2, and what ls itself has open.
  [ "$(grep -c '^[0-9]*$' <<<"$output")" -eq 4 ]
  run_and_show situla start --rw docker://registry.test#tiny sh -c 'echo $GREETING >/new && cat /new'
  [ "$status" -eq 0 ]
  grep -qx hello <<<"$output"
  run_and_show situla run ./tiny+latest.sqsh sh -c 'echo $GREETING'
  [ "$output" = hello ]
  run_and_show situla run registry.test#nosuchimage true
  [ "$status" -eq 1 ]
  [[ $output == *"failed to import docker image: registry.test#nosuchimage: "* ]]
  # Where the image is no word of the command line, nothing is fetched.
  printf '#ENROOT_ROOTFS=docker://registry.test#tiny\n' >batch.sh
  run_and_show situla batch batch.sh true
  [ "$status" -eq 1 ]
  [[ $output == *"No such file or directory: docker://registry.test#tiny"* ]]
  run_and_show situla run UPPER true
  [ "$status" -eq 1 ]
  [ "$(ls -A /tmp)" = "$before" ]
  [ -z "$(enroot list)" ]
  nothing_left
}

@test "pull, ls, ps, rm and inspect of a container" {
  run_and_show situla pull -o pulled.sqsh docker://registry.test#tiny
  [ "$status" -eq 0 ]
  situla create --name meant pulled.sqsh
  run_and_show situla ls -l
  [[ ${lines[1]} == "meant "*" $work/pulled.sqsh" ]]
  situla ls --json | jq -e --arg image "$work/pulled.sqsh" '.[0] | .name == "meant" and .image == $image and .processes == 0 and .bytes > 1000 and (.made | startswith("20"))'
  situla start meant sh -c 'echo started; exec sleep 100' >out 2>&1 3>&- &
  wait_until 30 grep -qx started out
  situla ls --json | jq -e '.[0].processes >= 1'
  situla ps | grep -q '^meant .*sleep 100'
  kill $!
  wait
  run_and_show situla inspect meant
  [ "$status" -eq 0 ]
  grep -qx "Image:       $work/pulled.sqsh" <<<"$output"
  grep -q '^Env: .*GREETING=hello\|^  *GREETING=hello' <<<"$output"
  run_and_show situla rm meant </dev/null
  [ "$status" -eq 1 ]
  [[ $output == *"--force does not ask"* ]]
  situla rm -f meant
  [ -z "$(situla ls)" ]
}

@test "settings: neither yes nor no, unknown, or of no use" {
  # In the job's environment, which a file of the site's does not beat.
  ENROOT_MOUNT_HOME=ja fails_with $'ENROOT_MOUNT_HOME=ja (environment) is neither yes nor no\nhint: write yes or no' --container-image=./tiny+latest.sqsh
  run_and_show env ENROOT_MOUNT_HOME=0 srun --container-image=./tiny+latest.sqsh ls "$work"
  [ "$status" -eq 0 ]
  [[ $output == *"ENROOT_MOUNT_HOME=0 (environment) means yes, as in enroot: write no"* ]]
  run_and_show env PYXIS_CONTAINER_MOUNT_HOME=ja srun --container-image=./tiny+latest.sqsh sh -c "ls $work 2>/dev/null || echo none"
  [[ $output == *"ignoring PYXIS_CONTAINER_MOUNT_HOME=ja: write 1 or 0"* ]]
  grep -qx none <<<"$output"
  # Only where there is a container.
  run_and_show env PYXIS_CONTAINER_MOUNT_HOME=ja srun echo host
  [ "$output" = host ]

  run_and_show env ENROOT_DATA_PATH="$work/mine" srun --container-image=./tiny+latest.sqsh --container-name=x true
  [ "$status" -eq 0 ]
  [[ $output == *"ENROOT_DATA_PATH of the job's environment is not used for the container \"x\", which is in $HOME/.local/share/enroot"* ]]
  # Once: it was made then.
  run_and_show env ENROOT_DATA_PATH="$work/mine" srun --container-name=x true
  [ -z "$output" ]
  [ ! -e mine ]

  mkdir -p etc/enroot.conf.d
  printf 'ENROOT_DATA_PTH /y\nENROOT_CACHE_PATH /c\n' >etc/enroot.conf
  printf 'ENROOT_CACHE_PATH $(echo /d)\n' >etc/enroot.conf.d/10.conf
  run_and_show env ENROOT_SYSCONF_PATH="$work/etc" ENROOT_LOGIN_SHELL=yes situla info --origin
  [ "$status" -eq 0 ]
  grep -qx "ENROOT_CACHE_PATH=/c  # $work/etc/enroot.conf:2" <<<"$output"
  grep -qx "ENROOT_LOGIN_SHELL=yes  # environment" <<<"$output"
  grep -qx "ENROOT_REMAP_ROOT=no  # default" <<<"$output"
  grep -qxF "# unknown: ENROOT_DATA_PTH ($work/etc/enroot.conf:1); did you mean ENROOT_DATA_PATH?" <<<"$output"
  grep -qxF "# ignored: $work/etc/enroot.conf.d/10.conf:1: ENROOT_CACHE_PATH \$(echo /d) ($work/etc/enroot.conf:2 comes first)" <<<"$output"
  grep -q '^# /etc/situla/situla.toml:' <<<"$output"
  env ENROOT_SYSCONF_PATH="$work/etc" situla info --origin --json |
    jq -e --arg file "$work/etc/enroot.conf" '.origins.ENROOT_CACHE_PATH == $file + ":2" and .unknown == ["ENROOT_DATA_PTH"] and .ignored[0].key == "ENROOT_CACHE_PATH"'
  # A shell reads it back.
  (eval "$(env ENROOT_SYSCONF_PATH="$work/etc" situla info --origin | tail -n +4)" && [ "$ENROOT_CACHE_PATH" = /c ])
  run_and_show env ENROOT_SYSCONF_PATH="$work/etc" situla doctor
  [[ $output == *"warn  unknown-key  ENROOT_DATA_PTH ($work/etc/enroot.conf:1)"*"fix: write ENROOT_DATA_PATH"* ]]
}

@test "a mistake in .credentials" {
  mkdir config
  printf 'machine auth.test\n  logni alice password secret\n' >config/.credentials
  chmod 666 config/.credentials
  export ENROOT_CONFIG_PATH=$work/config
  fails_with "$work/config/.credentials can be written by other users: chmod 600 $work/config/.credentials
$work/config/.credentials:2: unknown word 'logni'
hint: did you mean login?" --container-image=auth.test#tiny
  printf 'machine auth.test login alice password secret with blanks\n' >config/.credentials
  fails_with "$work/config/.credentials:1: a word that is none of machine, login, password" --container-image=auth.test#tiny
  [[ $output != *secret* ]]
}

@test "a hook that hangs is named while it does" {
  mkdir -p config/hooks.d
  printf '#!/bin/sh\nsleep 12\n' >config/hooks.d/50-slow.sh
  chmod 755 config/hooks.d/50-slow.sh
  env ENROOT_CONFIG_PATH="$work/config" situla start ./tiny+latest.sqsh true >started 2>&1 3>&- &
  run_and_show env ENROOT_CONFIG_PATH="$work/config" srun --container-image=./tiny+latest.sqsh echo the task ran
  [ "$status" -eq 0 ]
  [[ $output == *"$work/config/hooks.d/50-slow.sh is still running after 10 s"* ]]
  grep -qx 'the task ran' <<<"$output"
  wait $!
  grep -q "$work/config/hooks.d/50-slow.sh is still running after 10 s" started
}

@test "which tags there are, and a scheme without its slashes" {
  run_and_show situla tags registry.test#debian:12
  [ "$status" -eq 0 ]
  [ "${lines[*]}" = "12 12-v2s2 12-zstd latest" ]
  situla tags --json docker://registry.test#debian | jq -e 'index("12-zstd") == 2'
  situla tags auth.test#tiny | grep -qx latest
  run_and_show situla tags registry.test#nosuchimage
  [ "$status" -eq 1 ]
  [[ $output == *"no such image in this registry (404)"* ]]
  run_and_show situla tags ./tiny+latest.sqsh
  [ "$status" -eq 1 ]
  [[ $output == *"not the name of an image"* ]]
  fails_with "'situla tags IMAGE' lists those there are" --container-image=registry.test#debian:99
  srun --container-image=registry.test#tiny true
  fails_with "hint: did you mean registry.test/tiny:latest, which this node has?" --container-image=registry.test#tinny
  fails_with "hint: did you mean docker://ubuntu:24.04?" --container-image=docker:ubuntu:24.04
}

@test "doctor --registry looks at the registry alone" {
  run_and_show situla doctor --registry registry.test/tiny
  [ "$status" -eq 0 ]
  [[ ${lines[0]} == "registry registry.test/tiny" ]]
  [[ $output != *user-namespaces* ]]
  [[ $output != *"images by"* ]]
  run_and_show situla doctor --registry registry.test/tiny --all
  [[ $output == *user-namespaces* ]]
  [[ $output == *"registry registry.test/tiny"* ]]
  run_and_show situla doctor --all
  [ "$status" -eq 1 ]
}

@test "one failure of many tasks is said once" {
  local options
  for options in --container-image=registry.test/nosuchimage --container-image=./nothing.sqsh "--container-image=registry.test/tiny --container-mounts=./nothing:/x" "--container-image=registry.test/tiny --container-workdir=/nothing"; do
    # shellcheck disable=SC2086
    run_and_show srun -n4 $options true
    [ "$status" -eq 1 ]
    [ "$(grep -c 'error: situla: ' <<<"$output")" -eq 2 ] # with its hint
    [ "$(grep -c 'task_init() failed' <<<"$output")" -eq 1 ]
    grep -q 'srun: error: node1: tasks 0-3: Exited with exit code 1' <<<"$output"
  done
}

@test "credentials that cannot be read are for images that need some" {
  mkdir config
  export ENROOT_CONFIG_PATH=$work/config
  install -m 000 /dev/null config/.credentials
  run_and_show srun --container-image=registry.test/tiny echo works
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = works ]
  [[ "$output" == *"config/.credentials: Permission denied: asking without a login"* ]]
  run_and_show srun --container-image=auth.test/tiny true
  [ "$status" -ne 0 ]
}
