# lab: --user root
# situla doctor on a node where everything is installed, as root and as a user, and what it says when something is missing.
bats_require_minimum_version 1.5.0

state_of() { jq -r --arg name "$1" '.checks[] | select(.name == $name) | .state' <<<"$output"; }

@test "a complete node passes, as root" {
  run --separate-stderr situla doctor --json
  echo "$output"
  [ "$status" -eq 0 ]
  [ "$(jq -r .ok <<<"$output")" = true ]
  [ "$(jq -r .tier <<<"$output")" = kernel ]
  [ "$(state_of idmapped-mounts)" = ok ]
  [ "$(state_of plugstack)" = ok ]
}

@test "an ordinary user gets an answer, too" {
  run --separate-stderr setpriv --reuid alice --regid alice --init-groups situla doctor
  echo "$output"
  [ "$status" -eq 0 ]
  grep -Eq '^ok +user-namespaces' <<<"$output"
  grep -q 'needs root' <<<"$output"
}

@test "what is missing is named with a fix, and the status says so" {
  mv /etc/slurm/plugstack.conf /etc/slurm/plugstack.conf.away
  run --separate-stderr situla doctor
  mv /etc/slurm/plugstack.conf.away /etc/slurm/plugstack.conf
  echo "$output"
  [ "$status" -eq 1 ]
  grep -Eq '^fail +plugstack' <<<"$output"
  grep -Eq 'fix: add the line: required .*spank_situla\.so' <<<"$output"
}

@test "a store that others can write to fails" {
  chmod o+w /var/lib/situla
  run --separate-stderr situla doctor --json
  chmod o-w /var/lib/situla
  [ "$status" -eq 1 ]
  [ "$(state_of store)" = fail ]
}

@test "the probes leave nothing behind" {
  mounts=$(cat /proc/self/mountinfo)
  loops=$(losetup --list --noheadings --output NAME,BACK-FILE | grep -c empty.sqsh || true)
  situla doctor >/dev/null || true
  [ "$mounts" = "$(cat /proc/self/mountinfo)" ]
  [ "$(losetup --list --noheadings --output NAME,BACK-FILE | grep -c empty.sqsh || true)" = "$loops" ]
}
