# lab: --user root --situla-conf tests/cluster/no_idle.toml
# What can go wrong before the first instruction: one clear message with cause and hint, a failing srun, nothing left.
load helpers

# Else a registry that fails is asked for two minutes.
setup_file() {
  install -d /etc/enroot/enroot.conf.d
  echo "ENROOT_TRANSFER_RETRIES 3" >/etc/enroot/enroot.conf.d/retries.conf
}
teardown_file() { rm /etc/enroot/enroot.conf.d/retries.conf; }

# fails_with REFERENCE PATTERN...: as alice; every pattern is in the output, the error is printed once.
fails_with() {
  local reference=$1 pattern
  shift
  snapshot
  run_and_show as_alice timeout 60 srun --container-image="$reference" true
  [ "$status" -ne 0 ]
  [ "$status" -ne 124 ]
  for pattern in "$@"; do
    grep -Eiq -- "$pattern" <<<"$output" || { echo "no line matches: $pattern"; return 1; }
  done
  grep -Eq 'hint: ' <<<"$output" || { echo "no hint"; return 1; }
  grep -Eq 'error: situla: .* \[[a-z-]+\]$' <<<"$output" || { echo "no code at the end of the error"; return 1; }
  [ "$(grep -Ec 'error: situla: [^h]' <<<"$output")" -eq 1 ] || { echo "the error is not printed exactly once"; return 1; }
  nothing_left
}

@test "wrong image name" { fails_with registry.test/nosuchimage '\[image-not-found\]$' 'nosuchimage' 'not found|does not exist|unknown'; }
@test "wrong tag" { fails_with registry.test/tiny:nosuchtag '\[image-not-found\]$' 'nosuchtag' 'not found|does not exist|unknown'; }
@test "401 without credentials" {
  snapshot
  run_and_show as bob srun --container-image=auth.test/tiny true
  [ "$status" -ne 0 ]
  grep -Eq 'auth.test' <<<"$output"
  grep -Eq 'hint: .*credentials' <<<"$output"
  nothing_left
}
@test "401 from the registry" { fails_with fault.test/status-401 '\[registry-login\]$' '401|credentials|unauthorized'; }
@test "403" { fails_with fault.test/status-403 '\[registry-login\]$' '403|denied|forbidden'; }
@test "404" { fails_with fault.test/status-404 '\[image-not-found\]$' '404|not found'; }
@test "500" { fails_with fault.test/status-500 '\[registry-busy\]$' '500'; }
@test "a token that is refused" { fails_with token.test/private/tiny '\[registry-login\]$' 'token.test|denied|401'; }
@test "connection refused" { fails_with refused.test/tiny '\[registry-unreachable\]$' 'refused'; }
@test "unknown host" { fails_with unknown.test/tiny '\[registry-unreachable\]$' 'unknown.test' 'resolve'; }
@test "bad certificate" { fails_with badcert.test/tiny '\[registry-certificate\]$' 'certificate'; }
@test "bad digest" { fails_with fault.test/bad-digest '\[image-damaged\]$' 'digest'; }
@test "bad digest of a manifest" { fails_with fault.test/bad-manifest-digest '\[image-damaged\]$' 'digest'; }
@test "truncated blob" { fails_with fault.test/truncated 'truncated|closed|ended|bytes|partial'; }
@test "short blob" { fails_with fault.test/short '\[image-damaged\]$' 'size|bytes|digest'; }
@test "a blob longer than its descriptor says" { fails_with fault.test/wrong-size '\[image-damaged\]$' 'size|bytes|longer'; }
@test "a manifest that is not one" {
  fails_with fault.test/garbage-manifest 'manifest'
  fails_with fault.test/empty-manifest 'manifest'
  fails_with fault.test/huge-manifest 'has 1.0 TiB, the limit is 4.0 MiB'
}
@test "broken images made by the lab" {
  local tag
  for tag in digest truncated garbage missing; do fails_with "registry.test/broken:$tag" 'broken'; done
}
@test "missing mount source" {
  as_alice srun --container-image=registry.test/tiny true
  snapshot
  run_and_show as_alice srun --container-image=registry.test/tiny --container-mounts=/nosuchdir:/x true
  [ "$status" -ne 0 ]
  grep -q '/nosuchdir' <<<"$output"
  grep -q 'hint: ' <<<"$output"
  nothing_left
}
@test "missing image file, and a file that is no image" {
  fails_with /nosuch.sqsh '\[image-not-found\]$' '/nosuch.sqsh' 'No such file'
  echo garbage >/tmp/garbage.sqsh
  fails_with /tmp/garbage.sqsh '\[image-file\]$' 'image /tmp/garbage.sqsh: .*not a squashfs file'
}
@test "a file name without ./ is a file's; one that is almost it is named" {
  as_alice touch /home/alice/image.sqsh
  cd /home/alice
  fails_with image.sqsh 'image image.sqsh: .*not a squashfs file'
  fails_with imagge.sqsh 'open imagge.sqsh: No such file' 'did you mean image.sqsh'
}
@test "full disk" {
  # The node's store on a file system that is too small for the image. Of that a user may have all, or his share might be used up first.
  cp /etc/situla/situla.toml "$BATS_TEST_TMPDIR/before"
  echo 'bytes_per_user = 0' >>/etc/situla/situla.toml
  mount -t tmpfs -o size=1m,mode=0755 small /var/lib/situla
  chown situla: /var/lib/situla
  fails_with registry.test/debian:12 'No space left'
  run find /var/lib/situla -type f -size +0 -not -path "*/grants/*"
  [ -z "$output" ]
  umount /var/lib/situla
  cat "$BATS_TEST_TMPDIR/before" >/etc/situla/situla.toml
}
@test "malformed reference and mounts are refused by srun, before a job is queued" {
  run_and_show as_alice srun --container-image=UPPER/case true
  [ "$status" -ne 0 ]
  if grep -q 'slurmstepd' <<<"$output"; then false; fi
  run_and_show as_alice srun --container-image=registry.test/tiny --container-mounts=relative:/x true
  [ "$status" -ne 0 ]
  if grep -q 'slurmstepd' <<<"$output"; then false; fi
}
