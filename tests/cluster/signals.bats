# lab: --proctrack cgroup
# Signals for the user's program reach everything in the step's cgroup: what serves the container does not mind. As alice, on a node.
load helpers

setup() { cd "$HOME"; }

# signalled OPTION...: USR1 and HUP go to a step whose program catches them; its container still works afterwards.
signalled() {
  rm -f out
  srun "$@" sh -c 'numbers=$(seq 600); trap "echo got usr1; usr1=1" USR1; trap "echo got hup; hup=1" HUP; echo started
    for i in $numbers; do [ "$usr1$hup" != 11 ] || break; sleep 0.1; done; cat /etc/os-release /srv/hello.txt' >out 2>&1 3>&- &
  wait_until 30 grep -q started out
  scancel -s USR1 -u alice
  scancel -s HUP -u alice
  status=0
  wait %% || status=$?
  cat out
  [ "$status" -eq 0 ]
  grep -q 'got usr1' out
  grep -q 'got hup' out
  grep -q 'tiny test image' out
}

@test "an image that the kernel mounts, one by FUSE, a named container, writable, with processes of its own" {
  situla import -o signals.sqsh docker://registry.test#tiny
  signalled --container-image=registry.test/tiny
  signalled --container-image=./signals.sqsh
  signalled --container-writable --container-image=./signals.sqsh
  signalled --container-name=signals --container-image=./signals.sqsh
  signalled --container-unshare=pid --container-image=registry.test/tiny
  enroot remove -f pyxis_signals
  rm signals.sqsh
}
