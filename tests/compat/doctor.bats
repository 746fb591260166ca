# lab: --user root
# situla doctor on a node where everything is installed, as root and as a user, and what it says when something is missing.
bats_require_minimum_version 1.5.0
. "$BATS_TEST_DIRNAME/../support/wait.bash"

status_of() { jq -r --arg name "$1" '.checks[] | select(.name == $name) | .status' <<<"$output"; }

@test "a complete node passes, as root" {
  run --separate-stderr situla doctor --json
  echo "$output"
  [ "$status" -eq 0 ]
  [ "$(jq -r .schema <<<"$output")" = 1 ]
  [ "$(jq -r .summary.fail <<<"$output")" = 0 ]
  [ "$(jq -r .host <<<"$output")" = node1 ]
  # Every check has the keys that situla-doctor(1) promises, warnings and failures say what to do.
  [ "$(jq -r '[.checks[] | has("section", "name", "status", "found", "fix", "facts")] | all' <<<"$output")" = true ]
  [ "$(jq -r '[.checks[] | select(.status == "warn" or .status == "fail") | .fix != ""] | all' <<<"$output")" = true ]
  [ "$(jq -r .tier <<<"$output")" = kernel ]
  [ "$(status_of idmapped-mounts)" = ok ]
  [ "$(status_of plugstack)" = ok ]
  [ "$(status_of slurm-version)" = ok ]
  jq -r '.checks[] | select(.name == "slurm-version") | .found' <<<"$output" | grep -Eq '^srun [0-9.]+, slurmd [0-9.]+; the plugin is for [0-9.]+$'
}

@test "an ordinary user gets an answer, too" {
  run --separate-stderr setpriv --reuid alice --regid alice --init-groups situla doctor
  echo "$output"
  [ "$status" -eq 0 ]
  grep -Eq '^  ok +user-namespaces' <<<"$output"
  grep -q 'needs root' <<<"$output"
}

@test "what is missing is named with a fix, and the status says so" {
  mv /etc/slurm/plugstack.conf /etc/slurm/plugstack.conf.away
  run --separate-stderr situla doctor
  mv /etc/slurm/plugstack.conf.away /etc/slurm/plugstack.conf
  echo "$output"
  [ "$status" -eq 1 ]
  grep -Eq '^  fail +plugstack' <<<"$output"
  grep -Eq 'fix: make it with the line: required .*spank_situla\.so' <<<"$output"
}

@test "a store that others can write to fails" {
  chmod o+w /var/lib/situla
  run --separate-stderr situla doctor --json
  chmod o-w /var/lib/situla
  [ "$status" -eq 1 ]
  [ "$(status_of store)" = fail ]
}

@test "a plugin for another Slurm, one that others can write, and an argument that the plugin does not know" {
  plugin=$SITULA_LAB_PREFIX/lib/slurm/spank_situla.so
  mkdir /tmp/other
  cat >/tmp/other/plugin.c <<'C'
const char plugin_name[] = "situla", plugin_type[] = "spank";
const unsigned int plugin_version = (99 << 16) | (5 << 8), spank_plugin_version = 1;
C
  cc -shared -fPIC -o /tmp/other/spank_situla.so /tmp/other/plugin.c
  mount --bind /tmp/other/spank_situla.so "$plugin"
  run --separate-stderr situla doctor
  umount "$plugin"
  echo "$output"
  [ "$status" -eq 1 ]
  grep -Eq '^  fail +slurm-version .*the plugin is for 99.05$' <<<"$output"
  grep -Eq 'fix: install the package situla-slurm-plugin that was built for Slurm ' <<<"$output"

  chmod o+w /tmp/other/spank_situla.so
  cp /etc/slurm/plugstack.conf /tmp/other/plugstack.conf
  echo "required /tmp/other/spank_situla.so contaner_scope=job" >/etc/slurm/plugstack.conf
  run --separate-stderr situla doctor
  cp /tmp/other/plugstack.conf /etc/slurm/plugstack.conf
  rm -r /tmp/other
  echo "$output"
  [ "$status" -eq 1 ]
  grep -q 'can be written by others than root' <<<"$output"
  grep -Eq '^  fail +plugin-arguments .*contaner_scope' <<<"$output"
  grep -Eq 'fix: .*container_scope' <<<"$output"
}

@test "a situla.toml that users cannot read fails for everybody" {
  mkdir -p /etc/situla
  echo 'mount = "auto"' >/etc/situla/situla.toml
  chmod 600 /etc/situla/situla.toml
  run --separate-stderr situla doctor
  echo "$output"
  [ "$status" -eq 1 ]
  grep -Eq '^  fail +site-configuration .*users cannot read it$' <<<"$output"
  grep -q 'fix: chmod 644 /etc/situla/situla.toml$' <<<"$output"
  run --separate-stderr setpriv --reuid alice --regid alice --init-groups situla doctor --json
  rm /etc/situla/situla.toml
  [ "$status" -eq 1 ]
  [ "$(status_of site-configuration)" = fail ]
  # Root's to do, and said so.
  [ "$(jq -r '[.checks[] | select(.section == "situla" and .fix != "") | .fix | startswith("ask the administrator: ")] | length > 0 and all' <<<"$output")" = true ]
  [ "$(jq -r '[.checks[] | select(.section == "user") | .fix | startswith("ask the administrator: ")] | any' <<<"$output")" = false ]
}

@test "a registry, step by step" {
  registry_line() { grep -A9 '^registry ' <<<"$output" | grep -E "^  [a-z]+ +$1 "; }
  doctor_as_alice() { run --separate-stderr runuser -u alice -- env HOME=/home/alice "$@"; echo "$output"; }
  doctor_as_alice situla doctor --registry registry.test/tiny
  [ "$status" -eq 0 ]
  registry_line manifest | grep -Eq 'ok .* is sha256:[0-9a-f]{64}, [0-9]+ layers'
  doctor_as_alice situla doctor --registry auth.test
  [ "$status" -eq 0 ]
  registry_line login | grep -q 'accepted'
  registry_line credentials | grep -q 'alice for auth.test'
  [[ "$output" != *secret* ]]
  doctor_as_alice env ENROOT_CONFIG_PATH=/nonexistent situla doctor --registry auth.test/tiny
  [ "$status" -eq 1 ]
  registry_line manifest | grep -q 'fail'
  doctor_as_alice situla doctor --registry registry.test/none:1 --json
  [ "$status" -eq 1 ]
  [ "$(status_of connection)" = ok ]
  [ "$(status_of manifest)" = fail ]
  doctor_as_alice situla doctor --registry unknown.test
  registry_line dns | grep -q fail
  doctor_as_alice situla doctor --registry badcert.test
  registry_line connection | grep -q 'certificate'
  doctor_as_alice env https_proxy=http://me:password@proxy.test:3128 situla doctor --registry registry.test
  registry_line proxy | grep -q 'http://proxy.test:3128$'
  doctor_as_alice env https_proxy=http://proxy.test:3128 no_proxy=.test situla doctor --registry registry.test
  [ "$status" -eq 0 ]
  registry_line proxy | grep -q 'none: no_proxy has registry.test'
}

# Of this machine: those of a doctor in another lab are there for a moment.
loops_of_probes() { losetup --list --noheadings --output NAME,BACK-FILE | grep -c empty.sqsh || true; }
no_more_loops() { [ "$(loops_of_probes)" -le "$loops" ]; }

@test "the probes leave nothing behind" {
  mounts=$(cat /proc/self/mountinfo)
  loops=$(loops_of_probes)
  situla doctor >/dev/null || true
  [ "$mounts" = "$(cat /proc/self/mountinfo)" ]
  wait_until 20 no_more_loops
}
