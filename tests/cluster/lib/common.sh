# What shell commands that use the lab share: paths, messages. Sourced.
# shellcheck shell=bash disable=SC2034

lab_repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd -P)
lab_source=$lab_repo/tests/cluster
lab_state=$lab_repo/build/lab
lab_prefix=$lab_state/prefix

die() {
  echo "${lab_command:-lab}: $1" >&2
  [ $# -lt 2 ] || echo "hint: $2" >&2
  exit 1
}

need_root() {
  [ "$(id -u)" -eq 0 ] || die "must run as root: it makes namespaces and mounts" "sudo $0 ..."
}

# The comment block at the top of the command is its help.
usage() {
  sed -n '2,/^[^#]/{/^[^#]/d;s/^# \{0,1\}//;p}' "$0"
  exit 0
}
