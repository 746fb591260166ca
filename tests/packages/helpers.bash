# Common to the suites of packages: packages, machines, guides. Loaded by the .bats files.
# shellcheck shell=bash disable=SC2034,SC2154

bats_require_minimum_version 1.5.0
. "$BATS_TEST_DIRNAME/../support/wait.bash"
repository=$(cd "$BATS_TEST_DIRNAME/../.." && pwd -P)
. "$BATS_TEST_DIRNAME/lib/build.bash"
state=$repository/build/lab
machine=$state/machines/$(basename "$BATS_TEST_FILENAME" .bats)

# start_machine bare|slurm [PACKAGE...]: with users, and with what installing our packages and these needs in apt's cache.
start_machine() {
  (
    . "$repository/tests/cluster/lib/common.sh"
    . "$repository/tests/packages/lib/roots.sh"
    fetch_for --no-install-recommends "${@:2}" slurm-wlm munge
    fetch_for "$packages"/1/situla{,-slurm-plugin,-enroot}_*.deb
  ) || return 1
  "$repository/tests/packages/lib/machine" start "$machine" "$$" "$1" || return 1
  on useradd --create-home --shell /bin/bash alice
}
stop_machine() { "$repository/tests/packages/lib/machine" stop "$machine"; }

# on [--user USER] CMD...: on the machine.
on() { "$repository/tests/packages/lib/machine" run "$machine" "$@"; }
as_alice() { on --user alice "$@"; }

# guide FILE ROLE [SECTION]: the commands of that role, in the order and the words that are printed; of one section, if it is named, whose
# heading begins so. Those of users are alice's.
guide() {
  local file=$repository/packaging/guides/$1 who=root script=$machine/guide.sh
  if [ -n "${3:-}" ]; then
    awk -v wanted="## $3" '/^## /{inside = index($0, wanted) == 1} inside' "$file" >"$machine/section.md"
    file=$machine/section.md
  fi
  "$repository/tests/guides/blocks" "$2" "$file" >"$script" || return 1
  grep -q . "$script" || { echo "no commands of the role $2 in $1 ${3:-}"; return 1; }
  [ "$2" != user ] || who=alice
  on --user $who sh -c 'cd /shared/here 2>/dev/null || cd; exec bash /shared/guide.sh'
}

# What a package manager should give back: every path but what belongs to the times and logs of the machine.
files() {
  on find / -xdev -path /proc -prune -o -path /shared -prune -o -path /tmp -prune -o -print |
    grep -v -E '^/(var/(cache|log|lib/(dpkg|apt|slurm|systemd))|home|root)(/|$)' | sort
}
