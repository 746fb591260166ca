# lab: --nodes 3 --user root --slurm-conf SchedulerParameters=bf_interval=1,sched_interval=1
# Heterogeneous jobs. Slurm gives the last part's options of a plugin to all parts of one srun; here each has those it was given, and the rest
# from the parts before.
load helpers

@test "the parts of a heterogeneous job have their containers" {
  cat >/home/alice/parts.sh <<'SCRIPT'
#!/bin/sh
#SBATCH -n1
#SBATCH hetjob
#SBATCH -n2
srun --container-image=registry.test/tiny sh -c 'echo "one:$GREETING:$SLURM_PROCID"' : sh -c 'echo "one:$GREETING:$SLURM_PROCID"'
srun --het-group=0 --container-image=registry.test/tiny sh -c 'echo "first:$GREETING"' &
srun --het-group=1 --container-image=registry.test/debian:12 sh -c '. /etc/os-release; echo "second:$ID:$SLURM_PROCID"' &
wait
SCRIPT
  as_alice timeout 120 "$lab_tests/submit" -o /shared/parts.out /home/alice/parts.sh
  cat /shared/parts.out
  grep -E '^(one|first|second):' /shared/parts.out | sort >"$BATS_TEST_TMPDIR/found"
  diff - "$BATS_TEST_TMPDIR/found" <<'TEXT'
first:hello
one:hello:0
one:hello:1
one:hello:2
second:debian:0
second:debian:1
TEXT
}

parts() { run_and_show as_alice timeout 100 srun -Q "$@"; }
said() { grep -E '^[a-z]+:' <<<"$output" | grep -v -e '^situla: ' -e '^srun: ' | sort; }

@test "one srun with two images: each part has its own, also in a job, with mounts, names of variables and directories" {
  cd /home/alice
  parts -n1 --container-image=registry.test/tiny sh -c 'echo one:$(cat /etc/arch)' : -n1 --container-image=registry.test/debian:12 sh -c '. /etc/os-release; echo two:$ID'
  [ "$(said)" = $'one:amd64\ntwo:debian' ]
  mkdir -p /shared/{a,b,c}
  # shellcheck disable=SC2016
  tell='echo $0:$(ls -d /a /b /c /d 2>/dev/null | tr -d "\n"):$(pwd):$(env | grep -c -e PARTS -e MONITOR)'
  parts -n1 --container-image=registry.test/tiny --container-mounts=/shared/a:/a --container-mounts=/shared/b:/b --container-workdir=/srv sh -c "$tell" one : \
    -n1 --container-mounts=/shared/c:/c sh -c "$tell" two : -n1 --container-image=registry.test/debian:12 --container-workdir=/opt sh -c "$tell" three
  [ "$(said)" = $'one:/a/b:/srv:0\nthree:/c:/opt:0\ntwo:/c:/srv:0' ]
  # What all have in common, as before.
  parts -n1 --container-image=registry.test/tiny --container-mounts=/shared/a:/a --container-mounts=/shared/b:/b sh -c "$tell" one : -n1 sh -c "$tell" two
  [ "$(said)" = $'one:/a/b:/srv:0\ntwo:/a/b:/srv:0' ]
  parts -n1 --container-image=registry.test/tiny sh -c 'echo one:$(cat /etc/arch)' : -n1 --no-container sh -c 'echo two:$(ls -d /shared):$(env | grep -c -e PARTS -e MONITOR)' :\
    -n1 sh -c 'echo three:$(cat /etc/arch)'
  [ "$(said)" = $'one:amd64\nthree:amd64\ntwo:/shared:0' ]
  run_and_show as_alice timeout 100 salloc -Q -n1 : -n1 srun --het-group=0 --container-image=registry.test/tiny sh -c 'echo one:$(cat /etc/arch)' : --het-group=1 --container-image=registry.test/debian:12 \
    sh -c '. /etc/os-release; echo two:$ID'
  [ "$(said)" = $'one:amd64\ntwo:debian' ]
  parts --export=NONE -n1 --container-image=registry.test/tiny sh -c 'echo one:$(cat /etc/arch)' : --export=NONE -n1 --container-image=registry.test/debian:12 sh -c '. /etc/os-release; echo two:$ID'
  [ "$(said)" = $'one:amd64\ntwo:debian' ]
}

@test "what the job was given is each part's, and counts for none of them as its own" {
  # shellcheck disable=SC2016
  tell='echo $0:$(ls -d /a /b /c 2>/dev/null | tr -d "\n")'
  mkdir -p /shared/{a,b,c}
  run_and_show as_alice timeout 100 salloc -Q --container-mounts=/shared/a:/a --container-mounts=/shared/b:/b -n1 : -n1 sh -c '
    tell=$0
    srun --het-group=0,1 --container-image=registry.test/tiny sh -c "$tell" all
    srun --het-group=0 --container-image=registry.test/tiny sh -c "$tell" one : --het-group=1 --container-image=registry.test/debian:12 sh -c "$tell" two
    srun --het-group=0-1 --container-image=registry.test/tiny --container-mounts=/shared/c:/c sh -c "$tell" more
    srun --container-image=registry.test/tiny --container-mounts=/shared/c:/c sh -c "$tell" same : --het-group=1 --container-image=registry.test/tiny sh -c "$tell" same
    srun --container-image=registry.test/tiny sh -c "$tell" first : --het-group=1 --container-image=registry.test/debian:12 sh -c "$tell" second' "$tell"
  [ "$(said | uniq -c | tr -s ' ')" = $' 2 all:/a/b\n 2 more:/a/b/c\n 1 one:/a/b\n 2 same:/a/b/c\n 1 two:/a/b' ]
  # Slurm gives the first part group 0 then, which is not said: refused, as it cannot be seen.
  [[ "$output" == *"--het-group: parts with containers of their own have to be for 0, 1 and so on"* ]]
}

@test "two environment files in one srun" {
  mkdir -p /home/alice/.edf
  printf 'image = "registry.test/tiny"\nworkdir = "/srv"\n[env]\nMINE = "first"\n' >/home/alice/.edf/first.toml
  printf 'image = "registry.test/debian:12"\nworkdir = "/opt"\n[env]\nMINE = "second"\n' >/home/alice/.edf/second.toml
  chown -R alice: /home/alice/.edf
  parts -n1 --environment=first sh -c 'echo one:$(pwd):$MINE' : -n1 --environment=second sh -c 'echo two:$(pwd):$MINE' : -n1 --environment=first --container-workdir=/etc sh -c 'echo three:$(pwd):$MINE'
  [ "$(said)" = $'one:/srv:first\nthree:/etc:first\ntwo:/opt:second' ]
}

@test "wrong parts: said by srun, before there is a step" {
  parts --container-image=registry.test/tiny --container-image=registry.test/debian:12 true : true
  [ "$status" -ne 0 ]
  [[ "$output" == *"--container-image: specified multiple times"* ]]
  parts --container-image=registry.test/tiny true : --container-image=registry.test/tiny --container-mounts=/a:/b:no-such true
  [ "$status" -ne 0 ]
  [[ "$output" == *"srun: error: situla: --container-mounts"* ]]
  run_and_show as_alice salloc -Q -n1 : -n1 srun --het-group=1 --container-image=registry.test/tiny true : --het-group=0 --container-image=registry.test/debian:12 true
  [ "$status" -ne 0 ]
  [[ "$output" == *"--het-group: parts with containers of their own have to be for 0, 1 and so on"* ]]
}
