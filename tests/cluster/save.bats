# lab: --name one-node
# lab: --name two-nodes --nodes 2
# --container-save: of every kind of container, what is in the file, and where it may be written. As alice, on a node.
load helpers

tiny=registry.test/tiny

setup_file() { situla import -o "$BATS_FILE_TMPDIR/tiny.sqsh" docker://registry.test#tiny; }

setup() {
  work=$(mktemp -d "$HOME/save.XXXXXX")
  cd "$work"
  cp "$BATS_FILE_TMPDIR/tiny.sqsh" .
  enroot remove -f pyxis_x 2>/dev/null || true
}

teardown() {
  scancel -u alice 2>/dev/null || true
  wait 2>/dev/null || true
  cd /
  chmod -R u+rwX "$work"
  rm -rf "$work"
}

# content FILE NAME: of a file in a squashfs file.
content() { unsquashfs -cat "$1" "$2"; }
# line_of FILE NAME: as unsquashfs -lln shows it: mode, owner, size, date, path.
line_of() { unsquashfs -lln "$1" | grep -E " squashfs-root/$2( -> .*)?\$"; }
has() { line_of "$1" "$2" >/dev/null; }

# changed_and_saved OPTION...: the container is changed and saved to saved.sqsh, which holds the changes and the image.
changed_and_saved() {
  rm -f saved.sqsh
  run_and_show srun "$@" --container-writable --container-save=saved.sqsh sh -c 'echo new >/new && rm /bin/vi && echo changed >/srv/hello.txt'
  [ "$status" -eq 0 ]
  [[ "$output" == *"exported container "*" to saved.sqsh"* ]]
  [ "$(content saved.sqsh new)" = new ]
  [ "$(content saved.sqsh srv/hello.txt)" = changed ]
  if has saved.sqsh bin/vi; then false; fi
  has saved.sqsh bin/busybox
}

# bats file_tags=lab:one-node

@test "an unnamed container is saved, from a registry and from a file" {
  changed_and_saved --container-image=$tiny
  changed_and_saved --container-image=./tiny.sqsh
}

@test "a named container is saved, of both kinds, new and existing" {
  changed_and_saved --container-name=x --container-image=$tiny
  grep -qx 'situla: exported container x to saved.sqsh' <<<"$output"
  rm saved.sqsh
  run_and_show srun --container-name=x --container-save=saved.sqsh true
  [ "$(content saved.sqsh new)" = new ]
  enroot remove -f pyxis_x
  SITULA_CREATE=tree changed_and_saved --container-name=x --container-image=./tiny.sqsh
  [ -x ~/.local/share/enroot/pyxis_x/bin/busybox ]
  run_and_show srun --container-name=x --container-save=saved.sqsh true
  [ "$status" -eq 0 ]
  [ "$(content saved.sqsh new)" = new ]
  if has saved.sqsh bin/vi; then false; fi
}

@test "a container that another step runs is saved" {
  salloc -Q -n4 bash -c '
    srun --overlap -n1 --container-writable --container-name=x --container-image=registry.test/tiny \
      sh -c "echo first >/first; echo started; until [ -e /done ]; do sleep 0.1; done" >out 2>&1 &
    until grep -q started out; do sleep 0.1; done
    srun --overlap -n1 --container-name=x --container-save=saved.sqsh sh -c "echo second >/second" >second 2>&1
    echo "=> $?" >>second
    srun --overlap -n1 --container-name=x touch /done
    wait'
  cat second
  grep -qx '=> 0' second
  [ "$(content saved.sqsh first)" = first ]
  [ "$(content saved.sqsh second)" = second ]
}

@test "what is in the file: owners, modes, links, times, types; and it runs" {
  run_and_show srun --container-writable --container-image=$tiny --container-save=saved.sqsh sh -c '
    mkdir /d && chmod 1770 /d && echo secret >/d/f && chmod 0640 /d/f && ln /d/f /d/g && ln -s f /d/s && mkfifo /d/p
    : >/d/empty && touch -d @1000000000 /d/f && chmod 0700 /srv && rm -r /usr/bin && mkdir /usr/bin && : >/usr/bin/only && mv /bin/wc /bin/counter'
  [ "$status" -eq 0 ]
  unsquashfs -lln saved.sqsh | grep -E ' squashfs-root/(d|srv|usr)' || true
  [[ "$(line_of saved.sqsh d)" == 'drwxrwx--T 0/0 '* ]]
  [[ "$(line_of saved.sqsh d/f)" == '-rw-r----- 0/0 '*' 7 2001-09-09 '* ]]
  [[ "$(line_of saved.sqsh d/s)" == lrwxrwxrwx*' -> f' ]]
  [[ "$(line_of saved.sqsh d/p)" == p* ]]
  [[ "$(line_of saved.sqsh srv)" == 'drwx------ 0/0 '* ]]
  # Nothing but root's, and of an emptied directory nothing shines through.
  if unsquashfs -lln saved.sqsh | grep squashfs-root | grep -v ' 0/0 '; then false; fi
  [ "$(unsquashfs -l saved.sqsh | grep squashfs-root/usr/bin/)" = squashfs-root/usr/bin/only ]
  has saved.sqsh bin/counter
  if has saved.sqsh bin/wc; then false; fi
  unsquashfs -q -n -d tree saved.sqsh
  [ "$(stat -c %i tree/d/f)" = "$(stat -c %i tree/d/g)" ]
  run_and_show srun --container-image=./saved.sqsh sh -c 'cat /d/g; echo $GREETING; pwd'
  [ "$status" -eq 0 ]
  grep -qx secret <<<"$output"
  grep -qx hello <<<"$output"
  grep -qx /srv <<<"$output"
}

@test "what was mounted is not in the file" {
  echo outside >outside
  run_and_show srun --container-writable --container-image=$tiny --container-mount-home --container-save=saved.sqsh \
    --container-mounts="$PWD/outside:/inside,tmpfs:/scratch" sh -c 'cat /inside && echo x >/scratch/x && echo y >/tmp/y'
  [ "$status" -eq 0 ]
  if has saved.sqsh scratch/x || has saved.sqsh tmp/y; then false; fi
  [ "$(content saved.sqsh inside 2>/dev/null)" = "" ]
}

@test "a container is saved onto the image that it started from, while somebody reads that" {
  exec 4<tiny.sqsh
  old=$(sha256sum <tiny.sqsh)
  run_and_show srun --container-writable --container-image=./tiny.sqsh --container-save=./tiny.sqsh sh -c 'echo one >/one'
  [ "$status" -eq 0 ]
  [ "$(content tiny.sqsh one)" = one ]
  [ "$(sha256sum <&4)" = "$old" ]
  exec 4<&-
  run_and_show srun --container-writable --container-image=./tiny.sqsh --container-save=tiny.sqsh sh -c 'cat /one; echo two >/two'
  [ "$status" -eq 0 ]
  [ "$(content tiny.sqsh two)" = two ]
  [ "$(content tiny.sqsh one)" = one ]
  [ "$(ls -A)" = tiny.sqsh ]
}

@test "paths relative to the job's directory, with blanks and letters of all kinds, through a link" {
  mkdir sub 'a b'
  (cd sub && srun --container-image=$tiny --container-save=here.sqsh true)
  has sub/here.sqsh bin/busybox
  srun --chdir="$work/sub" --container-image=$tiny --container-save=../there.sqsh true
  has there.sqsh bin/busybox
  srun --container-image=$tiny --container-save='a b/ü ,:$x.sqsh' true
  has 'a b/ü ,:$x.sqsh' bin/busybox
  ln -s sub linked
  srun --container-image=$tiny --container-save="$work/linked/abs.sqsh" true
  has sub/abs.sqsh bin/busybox
}

# refused PATH MESSAGE...: before the tasks start, and nothing is written.
refused() {
  run_and_show srun --container-image=$tiny --container-save="$1" echo the task ran
  [ "$status" -ne 0 ]
  shift
  for message; do grep -Fq -- "$message" <<<"$output"; done
  if grep -q 'the task ran' <<<"$output"; then false; fi
}

@test "a path that cannot be written is an error before the tasks start" {
  mkdir sub locked
  chmod 500 locked
  refused missing/x.sqsh '--container-save missing/x.sqsh: No such file or directory' 'its directory must exist on the node'
  refused locked/x.sqsh '--container-save locked/x.sqsh: Permission denied'
  refused /etc/x.sqsh '--container-save /etc/x.sqsh: Permission denied'
  refused tiny.sqsh/x.sqsh '--container-save tiny.sqsh/x.sqsh: Not a directory'
  refused sub '--container-save sub is not a regular file'
  refused /dev/null '--container-save /dev/null is not a regular file'
  # Known on the client.
  refused sub/ 'sub/ is not the name of a file'
  refused '' '--container-save: needs a value'
  [ -z "$(find "$work" -name '*.sqsh' ! -name tiny.sqsh)" ]
}

@test "nothing is saved unless all tasks started" {
  run_and_show srun -n2 --container-image=$tiny --container-save=x.sqsh --container-workdir=/nowhere true
  [ "$status" -ne 0 ]
  [ ! -e x.sqsh ]
  run_and_show srun --container-image=registry.test/none --container-save=x.sqsh true
  [ ! -e x.sqsh ]
}

@test "tasks that failed are saved, too, and the file is there when srun returns" {
  run_and_show srun -n3 --container-writable --container-image=$tiny --container-save=x.sqsh sh -c 'echo $SLURM_PROCID >/rank$SLURM_PROCID; exit $SLURM_PROCID'
  [ "$status" -eq 2 ]
  for rank in 0 1 2; do [ "$(content x.sqsh rank$rank)" = $rank ]; done
  [ "$(grep -c 'exported container' <<<"$output")" -eq 1 ]
}

@test "sbatch saves the container of its script, a later job runs it" {
  printf '#!/bin/sh\n#SBATCH --container-image=%s --container-writable\n#SBATCH --container-save=job.sqsh\necho from the job >/note\n' $tiny >job.sh
  "$lab_tests/submit" -o out job.sh
  cat out
  wait_until 30 test -e job.sqsh
  run_and_show srun --container-image=./job.sqsh cat /note
  [ "${lines[-1]}" = 'from the job' ]
}

@test "a read-only container is saved as it is" {
  run_and_show srun --container-readonly --container-image=./tiny.sqsh --container-save=x.sqsh true
  [ "$status" -eq 0 ]
  [ "$(unsquashfs -l x.sqsh | grep -c bin/)" -eq "$(unsquashfs -l tiny.sqsh | grep -c bin/)" ]
  [ "$(content x.sqsh etc/rc)" = "$(content tiny.sqsh etc/rc)" ]
  [ "$(content x.sqsh etc/os-release)" = "$(content tiny.sqsh etc/os-release)" ]
}

# bats file_tags=lab:two-nodes

on_each_node() { srun -N2 --ntasks-per-node=1 "$@"; }

@test "each node saves, and it is said once that they share a path" {
  run_and_show srun -N2 -n4 --container-writable --container-image=registry.test/tiny --container-save=/tmp/situla-saved.sqsh \
    sh -c '[ $SLURM_LOCALID != 0 ] || echo "from node $SLURM_NODEID" >/which'
  [ "$status" -eq 0 ]
  [ "$(grep -c 'each of the 2 nodes saves its container there' <<<"$output")" -eq 1 ]
  [ "$(grep -c 'exported container' <<<"$output")" -eq 2 ]
  run_and_show on_each_node --container-image=/tmp/situla-saved.sqsh cat /which
  [ "$status" -eq 0 ]
  grep -qx 'from node 0' <<<"$output"
  grep -qx 'from node 1' <<<"$output"
  on_each_node rm /tmp/situla-saved.sqsh
}

@test "two nodes save onto a shared path: the file is one of theirs, whole" {
  run_and_show srun -N2 --container-writable --container-image=registry.test/tiny --container-save=shared.sqsh sh -c 'echo "node $SLURM_NODEID" >/which'
  [ "$status" -eq 0 ]
  [[ "$(unsquashfs -cat shared.sqsh which)" == 'node '[01] ]]
  [ -z "$(find . -name '.situla*')" ]
}

@test "a node that cannot save says so, the other one saves" {
  srun -N1 -n1 -w node2 mkdir -m 500 /tmp/situla-only
  mkdir /tmp/situla-only
  run_and_show srun -N2 --container-image=registry.test/tiny --container-save=/tmp/situla-only/x.sqsh true
  [ "$status" -ne 0 ]
  [[ "$output" == *'error: situla: node2: --container-save /tmp/situla-only/x.sqsh: Permission denied'* ]]
  on_each_node sh -c 'rm -rf /tmp/situla-only'
}
