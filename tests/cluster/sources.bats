# lab: --user root --situla-conf tests/cluster/no_idle.toml
# Images in files in --container-image: imported as the job's user, where the job runs, and nothing of it stays.
bats_require_minimum_version 1.5.0

load helpers

setup_file() {
  as_alice mkdir -p /home/alice/images /home/alice/elsewhere
  cd /home/alice/images
  local image=oci:$SITULA_LAB_IMAGES/debian:12
  as_alice skopeo copy -q "$image" oci:layout:12
  as_alice skopeo copy -q "$image" oci-archive:oci.tar:12
  as_alice skopeo copy -q "$image" docker-archive:docker.tar:debian:12
  as_alice skopeo copy -q "$image" dir:dir
  as_alice skopeo copy -q "oci:$SITULA_LAB_IMAGES/tiny:latest" oci:several:a
  as_alice skopeo copy -q "oci:$SITULA_LAB_IMAGES/weird:latest" oci:several:b
  as_alice truncate -s 300000 docker.tar.part
  head -c 300000 docker.tar >docker.tar.part
  as_alice cp -a layout damaged
  local largest
  largest=$(find damaged/blobs -type f -printf '%s %p\n' | sort -n | tail -n 1 | cut -d ' ' -f 2)
  "$lab_tests/../support/damage" "$largest" 5000
  install -m 600 docker.tar /home/alice/images/roots.tar
}

setup() { cd /home/alice/images; }

teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
}

pretty='PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"'

# runs IMAGE [OPTION...]: the image's own content, and nothing left.
runs() {
  snapshot
  run_and_show as_alice srun "${@:2}" --container-image="$1" grep PRETTY /etc/os-release
  [ "$status" -eq 0 ]
  [[ "$output" == *"$pretty"* ]]
  nothing_left
}

# refused IMAGE PATTERN...: one error with its hint, a failing srun, nothing left.
refused() {
  local pattern
  snapshot
  run_and_show as_alice timeout 60 srun --container-image="$1" true
  [ "$status" -ne 0 ]
  [ "$status" -ne 124 ]
  for pattern in "failed to import docker image: $1" 'hint: ' "${@:2}"; do
    grep -Fq -- "$pattern" <<<"$output" || { echo "no line has: $pattern"; return 1; }
  done
  [ "$(grep -c 'failed to import docker image' <<<"$output")" -eq 1 ]
  nothing_left
}

@test "images in files of every kind, by absolute path" {
  local image
  for image in oci:/home/alice/images/layout oci:/home/alice/images/layout:12 oci-archive:/home/alice/images/oci.tar \
    docker-archive:/home/alice/images/docker.tar docker-archive:/home/alice/images/docker.tar:debian:12 dir:/home/alice/images/dir; do
    runs "$image"
  done
}

@test "relative paths of images begin in the job's working directory" {
  runs oci:layout
  runs dir:./dir
  runs docker-archive:docker.tar --chdir=/home/alice/images
  runs oci-archive:../images/oci.tar --chdir=/home/alice/elsewhere
  cd /
  runs docker-archive:docker.tar --chdir=/home/alice/images
  refused docker-archive:docker.tar 'open docker.tar: No such file or directory' 'it was looked for on node1, in /'
}

@test "an image in a file in a batch job, and by a variable" {
  printf '#!/bin/sh\n#SBATCH --container-image=oci-archive:oci.tar -o out\ngrep PRETTY /etc/os-release\n' >script
  rm -f out
  run_and_show as_alice "$lab_tests/submit" script
  cat out
  [ "$status" -eq 0 ]
  [[ "$(<out)" == *"$pretty"* ]]
  run_and_show as_alice env PYXIS_CONTAINER_IMAGE=oci:layout:12 srun grep PRETTY /etc/os-release
  [ "$status" -eq 0 ]
  [[ "$output" == *"$pretty"* ]]
}

@test "two tasks: one import, the messages once" {
  snapshot
  run_and_show as_alice srun -n2 --container-image=oci:layout:12 grep -c PRETTY /etc/os-release
  [ "$status" -eq 0 ]
  [ "$(sort <<<"$output")" = $'1\n1\nsitula: imported docker image: oci:layout:12\nsitula: importing docker image: oci:layout:12' ]
  nothing_left
}

@test "an image in a file, writable, and with a mount beside it" {
  snapshot
  run_and_show as_alice srun --container-image=oci:layout --container-writable --container-mounts=/home/alice/images:/i \
    sh -c 'echo x >/etc/new && cat /etc/new && ls /i/docker.tar'
  [ "$status" -eq 0 ]
  [[ "$output" == *x*/i/docker.tar* ]]
  nothing_left
}

@test "the store of the node does not get an image in a file" {
  local before
  before=$(find /var/lib/situla | sort)
  as_alice srun --container-image=docker-archive:docker.tar true
  [ "$(find /var/lib/situla | sort)" = "$before" ]
}

# Neither root nor the service user: what alice alone may read works, what she may not read does not, whoever else may.
@test "an image in a file is read as the job's user" {
  chmod 700 /home/alice/images
  runs oci:layout
  refused docker-archive:roots.tar 'open roots.tar: Permission denied' 'rights of uid'
  chown situla: roots.tar
  refused docker-archive:roots.tar 'open roots.tar: Permission denied' 'rights of uid'
  chmod 755 /home/alice/images
}

@test "errors of images in files" {
  refused oci:/nosuchdir 'open /nosuchdir: No such file or directory' 'looked for on node1'
  refused docker-archive:nosuch.tar 'open nosuch.tar: No such file or directory'
  refused oci:layout:nosuchtag "no image has the tag 'nosuchtag'" 'oci:layout:12'
  refused oci:several 'several images' 'oci:several:a, oci:several:b'
  refused docker-archive:docker.tar:other:1 'there is no image other:1' 'debian:12'
  refused docker-archive:docker.tar.part 'cut short'
  refused oci:damaged 'layer 1 of 1'
  refused dir:layout 'manifest.json' 'oci:PATH'
  refused docker-archive:layout 'not a regular file' 'oci:DIR'
  refused oci:docker.tar 'Not a directory' 'docker-archive:FILE'
}

@test "a registry's schema 1 manifest" {
  refused_by_registry() {
    run_and_show as_alice "$@"
    [ "$status" -ne 0 ]
    grep -Fq 'failed to import docker image: fault.test/schema1: manifest: Docker schema 1 is not supported' <<<"$output"
    grep -Fq 'skopeo copy --format v2s2' <<<"$output"
  }
  refused_by_registry srun --container-image=fault.test/schema1 true
  refused_by_registry situla import -o /home/alice/x.sqsh docker://fault.test/schema1
  [ ! -e /home/alice/x.sqsh ]
}

@test "errors of images that are known before the job is queued" {
  run_and_show as_alice srun --container-image=oci: true
  [ "$status" -ne 0 ]
  grep -Fq "invalid image reference 'oci:': no path" <<<"$output"
  run_and_show as_alice srun --container-image=dockerd://-x true
  [ "$status" -ne 0 ]
  grep -Fq "'-x' is not the name of an image" <<<"$output"
  run as_alice squeue -h -t pending,configuring,running
  [ "$output" = "" ]
}

builder_imports() { [ -n "$(pgrep -f '^(/[^ ]*/)?situla-importer user [0-9.]+$')" ]; }

# cancelled SIGNAL: scancel while alice's process reads the image, which takes long: xz, with one thread.
cancelled() {
  local srun_pid pid
  snapshot
  ENROOT_SQUASH_OPTIONS='-comp xz' ENROOT_MAX_PROCESSORS=1 as_alice srun -n2 --container-image=oci:layout sleep 300 >"$BATS_TEST_TMPDIR/out" 2>&1 3>&- &
  srun_pid=$!
  wait_until 30 builder_imports
  pid=$(pgrep -f '^(/[^ ]*/)?situla-importer user [0-9.]+$')
  kill "-$1" "$pid"
  [ "$(stat -c %U "/proc/$pid")" = alice ]
  as_alice scancel -u alice
  wait_until 30 sh -c "! kill -0 $srun_pid 2>/dev/null"
  status=0
  wait "$srun_pid" || status=$?
  cat "$BATS_TEST_TMPDIR/out"
  [ "$status" -ne 0 ]
  if grep -q 'imported docker image' "$BATS_TEST_TMPDIR/out"; then false; fi
  nothing_left
}

@test "scancel during the import ends it, and nothing is left" { cancelled CONT; }
@test "scancel during an import that hangs kills it, and nothing is left" { cancelled STOP; }

@test "an image for another processor: its programs cannot be run, and the hint says why" {
  rm -rf foreign && mkdir -p foreign/bin foreign/etc foreign/proc foreign/dev foreign/sys foreign/tmp
  # The head of a program for AArch64.
  printf '\177ELF\2\1\1\0\0\0\0\0\0\0\0\0\2\0\267\0\1\0\0\0' >foreign/bin/sh
  head -c 200 /dev/zero >>foreign/bin/sh
  chmod 755 foreign/bin/sh
  as_alice mksquashfs foreign foreign.sqsh -quiet -no-progress -noappend
  run_and_show as_alice srun --container-image=./foreign.sqsh /bin/sh -c true
  rm -rf foreign foreign.sqsh
  [ "$status" -ne 0 ]
  [[ "$output" == *"Exec format error"*"hint: the image may be for another processor than this node's ($(uname -m))"* ]]
}
