# lab: --user root
# When the registry is asked: once for a job, for whom, and what is started when it does not answer (fault.test/moody-..., which tests tell what to do).
load helpers

setup() {
  image=moody-$BATS_TEST_NUMBER
  settings
  # Else a registry that fails is asked for two minutes.
  install -d /etc/enroot/enroot.conf.d
  echo "ENROOT_TRANSFER_RETRIES 3" >/etc/enroot/enroot.conf.d/retries.conf
}
teardown() {
  settings
  rm /etc/enroot/enroot.conf.d/retries.conf
}

settings() { printf '%s\n' "$@" >/etc/situla/situla.toml; }
mood() { curl -s "https://fault.test/mood/$image?is=$1" >/dev/null; }
requests() { curl -s "https://fault.test/stats/$image" | jq .requests; }
# run_as USER OPTION...: one job of one step.
run_as() { run_and_show as "$1" srun -n1 --container-image="fault.test#$image" "${@:2}" echo inside; }
inside() { [ "$status" -eq 0 ] && [ "${lines[-1]}" = inside ]; }
refused() { [ "$status" -ne 0 ] && [[ $output != *inside* ]]; }
# asked N CMD...: as many requests.
asked() {
  local before
  before=$(requests)
  "${@:2}"
  [ $(($(requests) - before)) -eq "$1" ] || { echo "$(($(requests) - before)) requests instead of $1"; return 1; }
}
# in_one_job CMD...: of a shell; "step" starts one.
in_one_job() {
  # shellcheck disable=SC2016
  run_and_show as_alice env IMAGE="fault.test#$image" STATS="https://fault.test/stats/$image" MOOD="https://fault.test/mood/$image" salloc -Q -n1 bash -euc '
    step() { srun -n1 --container-image="$IMAGE" "$@" sh -c "sleep ${time:-0}; echo inside"; }
    requests() { curl -s "$STATS" | jq .requests; }
    mood() { curl -s "$MOOD?is=$1" >/dev/null; }
    eval "$0"' "$1"
}

@test "a job's later steps ask nobody and import nothing; a new job asks for one manifest" {
  # shellcheck disable=SC2016
  in_one_job 'step; before=$(requests); step; step; echo "$(($(requests) - before)) requests"'
  [ "$status" -eq 0 ]
  [[ $output == *"0 requests" ]]
  [ "$(grep -c 'importing docker image' <<<"$output")" -eq 1 ]
  [ "$(grep -c '^inside$' <<<"$output")" -eq 3 ]
  asked 1 run_as alice
  inside
  [[ $output != *importing* ]]
  asked 1 run_as alice --container-resolve=always
  inside
}

@test "a name that is a digest needs no more than leave" {
  run_as alice
  inside
  digest=$(skopeo inspect --raw "docker://fault.test/$image" | sha256sum | cut -d' ' -f1)
  image_by_tag=$image
  digest_run() { run_and_show as alice srun -n1 --container-image="fault.test#$image_by_tag@sha256:$digest" echo inside; }
  asked 0 digest_run
  inside
  run_and_show as bob srun -n1 --container-image="fault.test#$image@sha256:$digest" echo inside
  inside  # who has no leave yet asks, and gets it
}

@test "a registry that fails keeps out those whom it has not let in, and nobody else" {
  run_as alice
  inside
  mood 503
  run_as alice
  inside
  grep -E 'fault.test does not answer: .* is started as it was 0 min ago, sha256:[0-9a-f]{64}$' <<<"$output"
  [ "$(grep -c 'does not answer' <<<"$output")" -eq 1 ]
  asked 0 run_as alice  # not again within a minute
  inside
  grep -E 'fault.test does not answer \(asked [0-9]+ s ago, and again in [0-9]+ s\): .* is started as it was 0 min ago, ' <<<"$output"
  run_as bob
  refused
  [ "$(grep -c 'ERROR\|error:.*503\|failed (503)' <<<"$output")" -ge 1 ]
  settings 'grant_offline = 0'
  run_as alice
  refused
  settings 'grant_offline = 1'
  sleep 1.1
  run_as alice
  refused
}

@test "a registry that says nothing is not waited for" {
  run_as alice
  inside
  mood silent
  began=$SECONDS
  run_as alice
  inside
  [ $((SECONDS - began)) -lt 20 ]
  grep 'does not answer' <<<"$output"
}

@test "credentials that were taken back: refused, and then also while the registry is away" {
  run_as alice
  inside
  mood 401
  run_as alice
  refused
  mood 503
  run_as alice
  refused
  [[ $output != *"is started as it was"* ]]
}

@test "a tag that moves: the job goes on with what it has, and a later step says so, once" {
  # shellcheck disable=SC2016
  in_one_job 'step; mood moved; sleep 60; time=2 step; step; echo then; step; step --container-resolve=always'
  [ "$status" -eq 0 ]
  [ "$(grep -c "has moved since this job's first step" <<<"$output")" -eq 1 ]
  [ "$(grep -c 'importing docker image' <<<"$output")" -eq 2 ]
  grep -E -- 'means sha256:[0-9a-f]{64} by now, and this job goes on with sha256:[0-9a-f]{64} \(--container-resolve=always' <<<"$output"
}

@test "users may ask more than the site does, and less where it lets them" {
  run_as alice --container-resolve=86400
  refused
  [[ $output == *"this site does not let its users choose it"* ]]
  run_as alice --container-resolve=now
  refused
  [[ $output == *'must be "job", "always" or a number of seconds'* ]]
  settings 'resolve_choice = true'
  run_as alice --container-resolve=86400
  inside
  asked 0 run_as alice --container-resolve=86400
  inside
  settings 'grant_lifetime = 0'
  asked 1 run_as alice
  # shellcheck disable=SC2016
  in_one_job 'step; before=$(requests); step; echo "$(($(requests) - before)) requests"'
  [[ $output == *"1 requests" ]]
}
