# Waiting for what has no event that a shell could wait for. Loaded by the helpers of the suites.
# shellcheck shell=bash

# wait_until SECONDS CMD...: polls, for at least that time: $SECONDS has whole ones.
wait_until() {
  local deadline=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -le $deadline ] || return 1
    sleep 0.1
  done
}
