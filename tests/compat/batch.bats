# lab:
# Configuration scripts as programs: enroot batch, COMPAT.md section 3.
bats_require_minimum_version 1.5.0

setup_file() {
  export work=$(mktemp -d "$HOME/batch.XXXXXX")
  export ENROOT_DATA_PATH=$work/data
  cd "$work"
  enroot import -o tiny.sqsh docker://registry.test#tiny
  enroot create tiny.sqsh
}

teardown_file() {
  cd /
  chmod -R u+rwX "$work"
  rm -rf "$work"
}

setup() { cd "$work"; }

# script NAME: from standard input, executable, with the first line that users write.
script() {
  { echo '#!/usr/bin/env -S enroot batch'; cat; } >"$1"
  chmod 755 "$1"
}

@test "a script is a program; its arguments are the container's command" {
  script run-tiny <<<'#ENROOT_ROOTFS=tiny'
  run -0 --separate-stderr ./run-tiny sh -c 'cat /etc/rc >/dev/null && echo inside "$@"' x 'a  b' --flag
  [ "$output" = "inside a  b --flag" ]
  run -42 ./run-tiny sh -c 'exit 42'
  [ "$(enroot batch -- ./run-tiny echo as a word)" = "as a word" ]
  [ "$(echo through | ./run-tiny cat)" = through ]
}

@test "directives of the script override the environment; ENROOT_ROOTFS may be an image" {
  script image <<'END'
#ENROOT_ROOTFS ${HOME}/${IMAGE_NAME}.sqsh
# ENROOT_REMAP_ROOT=yes
END
  ln -s "$work/tiny.sqsh" "$HOME/linked.sqsh"
  [ "$(IMAGE_NAME=linked ENROOT_REMAP_ROOT=no ENROOT_ROOTFS=nothing ./image id -u)" = 0 ]
  rm "$HOME/linked.sqsh"
  script from-environment <<<'#ENROOT_REMAP_ROOT=y'
  [ "$(ENROOT_ROOTFS=tiny ./from-environment id -u)" = 0 ]
}

@test "functions of the script set up the container" {
  mkdir -p shared
  echo content >shared/file
  script complete <<'END'
#ENROOT_ROOTFS=tiny
#ENROOT_ROOTFS_WRITABLE=yes

environ() {
    env | grep '^FROM_HOST='
    echo "IN_SCRIPT=set here"
}

mounts() {
    echo "${PWD}/shared /mnt none x-create=dir,bind"
}

hooks() {
    echo from the hook >"${ENROOT_ROOTFS}/hooked"
}

rc() {
    echo "rc ran with $# words"
    exec "$@"
}
END
  run -0 --separate-stderr env FROM_HOST=host ./complete sh -c 'echo $FROM_HOST, $IN_SCRIPT; cat /mnt/file /hooked'
  [ "$output" = "rc ran with 3 words
host, set here
content
from the hook" ]
}

@test "a script is run by srun" {
  script job <<'END'
#ENROOT_ROOTFS=tiny
rc() { exec sh -c 'echo task $SLURM_PROCID'; }
environ() { echo "SLURM_PROCID=${SLURM_PROCID}"; }
END
  [ "$(srun -n2 ./job | sort)" = "task 0
task 1" ]
}

@test "errors: a directive that is missing, a script, a container" {
  script none <<<'#ENROOT_REMAP_ROOT=y'
  run -1 --separate-stderr ./none true
  [[ "$stderr" == "[ERROR] Missing directive ENROOT_ROOTFS in ./none"* ]]
  [ -z "$output" ]
  run -1 --separate-stderr enroot batch ./missing
  [[ "$stderr" == "[ERROR] No such file or directory: ./missing"* ]]
  script for-unknown <<<'#ENROOT_ROOTFS=unknown'
  run -1 --separate-stderr ./for-unknown true
  [[ "$stderr" == "[ERROR] No such file or directory: $ENROOT_DATA_PATH/unknown"* ]]
}
