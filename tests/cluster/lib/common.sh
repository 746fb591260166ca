# What every command of the lab shares: paths, constants, messages. Sourced.
# shellcheck shell=bash disable=SC2034

lab_repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd -P)
lab_source=$lab_repo/tests/cluster
lab_state=$lab_repo/build/lab
lab_prefix=$lab_state/prefix

# Names and addresses inside; each instance has its own network namespace, so that 443 is free on all of them.
lab_hosts=(
  "127.0.0.2 registry.test"
  "127.0.0.3 auth.test"
  "127.0.0.4 token.test"
  "127.0.0.5 auth-token.test"
  "127.0.0.6 fault.test"
  "127.0.0.7 badcert.test"
  "127.0.0.8 refused.test"
  "127.0.0.9 content.test"
  "127.0.0.10 proxy.test"
  "127.0.0.11 plain.test"
  "127.0.1.0 ctl"
)
# Also in the hosts' certificate, for a test that has them in /etc/hosts: registries by the names that guides print.
lab_real_names=(nvcr.io authn.nvidia.com registry-1.docker.io mirror.example.org)
lab_registry_user=alice
lab_registry_password=secret
lab_uid_situla=60790
lab_uid_situla_import=60791
lab_uid_alice=60801
lab_uid_bob=60802
lab_gid_crew=60810   # a supplementary group of alice

die() {
  echo "${lab_command:-lab}: $1" >&2
  [ $# -lt 2 ] || echo "hint: $2" >&2
  exit "${lab_failure:-1}"
}

need_root() {
  [ "$(id -u)" -eq 0 ] || die "must run as root: it makes namespaces and mounts" "sudo $0 ..."
}

# The comment block at the top of the command is its help.
usage() {
  sed -n '2,/^[^#]/{/^[^#]/d;s/^# \{0,1\}//;p}' "$0"
  exit 0
}

# First child of a process, or nothing.
child_of() {
  local children
  read -r children <"/proc/$1/task/$1/children" || true
  echo "${children%% *}"
}
