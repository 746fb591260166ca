# Waiting for what has no event that a shell could wait for. Loaded by the helpers of the suites.
# shellcheck shell=bash

# wait_until SECONDS CMD...: polls, for at least that time: $SECONDS has whole ones. Less often after a second: what is asked of Slurm
# is processes, which are most of what a lab costs.
wait_until() {
  local deadline=$((SECONDS + $1)) waited=0
  shift
  until "$@"; do
    [ $SECONDS -le $deadline ] || return 1
    sleep "0.$((++waited <= 8 ? 1 : 3))"
  done
}
