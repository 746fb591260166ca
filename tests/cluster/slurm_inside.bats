# lab: --name linuxproc --user root --nodes 2
# lab: --name cgroup --user root --nodes 2 --proctrack cgroup
# srun, sbatch, salloc and the like in images that have nothing of Slurm: busybox, one without a shell, Debian. /shared is the host's
# on both nodes, and /home/alice as well.
load helpers

tiny=--container-image=registry.test/tiny

setup_file() {
  # One program, and a directory to begin in: neither a shell nor a library.
  mkdir -p /shared/root/{etc,proc,sys,dev,tmp,var,run,bin}
  for program in hostname cat false sleep; do cp /bin/busybox "/shared/root/bin/$program"; done
  mksquashfs /shared/root /shared/bare.sqsh -quiet -no-progress -all-root >/dev/null
  chmod 644 /shared/bare.sqsh
  as_alice srun -Q -N2 --ntasks-per-node=1 "$tiny" true
  as_alice srun -Q -N2 --ntasks-per-node=1 --container-image=registry.test/debian:12 true
}

setup() { cd /home/alice; }

teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
  wait_until 60 sh -c '[ -z "$(squeue -h -u alice)" ]'
}

# In a job of both nodes: one task in a container, on node1.
inside() {
  run --separate-stderr as_alice timeout 100 salloc -Q -N2 srun -N1 -n1 -w node1 --chdir=/home/alice "$@"
  printf 'status %s\n%s\n--\n%s\n' "$status" "$stderr" "$output"
}

# The lines on standard output, in any order.
prints() {
  [ "$status" -eq 0 ]
  [ "$(sort <<<"$output")" = "$1" ]
}

@test "srun on two nodes in busybox, in an image without a shell, and in Debian" {
  inside "$tiny" srun -N2 -n2 hostname
  prints $'node1\nnode2'
  inside --container-image=/shared/bare.sqsh srun -N2 -n2 /bin/hostname
  prints $'node1\nnode2'
  inside --container-image=registry.test/debian:12 sh -c 'srun -N2 -n2 hostname'
  prints $'node1\nnode2'
}

@test "srun's tasks are in the same container: image, mounts, directory and variables; or in another, or on the host" {
  mkdir -p /shared/data && echo of the host >/shared/data/file
  inside "$tiny" --container-mounts=/shared/data:/data sh -c '
    cd /data && export MINE="a b" LD_LIBRARY_PATH=/nowhere PATH="/opt/mine:$PATH" EMPTY= HOME=/srv && unset GREETING
    srun -N2 -n2 sh -c "echo \$(pwd) \$(cat file) \$(cat /etc/arch) \$MINE \$LD_LIBRARY_PATH \$HOME \${GREETING-none} \${EMPTY-unset} \$PATH; env | grep SITULA_KEPT || true"'
  prints "/data of the host amd64 a b /nowhere /srv none /var/run/situla/slurm:/opt/mine:/var/run/situla/slurm:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
/data of the host amd64 a b /nowhere /srv none /var/run/situla/slurm:/opt/mine:/var/run/situla/slurm:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
  inside "$tiny" srun --container-mounts=/shared/data:/more sh -c 'cat /more/file /etc/arch'
  prints $'amd64\nof the host'
  inside "$tiny" srun --container-image=registry.test/debian:12 sh -c '. /etc/os-release; echo $ID'
  prints debian
  # As a variable it is another image, too, and not that of the digest of this one.
  inside "$tiny" sh -c 'PYXIS_CONTAINER_IMAGE=registry.test/debian:12 srun sh -c ". /etc/os-release; echo \$ID"'
  prints debian
  inside "$tiny" sh -c 'export LD_LIBRARY_PATH=/nowhere; srun --no-container sh -c "ls -d /shared/data; echo \$HOME; env | grep -c -e SITULA_S -e SITULA_KEPT -e LD_LIBRARY"'
  [ "$output" = $'/shared/data\n/home/alice\n0' ]
  inside "$tiny" sh -c 'export LD_LIBRARY_PATH=/nowhere MINE=1; srun --container-image=registry.test/debian:12 sh -c "echo \$MINE \${LD_LIBRARY_PATH-none}"; srun --export=ALL,OTHER=2 sh -c "echo \$OTHER \$LD_LIBRARY_PATH"; srun --export=MINE sh -c "echo \$MINE \${LD_LIBRARY_PATH-none} \$GREETING"'
  [ "$output" = $'1 none\n2 /nowhere\n1 none hello' ]
  inside "$tiny" --container-remap-root srun -N2 -n2 sh -c 'id -u'
  prints $'0\n0'
}

@test "root inside with a home directory, relative mounts and ~ are what they were" {
  mkdir -p /home/alice/mine && echo found >/home/alice/mine/file
  inside "$tiny" --container-remap-root --container-mount-home --container-mounts='./mine:/a,~/mine:/b' sh -c 'cd /; srun -N2 -n2 sh -c "echo \$(id -u) \$HOME \$(cat /root/mine/file /a/file /b/file)"'
  prints $'0 /root found found found\n0 /root found found found'
}

@test "steps of a batch script share nothing with each other, those of a step with it" {
  printf '#!/bin/sh\nsrun -n1 -N1 sleep 831 & srun -n1 -N1 sleep 832 &\nuntil scontrol show step | grep -q "StepId=.*\\.[0-9]"; do sleep 0.2; done; sleep 4; scontrol show step | grep -c "StepId=.*\\.[0-9]"; kill %%1 %%2; wait; srun -n1 true; echo "code $?"\n' >/home/alice/script
  as_alice sbatch -Q -W -N1 -n1 -o /home/alice/out "$tiny" /home/alice/script
  cat /home/alice/out
  # The second one waits for the first.
  grep -qx 1 /home/alice/out
  grep -qx 'code 0' /home/alice/out
}

@test "a network of its own: no commands, and no word of them" {
  inside "$tiny" --container-unshare=net sh -c 'command -v srun || echo none; echo ${SITULA_SLURM_INSIDE-none}; ls /var/run'
  prints $'none\nnone'
}

@test "a container with a name, whose files are in a home directory that both nodes have" {
  inside "$tiny" --container-name=inner --container-writable sh -c 'echo kept >/srv/mark; srun -N2 -n2 sh -c "cat /srv/mark"'
  prints $'kept\nkept'
  as_alice enroot remove -f pyxis_inner
}

@test "an option of the job's srun is not said twice, and a batch script in a container has srun, too" {
  printf '#!/bin/sh\nsrun -N2 -n2 sh -c "cat /etc/arch; hostname"\n' >/home/alice/script
  as_alice sbatch -Q -W -N2 -o /home/alice/out "$tiny" /home/alice/script
  run cat /home/alice/out
  [ "$(grep -v -e '^situla: ' <<<"$output" | sort)" = $'amd64\namd64\nnode1\nnode2' ]
}

@test "pipes, exit codes, signals, standard input of nobody" {
  inside "$tiny" sh -c 'printf "b\na\n" | srun sort | tr a-z A-Z; srun sh -c "exit 7"; echo "code $?"; srun sh -c "kill -9 \$\$" 2>/dev/null; echo "code $?"; srun true; echo "code $?"'
  [ "$status" -eq 0 ]
  [[ "$output" == *$'A\nB\ncode 7\ncode 137\ncode 0' ]]
  inside "$tiny" sh -c 'srun nosuchprogram; echo "code $?"'
  [[ "$output" == *"code 2" ]]
}

@test "in each of the three images: a pipe, exit codes, sbatch, Ctrl-C" {
  printf 'b\na\n' >/home/alice/words
  for image in registry.test/tiny /shared/bare.sqsh registry.test/debian:12; do
    echo "in $image"
    inside --container-image="$image" srun -n1 cat </home/alice/words
    [ "$status" -eq 0 ]
    [ "$output" = $'b\na' ]
    inside --container-image="$image" srun -n1 false
    [ "$status" -eq 1 ]
    inside --container-image="$image" --container-mounts=/home/alice sbatch -Q -W --chdir=/home/alice -o out --wrap 'echo batch on $(hostname); exit 3'
    [ "$status" -eq 3 ]
    [ "$(cat /home/alice/out)" = "batch on node1" ]
    rm /home/alice/out
    cat >/shared/person <<PERSON
set timeout 60
spawn -noecho salloc -Q -N2 srun --pty -N1 -n1 -w node1 --container-image=$image srun -N2 -n2 sleep 307
for {set i 0} {\$i < 300 && [catch {exec pgrep -f {^[^ ]*sleep 307\$}}]} {incr i} {after 100}
send "\003"
expect "one more within 1 sec to abort"
send "\003"
expect {
  "one more within 1 sec to abort" { send "\003"; exp_continue }
  eof
}
exit [lindex [wait] 3]
PERSON
    run_and_show as_alice timeout 100 expect /shared/person
    [ "$status" -ne 0 ]
    [ "$status" -ne 124 ]
    [[ "$output" == *"one more within 1 sec to abort"* ]]
    wait_until 20 sh -c '! pgrep -f "^[^ ]*sleep 307$"'
  done
  rm /home/alice/words
}

@test "Ctrl-C, and a window of its size" {
  cat >/shared/person <<'PERSON'
set timeout 60
spawn -noecho salloc -Q -N2 srun --pty -N1 -n1 -w node1 --container-image=registry.test/tiny sh
stty rows 33 columns 77 < $spawn_out(slave,name)
send "PS1='now> '\r"
expect "now> "
send "srun -N2 -n2 sh -c 'echo begun; sleep 300'\r"
expect "begun\r*begun\r"
puts [exec sh -c {until pgrep -f "^[^ ]*sleep 300$"; do sleep 0.1; done}]
send "\003"
expect "one more within 1 sec to abort"
send "\003"
expect {
  "one more within 1 sec to abort" { send "\003"; exp_continue }
  "now> "
}
send "echo code \$?\r"
expect -re {code (\d+)\r}
puts "the code was $expect_out(1,string)"
send "srun --pty sh -c 'stty size; read x; echo got \$x'\r"
expect "33 77"
send "hello\r"
expect "got hello"
expect "now> "
send "exit\r"
expect eof
PERSON
  run_and_show as_alice timeout 100 expect /shared/person
  [[ "$output" == *"33 77"*"got hello"* ]]
  [[ "$output" =~ "the code was "[1-9] ]]
  wait_until 20 sh -c '! pgrep -f "^[^ ]*sleep 300$"'
}

@test "squeue, sinfo, scontrol and scancel are the host's" {
  inside "$tiny" sh -c 'squeue -h -o "%i %N" -j $SLURM_JOB_ID; sinfo -h -o "%n" | sort; scontrol show hostnames node[5-6]; squeue --version'
  [ "$status" -eq 0 ]
  [[ "$output" == *" node[1-2]"* ]]
  [[ "$output" == *$'node1\nnode2\nnode5\nnode6\n'"$(squeue --version)" ]]
  # One process: of several, linuxproc ends the children first, and loses what a shell begins meanwhile. Without salloc: that of 22.05
  # is busy for ever now and then when its job is cancelled.
  run_and_show as_alice timeout 100 srun -Q -N1 -n1 "$tiny" sh -c 'scancel $SLURM_JOB_ID; exec sleep 300'
  [ "$status" -eq 143 ]
}

@test "sbatch: the script is the container's, where it writes is the host's" {
  inside "$tiny" --container-mounts=/home/alice:/work sh -c '
    printf "#!/bin/sh\n#SBATCH --comment=x\necho \$SLURM_JOB_NAME in \$(pwd) \$HOME \$1, \$(ls -d /shared)\n" >/tmp/made.sh
    cd /work && sbatch -Q -W --output=/work/inner.%j /tmp/made.sh word && cd / && sbatch -W /tmp/made.sh; echo "code $?"; sbatch -W --chdir=/nowhere /tmp/made.sh; echo "code $?"; sbatch --chdir=/work /tmp/none.sh; echo "code $?"'
  [ "$status" -eq 0 ]
  [ "$(cat /home/alice/inner.*)" = "made.sh in /home/alice /home/alice word, /shared" ]
  rm /home/alice/inner.*
  [[ "$stderr" == *"sbatch: error: situla: the working directory of the job: / is in the container alone, and Slurm writes on the host"* ]]
  [[ "$stderr" == *"sbatch: error: hint: go to a directory that is mounted from the host"* ]]
  [[ "$stderr" == *"sbatch: error: situla: open /nowhere: No such file or directory"* ]]
  [[ "$stderr" == *"/tmp/none.sh: No such file or directory"* ]]
  [ "$(grep -c '^code 1$' <<<"$output")" -eq 3 ]
  inside "$tiny" --container-mounts=/home/alice:/work --container-workdir=/work sh -c 'printf "#!/bin/sh\n#SBATCH --job-name=named\necho \$SLURM_JOB_NAME\n" >/tmp/x.sh; sbatch -Q -W -o out /tmp/x.sh; cat out; cd /; sbatch --version | cut -d" " -f1'
  prints $'named\nslurm-wlm'
  rm /home/alice/out
}

@test "salloc: its command runs in the container, with the allocation's variables" {
  run_and_show as_alice timeout 100 srun -n1 -w node1 --overcommit "$tiny" sh -c '
    salloc -Q -N1 -n1 --overcommit -w node2 sh -c "cat /etc/arch; echo \$SLURM_JOB_NODELIST; srun hostname; exit 5"; echo "code $?"
    salloc -Q --no-such-option true; echo "code $?"
    salloc -Q -N1 -n1 --overcommit --container-image=registry.test/debian:12 sh -c "srun sh -c \". /etc/os-release; echo \\\$ID\""; echo "code $?"'
  [ "$status" -eq 0 ]
  [[ "$output" == *$'amd64\nnode2\nnode2\ncode 5'* ]]
  [[ "$output" == *"code 255"*$'debian\ncode 0'* ]]
  run_and_show as_alice sbatch --no-container --wrap true
  [ "$status" -ne 0 ]
  [[ "$output" == *"--no-container is for srun"* ]]
}

@test "sbcast, --multi-prog and --input take files of the container; --output goes to the host" {
  inside "$tiny" --container-mounts=/home/alice:/work sh -c '
    echo sent >/tmp/file && sbcast -f /tmp/file /work/sent && cat /work/sent
    printf "0 echo zero\n1 echo one\n" >/tmp/conf && srun -n2 --multi-prog /tmp/conf
    srun -n1 --input=/tmp/file cat
    srun -n1 --output=/work/written echo into a file && cat /work/written
    srun -n1 --output=/tmp/x true; echo "code $?"'
  [ "$status" -eq 0 ]
  [ "$(grep -v '^situla: ' <<<"$output" | sort)" = $'code 1\ninto a file\none\nsent\nsent\nzero' ]
  [[ "$stderr" == *"srun: error: situla: --output=/tmp/x: /tmp is in the container alone"* ]]
  [ "$(tail -n 1 /home/alice/written)" = "into a file" ]
  rm -f /home/alice/{sent,written}
}

@test "not where the job or the site does not want it, and not what the site leaves out" {
  inside "$tiny" --no-slurm-inside sh -c 'command -v srun || echo none; echo ${SITULA_SLURM_INSIDE-none}'
  prints $'none\nnone'
  printf 'slurm_inside = ["squeue"]\n' >/etc/situla/situla.toml
  inside "$tiny" sh -c 'squeue -h -o %i -j $SLURM_JOB_ID | wc -l; srun true; echo "code $?"'
  [[ "$stderr" == *"srun: error: situla: containers are not offered it on this cluster"* ]]
  [[ "$output" == *$'1\ncode 1'* ]]
  printf 'slurm_inside = []\n' >/etc/situla/situla.toml
  inside "$tiny" sh -c 'command -v srun || echo none; echo ${SITULA_SLURM_INSIDE-none}'
  rm /etc/situla/situla.toml
  prints $'none\nnone'
  inside "$tiny" env -u SITULA_SLURM_INSIDE sh -c 'srun true; echo "code $?"'
  [[ "$stderr" == *"srun: error: situla: this process does not know of a step"* ]]
  [[ "$output" == *"code 1"* ]]
}

# until_steps COUNT, in the container: the job runs so many, beside batch script and extern step.
until_steps='until_steps() { until [ "$(squeue -h -s -j $SLURM_JOB_ID -o %i | grep -c "[.][0-9]")" -eq $1 ]; do sleep 0.2; done; }'

@test "what is typed ends with its client, and with the step" {
  inside "$tiny" sh -c "$until_steps"'; srun -n1 sleep 811 & client=$!; until_steps 2; echo begun; kill -9 $client; until_steps 1; echo ended'
  [ "$status" -eq 0 ]
  [ "$output" = $'begun\nended' ]
  inside "$tiny" sh -c "$until_steps"'; srun -n1 sleep 812 & until_steps 2; echo begun; exit 0'
  [ "$status" -eq 0 ]
  [ "$output" = begun ]
  wait_until 20 sh -c '! pgrep -f "^[^ ]*sleep 81[12]$|^situla-slurm-proxy"'
}

@test "every command of the list is there" {
  inside "$tiny" sh -c 'ls /var/run/situla/slurm; for each in srun sbatch salloc squeue scancel sinfo scontrol sacct sbcast; do $each --version; done'
  [ "$status" -eq 0 ]
  [ "$(grep -cx "$(squeue --version)" <<<"$output")" -eq 9 ]
  # What situla.toml has by default.
  [ "$(grep -v -e situla-slurm-client -e slurm-wlm <<<"$output")" = "$(sed -n 's/^#slurm_inside = \[\(.*\)\]$/\1/p' "$lab_tests/../../conf/situla.toml" | tr -d ' "' | tr ',' '\n' | sort)" ]
}

@test "options that take a value are those of the commands here" {
  local command
  for command in srun sbatch salloc; do
    as_alice "$command" --help | sed -nE 's/^ +(-[A-Za-z],? +)?--([a-z0-9-]+)=[^ ]+.*/\2/p' | sort -u >"$BATS_TEST_TMPDIR/takes"
    # Its value is optional, whatever --help says.
    grep -v -x bcast "$BATS_TEST_TMPDIR/takes" >"$BATS_TEST_TMPDIR/wanted"
    [ "$(wc -l <"$BATS_TEST_TMPDIR/wanted")" -gt 40 ]
    while read -r option; do
      grep -q "\"$option\"" "$lab_tests/../../hooks/slurm/command_line.cpp" || { echo "$command --$option"; false; }
    done <"$BATS_TEST_TMPDIR/wanted"
  done
}
