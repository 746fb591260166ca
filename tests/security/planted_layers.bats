# lab: --user root --enroot-conf tests/security/shared_cache.conf
# What can another user plant in an import? Nothing: indexes of layers are one's own, and what is taken from a file is checked.
load ../cluster/helpers

setup() {
  chmod 755 "$BATS_RUN_TMPDIR" "$BATS_SUITE_TMPDIR" "$BATS_FILE_TMPDIR" "${BATS_TEST_TMPDIR%/*}" "$BATS_TEST_TMPDIR"
  rm -rf /var/tmp/shared-cache /var/tmp/shared
  install -d -m 1777 /var/tmp/shared-cache /var/tmp/shared
}

# content IMAGE: its /etc/passwd.
content() { unsquashfs -cat "$1" etc/passwd; }

# replant FROM TO: bytes of a file are changed in place; size and time stay.
replant() {
  python3 - "$@" <<'PYTHON'
import os, sys
path, old, new = sys.argv[1], sys.argv[2].encode(), sys.argv[3].encode()
with open(path, "r+b") as file:
    data = file.read()
    time = os.fstat(file.fileno())
    assert data.count(old) > 0 and len(old) == len(new)
    file.seek(0)
    file.write(data.replace(old, new))
os.utime(path, ns=(time.st_atime_ns, time.st_mtime_ns))
PYTHON
}

# before: alice's /etc/passwd begins root:X:0:0:root:/root:/bin/sh; "imported docker://registry.test/tiny:latest@sha256:(the genuine digest)"
@test "another user plants an index and a file in a cache for all" {
  # Bob imports what alice will, and changes his file; alice's import finds his index.
  run_and_show as bob env ENROOT_SQUASH_OPTIONS='-noI -noD -noF -noX' situla import -o /var/tmp/shared/bob.sqsh docker://registry.test/tiny
  [ "$status" -eq 0 ]
  chmod -R a+rX /var/tmp/shared-cache # as bob can
  replant /var/tmp/shared/bob.sqsh root:x:0 root:X:0
  run_and_show as_alice env ENROOT_SQUASH_OPTIONS='-noI -noD -noF -noX' situla import -o /scratch/alice/alice.sqsh docker://registry.test/tiny
  [ "$status" -eq 0 ]
  content /scratch/alice/alice.sqsh | grep -q '^root:x:0'
}
# before: root:X, too
@test "a file of the user's own in the cache that somebody else can write to" {
  run_and_show as_alice env ENROOT_SQUASH_OPTIONS='-noI -noD -noF -noX' situla import -o /var/tmp/shared/open.sqsh docker://registry.test/tiny
  [ "$status" -eq 0 ]
  replant /var/tmp/shared/open.sqsh root:x:0 root:X:0
  run_and_show as_alice env ENROOT_SQUASH_OPTIONS='-noI -noD -noF -noX' situla import -o /scratch/alice/again.sqsh docker://registry.test/tiny
  [ "$status" -eq 0 ]
  content /scratch/alice/again.sqsh | grep -q '^root:x:0'
}
