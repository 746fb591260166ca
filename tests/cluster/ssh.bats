# lab: --user root --nodes 2 --proctrack cgroup
# situla ssh: real ssh, scp and sftp, a forwarded port and what editors do first, in the container of a running job. Nothing listens.
load helpers

setup_file() {
  mkdir -p /shared/bare/{etc,proc,sys,dev,tmp,var,run,bin}
  cp /bin/busybox /shared/bare/bin/sleep
  mksquashfs /shared/bare /shared/bare.sqsh -quiet -no-progress -all-root >/dev/null
  chmod 644 /shared/bare.sqsh
  as_alice install -d -m 700 /home/alice/.ssh
  as_alice situla ssh --config >/home/alice/.ssh/config
  chown alice: /home/alice/.ssh/config
}

setup() { cd /home/alice; }

teardown() {
  as_alice scancel -u alice -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
}

# job SECONDS OPTION...: a job whose only step sleeps in a container; its number is in $job.
job() {
  local seconds=$1
  as_alice srun -J door -w node1 --chdir=/ "${@:2}" sleep "$seconds" >/dev/null 2>&1 3>&- &
  wait_until 60 asleep "$seconds"
  job=$(running_job door)
}

as_alice_quietly() { as_alice timeout 60 "$@"; }

@test "what belongs into ssh_config, and keys of the user's alone" {
  grep -qx "Host situla-\\* \"!\\*'\\*\"" .ssh/config
  diff .config/situla/ssh/config .ssh/config
  [ "$(stat -c %a%U .config/situla/ssh .config/situla/ssh/user_key .config/situla/ssh/host_key | sort -u | tr '\n' ' ')" = "600alice 700alice " ]
  local before
  before=$(sha256sum .config/situla/ssh/*_key)
  as_alice situla ssh --config | diff - .ssh/config
  [ "$(sha256sum .config/situla/ssh/*_key)" = "$before" ]
  # A public key is made of the private one, whatever else was there.
  rm .config/situla/ssh/user_key.pub
  for _ in 1 2 3; do as_alice situla ssh --config >/dev/null 3>&- & done
  wait
  [ "$(cut -d' ' -f1,2 .config/situla/ssh/user_key.pub)" = "$(ssh-keygen -y -f .config/situla/ssh/user_key | cut -d' ' -f1,2)" ]
  # A name from elsewhere is a word for the shell that runs the command.
  run_and_show as_alice_quietly ssh 'situla-$(touch /tmp/hostile)' true
  run_and_show as_alice_quietly ssh "situla-';touch /tmp/hostile;'" true
  [ ! -e /tmp/hostile ]
}

@test "a command, its exit code, its standard input; a shell on a terminal; nothing listens meanwhile" {
  job 901 --container-image=registry.test/tiny
  run_and_show as_alice_quietly ssh "situla-$job" 'cat /etc/arch; echo "$SLURM_JOB_ID in $(pwd)"; exit 7'
  [ "$status" -eq 7 ]
  [[ "$output" == *$'amd64\n'"$job in "* ]]
  as_alice_quietly sh -c "printf 'one\ntwo' | ssh situla-$job.0 'cat; sleep 3'" >"$BATS_TEST_TMPDIR/cat" 2>/dev/null 3>&- &
  local client=$!
  wait_until 20 pgrep -u alice -f '^sshd|^[^ ]*/sshd'
  # srun does, as for every step.
  ss -Hltnp >"$BATS_TEST_TMPDIR/listening"
  grep -q '"srun"' "$BATS_TEST_TMPDIR/listening"
  if grep -E '"(sshd[^"]*|situla|situla-full)"' "$BATS_TEST_TMPDIR/listening"; then false; fi
  wait "$client"
  [ "$(cat "$BATS_TEST_TMPDIR/cat")" = $'one\ntwo' ]
  run_and_show as_alice_quietly expect -c "
    set timeout 40
    spawn ssh -t situla-$job
    stty rows 31 columns 71 < \$spawn_out(slave,name)
    expect {[$#] } { send \"stty size; echo of \\\$SLURM_JOB_ID; exit 5\r\" }
    expect \"31 71\"
    expect \"of $job\"
    expect eof
    catch wait result
    puts \"code [lindex \$result 3]\""
  [[ "$output" == *"code 5"* ]]
}

@test "scp and sftp see the container's files, in images with a shell and without one" {
  head -c 3000000 /dev/urandom >/home/alice/random
  chown alice: /home/alice/random
  for image in registry.test/tiny registry.test/debian:12 /shared/bare.sqsh; do
    job 902 --container-image="$image"
    run_and_show as_alice_quietly scp -q /home/alice/random "situla-$job:/tmp/there"
    [ "$status" -eq 0 ]
    run_and_show as_alice_quietly scp -q "situla-$job:/tmp/there" /home/alice/back
    cmp random back
    run_and_show as_alice_quietly sh -c "echo 'ls -l /tmp' | sftp -q -b - situla-$job"
    [ "$status" -eq 0 ]
    [[ "$output" == *"3000000"*"there"* ]]
    [ ! -e /tmp/there ]
    rm back
    as_alice scancel -s KILL "$job"
    wait
  done
  rm random
}

@test "a forwarded port leads to a page that is served in the container, a socket likewise; none is forwarded back" {
  job 903 --container-image=registry.test/tiny
  as_alice_quietly ssh "situla-$job" 'mkdir -p /tmp/www; echo a page >/tmp/www/index.html; exec httpd -f -p 127.0.0.1:18080 -h /tmp/www' >/dev/null 2>&1 3>&- &
  wait_until 20 sh -c "ss -Hltn 'sport = 18080' | grep -q ."
  as_alice_quietly ssh -N -L 18081:127.0.0.1:18080 -D 18082 "situla-$job" >/dev/null 2>&1 3>&- &
  wait_until 20 sh -c "ss -Hltn 'sport = 18081' | grep -q ."
  [ "$(curl -s http://127.0.0.1:18081/)" = "a page" ]
  [ "$(curl -s --socks5 127.0.0.1:18082 http://127.0.0.1:18080/)" = "a page" ]
  run_and_show as_alice_quietly ssh -o ExitOnForwardFailure=yes -N -R 18083:127.0.0.1:18080 "situla-$job"
  [ "$status" -ne 0 ]
}

# What the remote modes of VS Code and of JetBrains' programs do: a shell that gets a script on its standard input, unpacks a server that
# came with it, starts it in the background, and says on which port it listens; then a second connection forwards that.
@test "an editor's server starts in the container, and is reached through the door" {
  job 904 --container-image=registry.test/debian:12
  cat >/shared/server.pl <<'PERL'
use IO::Socket::INET;
my $server = IO::Socket::INET->new(LocalAddr => "127.0.0.1", Listen => 5) or die;
open(my $note, ">", "/tmp/port"); print $note $server->sockport; close($note);
while (my $client = $server->accept) { my $line = <$client>; print $client "of $ENV{SLURM_JOB_ID}: $line"; close($client) }
PERL
  run_and_show as_alice_quietly sh -c "{ printf '%s\n' 'mkdir -p /tmp/.server' 'base64 -d >/tmp/.server/run.pl <<END'; base64 </shared/server.pl; printf '%s\n' END 'nohup perl /tmp/.server/run.pl >/dev/null 2>&1 </dev/null &' 'until [ -s /tmp/port ]; do sleep 0.1; done' 'echo listeningOn==\$(cat /tmp/port)=='; } | ssh -T situla-$job bash"
  [ "$status" -eq 0 ]
  [[ "$output" =~ listeningOn==([0-9]+)== ]]
  local port=${BASH_REMATCH[1]}
  as_alice_quietly ssh -N -L "18084:127.0.0.1:$port" "situla-$job" >/dev/null 2>&1 3>&- &
  wait_until 20 sh -c "ss -Hltn 'sport = 18084' | grep -q ."
  run python3 -c 'import socket; c = socket.create_connection(("127.0.0.1", 18084)); c.sendall(b"hello\n"); print(c.makefile().read())'
  echo "$output"
  [ "${lines[0]}" = "of $job: hello" ]
}

@test "who waits for ssh's output does not wait for what it left running, which runs on" {
  job 907 --container-image=registry.test/tiny
  run timeout 20 runuser -u alice -- env HOME=/home/alice bash -c "out=\$(ssh situla-$job 'sleep 908 >/dev/null 2>&1 </dev/null & echo left' 2>&1); echo \"got \$out\""
  echo "$output"
  [ "$output" = "got left" ]
  asleep 908
  as_alice pkill -f '^[^ ]*sleep 908$'
  wait_until 20 sh -c '! pgrep -u alice -f "situla ssh|^srun.*situla-attach"'
}

@test "another user's key does not open it, and it ends with the job" {
  job 905 --container-image=registry.test/tiny
  rm -rf /shared/key* && ssh-keygen -q -t ed25519 -N '' -f /shared/key && chown alice: /shared/key
  run_and_show as_alice_quietly ssh -o IdentitiesOnly=yes -o IdentityFile=/shared/key -o BatchMode=yes -F none -o "ProxyCommand=situla ssh %n" -o HostKeyAlias=situla -o UserKnownHostsFile=/home/alice/.config/situla/ssh/known_hosts "situla-$job" true
  [ "$status" -eq 255 ]
  [[ "$output" == *"Permission denied (publickey)"* ]]
  run_and_show as bob timeout 60 situla ssh "$job"
  [ "$status" -ne 0 ]
  [[ "$output" == *"Access/permission denied"* || "$output" == *"runs no step"* ]]
  as_alice_quietly ssh "situla-$job" 'sleep 906' >/dev/null 2>&1 3>&- &
  wait_until 20 asleep 906
  as_alice scancel "$job"
  wait
  wait_until 20 sh -c '! pgrep -u alice -f "^[^ ]*sleep 90[56]$|sshd|^srun"'
  run_and_show as_alice_quietly ssh "situla-$job" true
  [ "$status" -eq 255 ]
  [[ "$output" == *"ssh: job $job runs no step"* ]]
  run_and_show as_alice_quietly ssh situla-99999 true
  [ "$status" -eq 255 ]
}
