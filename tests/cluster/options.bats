# lab: --slurm-conf MinJobAge=86400 --slurm-conf MessageTimeout=60
# Every option of the plugin, in srun, sbatch and salloc: right values work, wrong ones are refused by the command itself, before there is a job.
load helpers

# OPTION|what is good about a container with it: a command that prints "good". Must name every option of --help, and nothing else.
good() {
  cat <<'TABLE'
--container-image=registry.test/tiny|test "$GREETING" = hello
--container-mounts=/usr/lib:/seen:ro,tmpfs:/scratch|test -e /seen/os-release && touch /scratch/x
--container-workdir=/etc|test "$PWD" = /etc
--container-name=good-name:no_exec|test "$GREETING" = hello
--container-save=/tmp/saved-by-option.sqsh|test "$GREETING" = hello
--container-mount-home|test -e /home/alice/of-alice
--no-container-mount-home|test ! -e /home/alice/of-alice
--container-remap-root|test "$(id -u)" = 0
--no-container-remap-root|test "$(id -u)" != 0
--container-entrypoint|test "$GREETING" = hello
--no-container-entrypoint|test "$GREETING" = hello
--container-entrypoint-log|test "$GREETING" = hello
--container-writable|touch /new
--container-readonly|if touch /new 2>/dev/null; then false; fi
--container-env=GREETING|test "$GREETING" = outside
--container-unshare=net,ipc,uts,pid|test "$(ls /sys/class/net)" = lo
--container-devices=none|test "$GREETING" = hello
--container-resolve=always|test "$GREETING" = hello
--environment=good|test "$GREETING" = hello
--no-slurm-inside|test -z "$SITULA_SLURM_INSIDE"
--container-prefetch|test "$GREETING" != hello && test -n "$SITULA_PREFETCHED"
TABLE
}

# OPTION|what the message says. Without a value, a second value, or the opposite: made of the table above.
bad() {
  cat <<'TABLE'
--container-image=UPPER/case|upper-case
--container-image=registry.test/tiny:bad tag|image reference
--container-image=registry.test/tiny@sha256:123|digest
--container-image=http://registry.test/tiny|http
--container-image=dockerd://-x|dockerd://-x
--container-image=oci:|oci:
--container-mounts=relative:/x|must be
--container-mounts=/a:relative|must be
--container-name=:create|the name is empty
--container-name=../up|cannot be the name of a container
--container-name=a/b|cannot be the name of a container
--container-name=a b|cannot be the name of a container
--container-name=façade|cannot be the name of a container
--container-name=x:sometimes|flag must be "auto", "create", "exec" or "no_exec"
--container-name=@300|longer than
--container-save=directory/|not the name of a file
--container-env=1X|not the name of an environment variable
--container-env=A=b|not the name of an environment variable
--container-unshare=user|unknown namespace: user
--container-unshare=net,,mnt|unknown namespace: mnt
--container-resolve=sometimes|must be "job", "always" or a number of seconds
--container-devices=gpu|no name of a device
--container-devices=nvidia.com/gpu=|no name of a device
--container-devices=none,nvidia.com/gpu=0|no name of a device
TABLE
}

booleans="mount-home remap-root entrypoint"

setup_file() {
  cd "$HOME"
  touch of-alice
  mkdir -p .edf
  echo 'image = "registry.test/tiny"' >.edf/good.toml
  printf '#!/bin/sh\ntrue\n' >job.sh
  rm -f tiny.sqsh
  situla import -o tiny.sqsh docker://registry.test/tiny
}

setup() { cd "$HOME"; }

# All that there were: Slurm forgets none of them (MinJobAge).
jobs() { scontrol -o show jobs | grep -o 'JobId=[0-9]*' | sort; }

# refused PATTERN OPTION...: by each of the three commands, with the status that Slurm gives to such an option.
refused() {
  local pattern=$1 command
  shift
  for command in srun sbatch salloc; do
    run_and_show timeout 60 "$command" "$@" ./job.sh
    [ "$status" -eq 255 ]
    grep -qF -- "$command: error: situla: " <<<"$output"
    grep -F -- 'situla: ' <<<"$output" | grep -qF -- "$pattern"
    # One message of ours and its hint, then Slurm's own.
    [ "$(grep -F 'situla: ' <<<"$output" | grep -cvF 'situla: hint: ')" -eq 1 ]
  done
}

@test "the table of these tests has every option that --help shows, in all three commands" {
  local command
  good | grep -o -E '^--[a-z-]+' | sort >"$BATS_TEST_TMPDIR/table"
  for command in srun sbatch salloc; do
    "$command" --help | grep -o -E '^ +--((no-)?container-[a-z-]+|environment|no-slurm-inside)' | tr -d ' ' | sort >"$BATS_TEST_TMPDIR/help"
    diff "$BATS_TEST_TMPDIR/help" "$BATS_TEST_TMPDIR/table"
    # Ours are marked, so that users know whom to ask.
    # --no-container is for srun alone: slurm_inside.bats.
    [ "$("$command" --help | grep -c '\[situla\]')" -eq "$(($(good | wc -l) + 1))" ]
  done
}

# One line of `good`, in one of the commands: prints "good" when all is well.
try_good() {
  local command=$1 option=${2%%|*} check=${2#*|} image=(--container-image=./tiny.sqsh) out=$BATS_TEST_TMPDIR/$1.$3
  [[ $option != --container-image=* ]] || image=()
  [ "$option" != --container-prefetch ] || image=(--container-image=registry.test/tiny)  # of a registry alone
  case $command in
    srun) srun "${image[@]}" "$option" sh -c "$check && echo good" ;;
    salloc) salloc "${image[@]}" "$option" srun sh -c "$check && echo good" ;;
    sbatch)
      printf '#!/bin/sh\n%s && echo good\n' "$check" >"$out.job"
      "$lab_tests/submit" -o "$HOME/${out##*/}.out" "${image[@]}" "$option" "$out.job"
      cat "$HOME/${out##*/}.out"
      ;;
  esac >"$out" 2>&1
}

@test "a good value of every option does what it says, in srun, sbatch and salloc" {
  local line number command wrong=0
  export GREETING=outside
  for command in srun sbatch salloc; do
    number=0
    while read -r line; do
      number=$((number + 1))
      try_good "$command" "$line" "$number" </dev/null 3>&- &
    done < <(good)
    wait
    number=0
    while read -r line; do
      number=$((number + 1))
      grep -qx good "$BATS_TEST_TMPDIR/$command.$number" && continue
      wrong=1
      echo "$command ${line%%|*}:"
      cat "$BATS_TEST_TMPDIR/$command.$number"
    done < <(good)
  done
  [ "$wrong" -eq 0 ]
}

@test "wrong values are refused before a job exists" {
  local line option before
  before=$(jobs)
  while read -r line; do
    option=${line%%|*}
    [[ $option != *@300 ]] || option=${option%@300}$(printf 'x%.0s' {1..300})
    if [[ $option == --container-image=* ]]; then refused "${line#*|}" "$option"; else refused "${line#*|}" --container-image=registry.test/tiny "$option"; fi
  done < <(bad)
  [ "$(jobs)" = "$before" ]
}

@test "an option that takes a value needs one; one that takes none refuses it" {
  local option before
  before=$(jobs)
  while read -r option; do
    if [[ $option == *=* ]]; then
      refused "${option%%=*}: needs a value" "${option%%=*}="
    else
      run_and_show srun "$option=1" true
      [ "$status" -eq 255 ]
      [[ "$output" == *"$option' doesn't allow an argument"* ]]
    fi
  done < <(good | cut -d'|' -f1)
  # Abbreviations and slips are Slurm's to judge.
  run_and_show srun --container-imgae=registry.test/tiny true
  [ "$status" -eq 255 ]
  [ "$(jobs)" = "$before" ]
}

@test "the same option twice: the same value is fine, another is not; mounts and names of variables add up" {
  local option before
  before=$(jobs)
  while read -r option; do
    case $option in
      --container-mounts=* | --container-env=* | --container-devices=*) ;;
      --container-image=*) refused "specified multiple times" "$option" --container-image=registry.test/debian ;;
      --container-unshare=*) refused "specified multiple times" "$option" --container-unshare=uts ;;
      --container-resolve=*) refused "specified multiple times" "$option" --container-resolve=job ;;
      *=*) refused "specified multiple times" "$option" "${option%%=*}=/another" ;;
    esac
  done < <(good | grep -v container-name | cut -d'|' -f1)
  refused "specified multiple times" --container-name=one --container-name=two
  [ "$(jobs)" = "$before" ]
  local twice=(--container-image=./tiny.sqsh --container-image=./tiny.sqsh --container-workdir=/etc --container-workdir=/etc --container-readonly
    --container-readonly --container-mounts=/usr/bin:/a --container-mounts=/usr/lib:/b --container-env=GREETING --container-env=TWO)
  local check='test $GREETING = mine && ls /a/srun /b/os-release'
  export TWO=2 GREETING=mine
  run_and_show srun "${twice[@]}" sh -c "$check"
  [ "$status" -eq 0 ]
  run_and_show salloc "${twice[@]}" srun sh -c "$check"
  [ "$status" -eq 0 ]
  printf '#!/bin/sh\n%s\n' "$check" >twice.sh
  run_and_show "$lab_tests/submit" -o twice.out "${twice[@]}" twice.sh
  cat twice.out
  [ "$status" -eq 0 ]
}

@test "options of salloc and sbatch hold for the sruns inside, which may add mounts but not change the image" {
  run_and_show salloc --container-image=./tiny.sqsh --container-workdir=/etc --container-mounts=/usr/bin:/a --container-mounts=/usr/lib:/b sh -c '
    srun sh -c "echo first \$GREETING \$PWD; ls /b/os-release"
    srun --container-mounts=/usr/lib:/c sh -c "echo second; ls /a/srun /b/os-release /c/os-release"
    srun --container-image=registry.test/debian:12 true || echo refused'
  [ "$status" -eq 0 ]
  [[ "$output" == *"first hello /etc"*/b/os-release*second*/a/srun*/b/os-release*/c/os-release*refused* ]]
  [[ "$output" == *"--container-image: specified multiple times"* ]]
  # The host's programs inside, so that the script can call srun.
  cat >inner.sh <<SCRIPT
#!/bin/sh
#SBATCH --container-image=registry.test/tiny --container-workdir=/etc
#SBATCH --container-mounts=/usr,/lib,/lib64,/etc/slurm,/run/munge,/etc/nsswitch.conf,/etc/passwd,$SITULA_LAB_PREFIX
srun sh -c 'echo "first \$GREETING \$PWD"'
env -u SLURM_SPANK__SLURM_SPANK_OPTION_situla_container_image srun sh -c 'echo "second \$GREETING"; test -e $HOME/job.sh && echo on the host'
SCRIPT
  "$lab_tests/submit" -o inner.out inner.sh
  cat inner.out
  grep -qx 'first hello /etc' inner.out
  grep -qx 'on the host' inner.out
}

@test "an option without a value may be given to salloc and sbatch, and to srun in the job once more" {
  local flag
  for flag in --container-readonly --container-remap-root --container-mount-home --no-container-entrypoint; do
    run_and_show salloc --container-image=./tiny.sqsh "$flag" srun "$flag" echo works
    [ "$status" -eq 0 ]
    [ "${lines[-1]}" = works ]
  done
  printf '#!/bin/sh\nsrun --container-image=./tiny.sqsh --container-readonly echo works\n' >again.sh
  run_and_show "$lab_tests/submit" -o again.out --container-readonly again.sh
  cat again.out
  grep -qx works again.out
}

@test "an option and its opposite" {
  local name before
  before=$(jobs)
  for name in $booleans; do
    refused "both --container-$name and --no-container-$name" --container-image=registry.test/tiny "--container-$name" "--no-container-$name"
    refused "both --container-$name and --no-container-$name" --container-image=registry.test/tiny "--no-container-$name" "--container-$name"
  done
  refused "both --container-writable and --container-readonly" --container-image=registry.test/tiny --container-readonly --container-writable
  [ "$(jobs)" = "$before" ]
}

@test "#SBATCH lines are checked as the command line is" {
  local before
  before=$(jobs)
  printf '#!/bin/sh\n#SBATCH --container-image=registry.test/tiny\n#SBATCH --container-name=x:never\ntrue\n' >directive.sh
  run_and_show sbatch directive.sh
  [ "$status" -ne 0 ]
  [[ "$output" == *'flag must be "auto", "create", "exec" or "no_exec"'* ]]
  [ "$(jobs)" = "$before" ]
}

# Without image and name a job runs on the host, in each command, and each option given in vain is named.
ignored_in() {
  local command=$1 option=$2 out=$BATS_TEST_TMPDIR/ignored.$1.${2//[^a-z]/_}
  case $command in
    sbatch) "$lab_tests/submit" "$option" ./job.sh ;;
    *) "$command" "$option" true ;;
  esac >"$out" 2>&1 && [ "$(grep -cxF "situla: ignoring ${option%%=*} because neither --container-image nor --container-name is set" "$out")" -eq 1 ] ||
    { echo "$command $option:"; cat "$out"; touch "$BATS_TEST_TMPDIR/wrong"; }
}

@test "options without an image or a name are said to be ignored, and the job runs" {
  local command option
  for command in srun sbatch salloc; do
    while read -r option; do
      ignored_in "$command" "$option" </dev/null 3>&- &
    done < <(good | grep -v -E '(container-(image|name)|environment)=' | cut -d'|' -f1)
    wait
  done
  [ ! -e "$BATS_TEST_TMPDIR/wrong" ]
  run_and_show srun --container-readonly --container-workdir=/etc true
  [ "$(grep -c 'situla: ignoring --container-' <<<"$output")" -eq 2 ]
}

@test "variables with wrong values are refused by the command too, when there would be a container" {
  local variable command before
  before=$(jobs)
  for variable in IMAGE=UPPER/case MOUNTS=relative:/x NAME=x:never SAVE=directory/ ENV=1X UNSHARE=user; do
    for command in srun sbatch salloc; do
      run_and_show env "PYXIS_CONTAINER_IMAGE=registry.test/tiny" "PYXIS_CONTAINER_$variable" "$command" ./job.sh
      [ "$status" -eq 1 ]
      [[ "$output" == *"$command: error: situla: "*"(from the environment)"* ]]
      run_and_show env "PYXIS_CONTAINER_IMAGE=registry.test/tiny" "SITULA_CONTAINER_$variable" "$command" ./job.sh
      [ "$status" -eq 1 ]
    done
  done
  [ "$(jobs)" = "$before" ]
  # No container, no complaint; an option on the command line takes the variable's place.
  run_and_show env PYXIS_CONTAINER_UNSHARE=user srun true
  [ "$status" -eq 0 ]
  run_and_show env PYXIS_CONTAINER_IMAGE=UPPER/case srun --container-image=./tiny.sqsh true
  [ "$status" -eq 0 ]
}

@test "variables in srun, sbatch and salloc: Situla's beat pyxis', an option beats both, booleans are spelled as they are" {
  export PYXIS_CONTAINER_IMAGE=registry.test/debian:12 SITULA_CONTAINER_IMAGE=./tiny.sqsh PYXIS_CONTAINER_WORKDIR=/etc PYXIS_CONTAINER_REMAP_ROOT=yes
  run_and_show srun sh -c 'echo "$GREETING $PWD $(id -u)"'
  [ "${lines[-1]}" = "hello /etc 0" ]
  run_and_show salloc srun --container-workdir=/srv --no-container-remap-root sh -c 'echo "$GREETING $PWD $(id -u)"'
  [[ "$output" == *"hello /srv $(id -u)"* ]]
  printf '#!/bin/sh\necho "$GREETING $PWD $(id -u)"\n' >show.sh
  "$lab_tests/submit" -o show.out show.sh
  grep -qx "hello /etc 0" show.out
  PYXIS_CONTAINER_REMAP_ROOT=0 run_and_show srun id -u
  [ "${lines[-1]}" = "$(id -u)" ]
  # Other spellings are no value: enroot's configuration decides.
  PYXIS_CONTAINER_REMAP_ROOT=YES run_and_show srun id -u
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = "$(id -u)" ]
  # Options of this session's own beat a variable's opposite.
  PYXIS_CONTAINER_READONLY=1 run_and_show srun --container-writable touch /new
  [ "$status" -eq 0 ]
}
