# lab: none
# packaging/guides/install.md on a bare Debian, command by command; then what an administrator does with packages for years: upgrade them under
# running jobs, remove them, purge them, install them again. One machine; each test goes on where the one before it ended.
load helpers

setup_file() {
  build_packages
  start_machine bare
  offer 1
}

teardown_file() { stop_machine; }

# The packages of that revision lie in the directory where the guide's commands are typed.
offer() {
  rm -rf "$machine/here"
  mkdir -p "$machine/here"
  cp "$packages/$1"/*.deb "$machine/here/"
  rm -f "$machine/here"/*-dbgsym_*
}

# start_job NAME OPTION...: a step in a container that runs until end_job; what it says is in NAME.log.
start_job() {
  local name=$1
  shift
  on rm -f "/home/alice/$name.end"
  # shellcheck disable=SC2016
  as_alice srun --container-image=debian:12 --container-mounts=/home/alice "$@" \
    sh -c 'echo running; until [ -e "/home/alice/$0.end" ]; do sleep 0.1; done; . /etc/os-release; echo "left $ID"' "$name" \
    >"$machine/$name.log" 2>&1 3>&- &
  echo $! >"$machine/$name.pid"
  wait_until 60 grep -q running "$machine/$name.log" || { cat "$machine/$name.log"; return 1; }
}

end_job() {
  on touch "/home/alice/$1.end"
  wait_until 60 gone "$1"
  cat "$machine/$1.log"
  grep -qx 'left debian' "$machine/$1.log"
}
gone() { ! kill -0 "$(cat "$machine/$1.pid")" 2>/dev/null; }

broker_programs() { on sh -c 'readlink /proc/[0-9]*/exe | grep situla-broker'; }

@test "the guide's Slurm of one machine runs jobs" {
  guide install.md install "A Slurm to try it on"
  [ "$(as_alice srun hostname)" = node1 ]
  files >"$machine/before"
}

@test "the packages install as the guide says" {
  guide install.md install "1. Packages"
  run -0 on situla version
  [[ $output == *"$(sed -n 's/^project(situla VERSION \([0-9.]*\).*/\1/p' "$repository/CMakeLists.txt")"* ]]
}

@test "lintian finds nothing but what the overrides argue" {
  run lintian --no-cfg --allow-root "$packages"/1/*.deb
  echo "$output"
  [ "$status" -eq 0 ]
  [ -z "$output" ]
}

@test "owners and modes are exactly these" {
  run -0 on stat -c '%A %U:%G %n' /var/lib/situla /run/situla /run/situla/{images,root,containers,jobs} /etc/situla /etc/situla/situla.toml \
    /etc/slurm/plugstack.conf.d/situla.conf /usr/bin/situla /usr/libexec/situla /usr/libexec/situla/situla-broker /usr/lib/x86_64-linux-gnu/slurm-wlm/spank_situla.so
  echo "$output"
  diff - <(echo "$output") <<'LIST'
drwx------ situla:situla /var/lib/situla
drwxr-xr-x root:root /run/situla
drwx------ root:root /run/situla/images
drwxr-xr-x root:root /run/situla/root
drwx------ root:root /run/situla/containers
drwx------ root:root /run/situla/jobs
drwxr-xr-x root:root /etc/situla
-rw-r--r-- root:root /etc/situla/situla.toml
-rw-r--r-- root:root /etc/slurm/plugstack.conf.d/situla.conf
-rwxr-xr-x root:root /usr/bin/situla
drwxr-xr-x root:root /usr/libexec/situla
-rwxr-xr-x root:root /usr/libexec/situla/situla-broker
-rw-r--r-- root:root /usr/lib/x86_64-linux-gnu/slurm-wlm/spank_situla.so
LIST
  # Nothing of ours has rights that its caller has not.
  run on sh -c 'dpkg -L situla situla-slurm-plugin | grep . | xargs -d "\n" -I{} find {} -maxdepth 0 -type f -perm /6000'
  echo "$output"
  [ -z "$output" ]
}

@test "the store's socket is enabled, and systemd understands it" {
  on test -L /etc/systemd/system/sockets.target.wants/situla-store.socket
  run -0 on systemd-analyze verify --man=no situla-store.socket situla-store@1.service
  echo "$output"
  [ -z "$output" ]
  # Nobody closes it for all by connecting often.
  on grep -qx TriggerLimitIntervalSec=0 /lib/systemd/system/situla-store.socket
  program=$(on sed -n 's/^ExecStart=-\([^ ]*\) .*/\1/p' /lib/systemd/system/situla-store@.service)
  on test -x "$program"
}

@test "the accounts can own files and nothing else" {
  run -0 on getent passwd situla
  [[ $output == *:/var/lib/situla:/usr/sbin/nologin ]]
  [ "$(on passwd -S situla | cut -d' ' -f2)" = L ]
  run -0 on getent passwd situla-import
  [[ $output == *:/usr/sbin/nologin ]]
  [ "$(on passwd -S situla-import | cut -d' ' -f2)" = L ]
}

@test "pages and completions are where man, bash and zsh look" {
  on ls /usr/share/man/man1/situla.1.gz /usr/share/man/man1/situla-doctor.1.gz /usr/share/zsh/vendor-completions/_situla
  on bash -c '. /usr/share/bash-completion/completions/situla && complete -p situla'
}

@test "the doctor finds nothing to fix" {
  run guide install.md install "2. What"
  echo "$output"
  [ "$status" -eq 0 ]
  ! grep -E "^ *fail" <<<"$output" || false
}

@test "a user's first container" {
  run guide install.md user "3. A container"
  echo "$output"
  [ "$status" -eq 0 ]
  grep -q '^VERSION_CODENAME=bookworm' <<<"$output"
  # This is a Debian 12, too: what was seen has to have been the image, which has no Slurm.
  as_alice srun --container-image=debian:12 test ! -e /usr/bin/srun
}

@test "a plugstack.conf that includes nothing is noticed, and the line of the guide fixes it" {
  on mv /etc/slurm/plugstack.conf /etc/slurm/plugstack.conf.away
  run on situla doctor
  echo "$output"
  [ "$status" -ne 0 ]
  grep -Eq '^ *fail +plugstack' <<<"$output"
  guide install.md install "1. Packages"
  on situla doctor
  on mv /etc/slurm/plugstack.conf.away /etc/slurm/plugstack.conf
}

@test "apt refuses a plugin that was built for another Slurm" {
  other_slurm() { sed -i 's/slurm-wlm-basic-plugins ([^)]*)/slurm-wlm-basic-plugins (>= 99.05)/' "$1/DEBIAN/control"; }
  mkdir -p "$machine/other"
  repack "$packages"/1/situla-slurm-plugin_*.deb 9 "$machine/other" other_slurm
  run on sh -c 'apt-get install -y /shared/other/*.deb'
  echo "$output"
  [ "$status" -ne 0 ]
  grep -q 'slurm-wlm-basic-plugins (>= 99.05)' <<<"$output"
  # The real one names the version of this machine, and the next one.
  run -0 on dpkg-query -W -f '${Depends}' situla-slurm-plugin
  [[ $output == *"slurm-wlm-basic-plugins (>= 22.05)"*"slurm-wlm-basic-plugins (<< 22.06~)"* ]]
}

@test "an upgrade while a job runs: the job ends well, with its image saved; the next one has the new programs" {
  start_job upgraded --container-save=/home/alice/saved.sqsh
  offer 2
  guide install.md install "A newer version"
  [ "$(on dpkg-query -W -f '${Version}' situla)" = "$(dpkg-deb --field "$packages"/2/situla_*.deb Version)" ]
  broker_programs | grep -q deleted
  start_job next
  broker_programs | grep -v deleted
  end_job upgraded
  on test -s /home/alice/saved.sqsh
  end_job next
  as_alice srun --container-image=/home/alice/saved.sqsh true
}

@test "after removal Slurm runs jobs, containers that run go on, and what the administrator wrote is kept" {
  on sh -c 'echo "image_mount_idle = 1000" >>/etc/situla/situla.toml'
  on sed -i 's/^required .*/& container_scope=job/' /etc/slurm/plugstack.conf.d/situla.conf
  start_job survivor
  guide install.md install "Removing it"
  as_alice srun --overlap true
  run as_alice srun --container-image=debian:12 true
  [ "$status" -ne 0 ]
  end_job survivor
  run on findmnt --list --noheadings --output TARGET
  ! grep /run/situla <<<"$output" || false
  on grep -q '^image_mount_idle = 1000' /etc/situla/situla.toml
}

@test "installed again, it goes on where it was" {
  guide install.md install "1. Packages"
  on grep -q '^image_mount_idle = 1000' /etc/situla/situla.toml
  on grep -q '^required .*container_scope=job' /etc/slurm/plugstack.conf.d/situla.conf
  run on sh -c 'ls /var/lib/situla/images/sha256/*.sqsh | wc -l'
  [ "$output" -ge 1 ]
  as_alice srun --container-image=debian:12 true
}

@test "the other packages install and go: enroot is situla, a program can be compiled against the library" {
  on sh -c 'apt-get install -y /shared/here/situla-enroot_*.deb'
  [ "$(on readlink -f /usr/bin/enroot)" = /usr/bin/situla ]
  on sh -c 'readlink -e /usr/share/man/man1/enroot-import.1.gz | grep -qx /usr/share/man/man1/situla-import.1.gz'
  run -0 as_alice enroot version
  on apt-get purge -y situla-enroot
  run on sh -c 'ls -d /usr/bin/enroot /usr/share/man/man1/enroot* /etc/alternatives/enroot* 2>/dev/null'
  [ -z "$output" ]
  # Its dependencies are a compiler's matter; here: that files are where pkg-config and the compiler look.
  run -0 dpkg-deb --contents "$packages"/1/libsitula-dev_*.deb
  grep -q './usr/include/situla/hooks/import/import.hpp' <<<"$output"
  grep -q '/pkgconfig/situla.pc' <<<"$output"
}

@test "purged under a running container: it ends well, and no file, process or mount is left" {
  start_job last
  guide install.md install "Leaving nothing behind"
  end_job last
  wait_until 60 no_processes_of_ours
  files >"$machine/after"
  # What apt brought along for them is not theirs to take away; the account and its lines are said to stay.
  on sh -c 'apt-get autoremove -y --purge' >/dev/null
  files >"$machine/after"
  comm -13 "$machine/before" "$machine/after" >"$machine/new"
  cat "$machine/new"
  ! grep -i -E 'situla|enroot|spank|plugstack' "$machine/new" || false
  run on sh -c 'findmnt --list --noheadings --output TARGET; dpkg -l | grep situla'
  ! grep situla <<<"$output" || false
}
no_processes_of_ours() { ! on sh -c 'readlink /proc/[0-9]*/exe' | grep situla; }

@test "from nothing again" {
  guide install.md install "1. Packages"
  guide install.md user "3. A container"
}
