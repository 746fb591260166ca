# lab: --user root --slurm-conf SlurmdDebug=debug2 --slurm-conf SlurmctldDebug=debug2
# A password is seen by nobody: in no argument, no environment, no log, no message, no core dump.
load ../cluster/helpers

setup() {
  chmod 777 "$BATS_TEST_TMPDIR"
  chmod 755 "$BATS_RUN_TMPDIR" "$BATS_SUITE_TMPDIR" "$BATS_FILE_TMPDIR" "${BATS_TEST_TMPDIR%/*}"
  mkdir -m 777 "$BATS_TEST_TMPDIR/config"
  printf 'xyzzy-%s' "$RANDOM$RANDOM" >"$BATS_TEST_TMPDIR/password"
  chmod 644 "$BATS_TEST_TMPDIR/password"
}

# credentials PASSWORD: of fault.test, for alice.
credentials() {
  echo "machine fault.test login alice password $1" >"$BATS_TEST_TMPDIR/config/.credentials"
  chmod 644 "$BATS_TEST_TMPDIR/config/.credentials"
}

# Looks at the arguments and the environment of every process, again and again, until killed: writes who shows the password, and how
# many programs of Situla's there were to look at.
watch_processes() {
  exec python3 - "$BATS_TEST_TMPDIR" <<'PYTHON'
import base64, glob, os, sys
folder = sys.argv[1]
password = open(folder + "/password", "rb").read()
forms = [password, base64.b64encode(b"alice:" + password).rstrip(b"="), password.hex().encode()]
seen, shown = set(), set()
open(folder + "/watching", "w").close()
while not os.path.exists(folder + "/enough"):
    for process in glob.glob("/proc/[0-9]*"):
        for name in ("comm", "cmdline", "environ"):
            try:
                content = open(f"{process}/{name}", "rb").read()
            except OSError:
                continue
            if name == "comm" and content.startswith((b"situla", b"docker-credent", b"bash", b"cat")):
                seen.add(content.strip().decode())
            if any(form in content for form in forms):
                shown.add(f"{process}/{name}: {content[:200]}")
open(folder + "/seen", "w").write("\n".join(sorted(seen)) + "\n")
open(folder + "/shown", "w").write("".join(line + "\n" for line in sorted(shown)))
PYTHON
}

# watched CMD...: runs it under that watch; its output, files and all logs are without the password, too.
watched() {
  local watcher form
  rm -f "$BATS_TEST_TMPDIR/enough" "$BATS_TEST_TMPDIR/watching"
  watch_processes &
  watcher=$!
  wait_until 30 test -e "$BATS_TEST_TMPDIR/watching"
  run_and_show "$@"
  touch "$BATS_TEST_TMPDIR/enough"
  wait "$watcher"
  cat "$BATS_TEST_TMPDIR/seen"
  [ ! -s "$BATS_TEST_TMPDIR/shown" ] || { cat "$BATS_TEST_TMPDIR/shown"; return 1; }
  for form in "$(cat "$BATS_TEST_TMPDIR/password")" "$({ printf alice:; cat "$BATS_TEST_TMPDIR/password"; } | base64 | tr -d =)"; do
    [[ "$output" != *"$form"* ]] || return 1
    if grep -rlF -- "$form" "$SITULA_LAB/logs" /var/lib/situla /run/situla /var/log/slurm /var/spool/slurmd* 2>/dev/null; then return 1; fi
  done
}

job() { as_alice env ENROOT_CONFIG_PATH="$BATS_TEST_TMPDIR/config" "$@" srun --container-image=fault.test/vault true; }
import() {
  rm -f "$BATS_TEST_TMPDIR/image.sqsh"
  as_alice env ENROOT_CONFIG_PATH="$BATS_TEST_TMPDIR/config" ENROOT_CACHE_PATH="$BATS_TEST_TMPDIR/none" "$@" situla import -o "$BATS_TEST_TMPDIR/image.sqsh" docker://fault.test/vault
}


@test "control: the watch sees a password in an argument and in an environment" {
  if watched sh -c 'sleep 1' "$(cat "$BATS_TEST_TMPDIR/password")"; then return 1; fi
  grep -q cmdline "$BATS_TEST_TMPDIR/shown"
  if watched env SOMETHING="$(cat "$BATS_TEST_TMPDIR/password")" sleep 1; then return 1; fi
  grep -q environ "$BATS_TEST_TMPDIR/shown"
}
@test "the password of .credentials does not leak from a job" {
  credentials "$(cat "$BATS_TEST_TMPDIR/password")"
  watched job
  [ "$status" -eq 0 ]
  grep -q situla-importer "$BATS_TEST_TMPDIR/seen"
}
@test "a password that a command prints does not leak" {
  credentials "\$(sleep 2; cat $BATS_TEST_TMPDIR/password)"
  watched import
  [ "$status" -eq 0 ]
  grep -q situla "$BATS_TEST_TMPDIR/seen"
  grep -q bash "$BATS_TEST_TMPDIR/seen"
  if strings -a "$BATS_TEST_TMPDIR/image.sqsh" | grep -q xyzzy-; then return 1; fi
}
@test "docker's login does not leak from a job that fails" {
  mkdir "$BATS_TEST_TMPDIR/docker"
  printf '{"auths":{"fault.test":{"auth":"%s"}}}' "$({ printf alice:; cat "$BATS_TEST_TMPDIR/password"; } | base64 -w0)" >"$BATS_TEST_TMPDIR/docker/config.json"
  chmod -R a+rX "$BATS_TEST_TMPDIR/docker"
  watched as_alice env DOCKER_CONFIG="$BATS_TEST_TMPDIR/docker" srun --container-image=fault.test/redirect-login true
  [ "$status" -ne 0 ]
  grep -q 'the login as alice is refused (401)' <<<"$output"
  watched as_alice env DOCKER_CONFIG="$BATS_TEST_TMPDIR/docker" situla digest docker://fault.test/vault
  [ "$status" -eq 0 ]
}
@test "a credential helper, damaged files and a command that fails: messages without secrets" {
  mkdir "$BATS_TEST_TMPDIR/docker" "$BATS_TEST_TMPDIR/bin"
  echo '{"credHelpers":{"fault.test":"lab"}}' >"$BATS_TEST_TMPDIR/docker/config.json"
  printf '#!/bin/sh\nsleep 2\nprintf %s "{\\"Username\\":\\"alice\\",\\"Secret\\":\\"$(cat %s)\\"}"\n' '%s' "$BATS_TEST_TMPDIR/password" >"$BATS_TEST_TMPDIR/bin/docker-credential-lab"
  chmod -R a+rX "$BATS_TEST_TMPDIR/docker" "$BATS_TEST_TMPDIR/bin"
  chmod 755 "$BATS_TEST_TMPDIR/bin/docker-credential-lab"
  watched import DOCKER_CONFIG="$BATS_TEST_TMPDIR/docker" PATH="$BATS_TEST_TMPDIR/bin:$PATH"
  [ "$status" -eq 0 ]
  grep -q docker-credent "$BATS_TEST_TMPDIR/seen"
  # Damage of several kinds, each with the password in the middle of it.
  credentials "\$(cat $BATS_TEST_TMPDIR/password >&2; exit 3)"
  watched import
  [ "$status" -ne 0 ]
  printf '{"auths":{"fault.test":{"auth":"%s"' "$(cat "$BATS_TEST_TMPDIR/password")" >"$BATS_TEST_TMPDIR/docker/config.json"
  watched import DOCKER_CONFIG="$BATS_TEST_TMPDIR/docker"
  [ "$status" -ne 0 ]
  printf 'machine fault.test login alice pasword %s\n' "$(cat "$BATS_TEST_TMPDIR/password")" >"$BATS_TEST_TMPDIR/config/.credentials"
  watched import
  [ "$status" -ne 0 ]
}
@test "a proxy's password does not leak" {
  credentials "$(cat "$BATS_TEST_TMPDIR/password")"
  run_and_show import https_proxy="http://me:xyzzy-proxy@refused.test:3128"
  [ "$status" -ne 0 ]
  [[ "$output" != *xyzzy* ]]
}
@test "a process that is killed leaves no core dump" {
  credentials "$(cat "$BATS_TEST_TMPDIR/password")"
  run_and_show python3 - "$BATS_TEST_TMPDIR" <<'PYTHON'
import os, resource, signal, subprocess, sys, time
folder = sys.argv[1]
os.mkdir(folder + "/cores", 0o777)
os.chmod(folder + "/cores", 0o777)

def dumps(command, ready):
    """Whether SIGABRT makes alice's command leave a core dump."""
    def become():
        resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        os.setgroups([])
        os.setresgid(60801, 60801, 60801)
        os.setresuid(60801, 60801, 60801)
    environment = dict(os.environ, HOME="/home/alice", ENROOT_CONFIG_PATH=folder + "/config", ENROOT_CACHE_PATH=folder + "/none")
    child = subprocess.Popen(command, preexec_fn=become, cwd=folder + "/cores", env=environment)
    while not ready():
        assert child.poll() is None, "it has ended too early"
        time.sleep(0.05)
    child.send_signal(signal.SIGABRT)
    _, status = os.waitpid(child.pid, 0)
    assert os.WIFSIGNALED(status), status
    return os.WCOREDUMP(status)

started = time.monotonic()
print("control:", dumps(["sleep", "60"], lambda: time.monotonic() > started + 0.5))
image = folder + "/killed.sqsh"
log = open(os.environ["SITULA_LAB"] + "/logs/servers.log")
log.seek(0, 2)
asked = lambda: "/v2/vault/blobs/" in log.read()
print("situla:", dumps(["situla", "import", "-o", image, "docker://fault.test/vault"], asked))
print("files:", sum(b"xyzzy-" in open(folder + "/cores/" + name, "rb").read() for name in os.listdir(folder + "/cores")))
PYTHON
  [ "$status" -eq 0 ]
  grep -q '^situla: False' <<<"$output"
  grep -q '^files: 0' <<<"$output"
  grep -q '^control: True' <<<"$output" || [ "$(cut -c1 /proc/sys/kernel/core_pattern)" = "|" ]
}
@test "a process of the importers' account cannot look into an importer" {
  local importer before
  asked() { [ "$(grep -c /v2/vault/blobs/ "$SITULA_LAB/logs/servers.log")" -gt "$before" ]; }
  credentials "$(cat "$BATS_TEST_TMPDIR/password")"
  rm -f /var/lib/situla/images/sha256/*
  before=$(grep -c /v2/vault/blobs/ "$SITULA_LAB/logs/servers.log")
  job &
  wait_until 30 asked  # its layer takes seconds now
  importer=$(pgrep -u situla-import -f situla-importer)
  [ -e "/proc/$importer/environ" ]
  run_and_show setpriv --reuid situla-import --regid situla-import --clear-groups cat "/proc/$importer/environ"
  grep -q 'Permission denied' <<<"$output"
  run_and_show setpriv --reuid situla-import --regid situla-import --clear-groups timeout 2 strace -p "$importer"
  grep -q 'Operation not permitted' <<<"$output"
  wait
}
