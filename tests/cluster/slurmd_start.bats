# lab: --user root
# What slurmd says about its node when it starts; and it starts whatever is wrong.
load helpers

setup_file() {
  cp "$SITULA_LAB_PREFIX/bin/situla" /tmp/situla.good
  cp /etc/slurm/plugstack.conf /tmp/plugstack.good
}

setup() { log=$BATS_TEST_TMPDIR/slurmd.log; }

teardown() {
  install -m 0755 /tmp/situla.good "$SITULA_LAB_PREFIX/bin/situla"
  cp /tmp/plugstack.good /etc/slurm/plugstack.conf
  rm -f /etc/situla/situla.toml
  restart_slurmd
}

is_gone() { ! pgrep -x slurmd; }
answers() { as_alice timeout 5 srun true; }

# Its log is in $log; it is up when it runs a job.
restart_slurmd() {
  pkill -x slurmd || true
  wait_until 30 is_gone
  setsid slurmd -D -N node1 >"$log" 2>&1 </dev/null 3>&- &
  disown
  wait_until 60 answers
  grep situla "$log" || true
}

situla_toml() {
  mkdir -p /etc/situla
  cat >/etc/situla/situla.toml
  chmod 0644 /etc/situla/situla.toml
}

@test "slurmd logs one line with version and tier" {
  grep -Eq 'situla: [0-9]+\.[0-9]+\.[0-9]+: images by kernel mount$' "$SITULA_LAB/logs/node1.log"
  [ "$(grep -c 'situla' "$SITULA_LAB/logs/node1.log")" -eq 1 ]
}

@test "a tier that is not the best comes with the reason" {
  situla_toml <<<'mount = "fuse"'
  restart_slurmd
  grep -q 'situla: .*: images by FUSE (mount = "fuse" in /etc/situla/situla.toml)$' "$log"
  rm /etc/situla/situla.toml
  sed -i 's/spank_situla.so.*/& use_squashfuse=1/' /etc/slurm/plugstack.conf
  restart_slurmd
  grep -q 'situla: .*: images by FUSE (use_squashfuse=1 in plugstack.conf)$' "$log"
}

@test "a mistake in situla.toml is an error in the log, with its line and what was meant" {
  situla_toml <<<$'# ours\nmuont = "auto"'
  restart_slurmd
  grep -q 'error: situla: site-configuration: /etc/situla/situla.toml:2: unknown key "muont"; fix: did you mean "mount"?' "$log"
  run_and_show as_alice srun --container-image=registry.test/tiny true
  [ "$status" -ne 0 ]
  grep -q 'situla.toml:2: unknown key "muont"' <<<"$output"
}

@test "a mistake in plugstack.conf is an error in the log; slurmd starts, and srun says it, too" {
  sed -i 's/spank_situla.so.*/& contaner_scope=job/' /etc/slurm/plugstack.conf
  pkill -x slurmd
  wait_until 30 is_gone
  setsid slurmd -D -N node1 >"$log" 2>&1 </dev/null 3>&- &
  disown
  wait_until 20 grep -q "error: situla: plugstack.conf: unknown key 'contaner_scope'" "$log"
  wait_until 30 grep -q 'slurmd started' "$log"
  grep -q 'error: situla: hint: did you mean "container_scope"?' "$log"
  run_and_show as_alice srun true
  [ "$status" -ne 0 ]
  grep -q "unknown key 'contaner_scope'" <<<"$output"
}

@test "a store that others can write to is an error in the log" {
  chmod o+w /var/lib/situla
  restart_slurmd
  chmod o-w /var/lib/situla
  grep -q 'error: situla: store: /var/lib/situla can be entered by others' "$log"
}

@test "the program that examines the node is missing, crashes, or hangs: slurmd starts" {
  rm "$SITULA_LAB_PREFIX/bin/situla"
  restart_slurmd
  grep -q 'error: situla: .*bin/situla: No such file' "$log"
  printf '#!/bin/sh\nkill -SEGV $$\n' >"$SITULA_LAB_PREFIX/bin/situla"
  chmod 0755 "$SITULA_LAB_PREFIX/bin/situla"
  restart_slurmd
  grep -q 'error: situla: examine this node: .*SIGSEGV' "$log"
  printf '#!/bin/sh\nsleep 1004 & sleep 1005\n' >"$SITULA_LAB_PREFIX/bin/situla"
  restart_slurmd
  grep -q 'error: situla: examine this node: .* takes longer than 5 s' "$log"
  if pgrep -f 'sleep 100[45]'; then false; fi
  run_and_show as_alice srun --container-image=registry.test/tiny cat hello.txt
  [ "$status" -eq 0 ]
}
