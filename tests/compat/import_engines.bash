# What the tests of images in engines share.

# stop_engine PIDFILE
stop_engine() {
  [ -s "$1" ] || return 0
  kill "$(<"$1")" 2>/dev/null || true
  tail --pid="$(<"$1")" -f /dev/null
}

wait_for() {
  local deadline=$((SECONDS + 20))
  until curl -s -o /dev/null --unix-socket "$1" http://localhost/_ping; do
    [ $SECONDS -lt $deadline ] || { echo "nobody listens on $1"; return 1; }
    sleep 0.1
  done
}

# same_as LAYOUT:TAG HOW REFERENCE...: the imported tree is umoci's, and the image is all that there is afterwards.
same_as() {
  local layout=$1 how=$2 reference
  shift 2
  for reference; do
    "$how" situla import -o "$work/image.sqsh" "$reference"
    "$here/import-vs-umoci" "$work/image.sqsh" "$SITULA_LAB_IMAGES/$layout"
    rm "$work/image.sqsh"
    [ -z "$(ls -A "$work")" ]
  done
}

# fails_with PATTERN... -- CMD...: one error, and nothing left.
fails_with() {
  local patterns=() pattern
  while [ "$1" != -- ]; do patterns+=("$1"); shift; done
  shift
  run "$@"
  echo "status=$status"
  echo "$output"
  [ "$status" -eq 1 ]
  for pattern in 'failed to import docker image: ' 'hint: ' "${patterns[@]}"; do
    [[ "$output" == *"$pattern"* ]] || { echo "no line has: $pattern"; return 1; }
  done
  [ "$(grep -c ERROR <<<"$output")" -eq 1 ]
  [ -z "$(ls -A "$work")" ]
}
