# lab: --nodes 3 --user root --situla-conf tests/cluster/shared_store.toml
# situla doctor about the way of keeping the store: one store on a file system that several nodes have (lying_fs stands in for it), and sbcast;
# then what is wrong with it on one node, and between nodes.
load helpers

# What a command does on one node lasts there: mounts are the node's own.
on_node() { srun --nodelist="node$1" -n1 "${@:2}"; }
# mount_store NODE [ARGUMENT]... of lying_fs; BACKING: another directory behind it.
mount_store() {
  # shellcheck disable=SC2016
  on_node "$1" sh -c 'umount -l /shared/store 2>/dev/null; setsid $3 /shared/lying_fs "$1" /shared/store 1 ${2:+$2} </dev/null >/dev/null 2>&1' - \
    "${BACKING:-/shared/backing}" "${*:2}" "${AS:-}"
}
# bind NODE FILE TEXT: the node has another text in its place.
bind() {
  # shellcheck disable=SC2016
  on_node "$1" sh -c 'printf "%s\n" "$2" >"/run/bound"; chmod 644 /run/bound; mount --bind /run/bound "$1"' - "$2" "$3"
}
unbind() { on_node "$1" umount -l "$2"; }

doctor_of() { run --separate-stderr on_node "$1" situla doctor --json; }
field() { jq -r --arg name "$1" --arg field "$2" '.checks[] | select(.name == $name) | .[$field]' <<<"$output"; }
compared() { grep -E "^  $1 +$2 +" <<<"$output"; }

setup_file() {
  install -d -m 0700 -o situla -g situla /shared/backing /shared/another
  mkdir -p /shared/store
  cp "$BATS_TEST_DIRNAME/../../build/release/tests/cluster/lying_fs" /shared/lying_fs
  for node in 1 2 3; do mount_store $node; done
}

@test "one store of three nodes: what is in effect, and that it works" {
  run_and_show situla doctor --cluster
  [ "$status" -eq 0 ]
  compared ok store-mode | grep -F 'shared (/shared/store) on node[1-3]'
  run ! compared '(warn|fail)' '.*'
  doctor_of 2
  field store-mode found | grep '^shared: /shared/store on fuse (lying)'
  [ "$(field store-access status)" = ok ]
  [ "$(field store-access facts | jq -r .id)" = "$(cat /shared/backing/id)" ]
  [ "$(field store-clock status)" = ok ]
  # FUSE gives leases without asking the other nodes: they are not believed.
  [ "$(field store-leases status)" = info ]
  field store-leases found | grep 'it knows of this node alone): images are never removed by themselves'
  # Nothing else stays.
  [ "$(find /shared/backing -mindepth 1 -printf '%f %u %m ')" = "id situla 600 " ]
}

@test "an ordinary user learns the way, and nothing is tried in the store for him" {
  run --separate-stderr as_alice srun -w node1 -n1 situla doctor --json
  [ "$(field store-mode status)" = ok ]
  [ -z "$(field store-access status)" ]
}

@test "a node without the mount, and one with another store at its place" {
  on_node 3 umount -l /shared/store
  run_and_show situla doctor --cluster
  BACKING=/shared/another mount_store 3
  compared warn store-mode | grep -F 'shared (/shared/store) on node[1-2], node (/shared/store) on node3'
  grep -q 'fix: one situla.toml for all nodes' <<<"$output"
  run_and_show situla doctor --cluster
  mount_store 3
  compared warn store | grep -F 'node3: /shared/store is another store than that of node[1-2]'
  grep -q 'fix: mount there what node\[1-2\] have: findmnt --target /shared/store' <<<"$output"
}

@test "a file server whose clock is another one, and a store that the account cannot write to" {
  mount_store 2 60
  doctor_of 2
  mount_store 2
  [ "$(field store-clock status)" = warn ]
  field store-clock found | grep -E "^this node's clock is (59|60)\.[0-9] s behind the file server's"
  install -d -m 0700 -o root -g root /shared/roots
  BACKING=/shared/roots mount_store 2
  doctor_of 2
  mount_store 2
  [ "$status" -eq 1 ]
  [ "$(field store-access status)" = fail ]
  field store-access found | grep 'Permission denied'
  field store-access fix | grep 'one uid on all nodes'
}

@test "a store to which root has no rights is none the worse for it" {
  # Without allow_other FUSE lets in the mounting user alone.
  AS="setpriv --ruid=situla --rgid=situla --euid=0 --clear-groups" mount_store 2 0 default_permissions
  run on_node 2 ls /shared/store
  [ "$status" -ne 0 ]
  doctor_of 2
  mount_store 2
  [ "$status" -eq 0 ]
  [ "$(field store status)" = info ]
  field store-mode found | grep '^shared: '
  [ "$(field store-access found)" = 'situla can write there; root has no rights (root_squash), and needs none' ]
}

@test "a service user with another number on one node" {
  bind 2 /etc/passwd "$(sed -E 's/^situla:x:[0-9]+:/situla:x:4711:/' /etc/passwd)"
  run_and_show situla doctor --cluster
  unbind 2 /etc/passwd
  [ "$status" -eq 1 ]
  compared fail service-user | grep -E 'uid [0-9]+ on node\[1,3\], uid 4711 on node2'
}

@test "a node whose clock is another one, and one with another release" {
  cp "$SITULA_LAB_PREFIX/bin/situla" "$SITULA_LAB_PREFIX/bin/situla.whole"
  bind 3 "$SITULA_LAB_PREFIX/bin/situla" "#!/bin/sh
\"\$0.whole\" \"\$@\" | sed -E 's/^(  \"time\": \")[^\"]*/\\1'\$(date -u -d '-90 seconds' +%Y-%m-%dT%H:%M:%SZ)'/; s/^(  \"version\": \")[^\"]*/\\10.0.1/'"
  on_node 3 chmod 755 "$SITULA_LAB_PREFIX/bin/situla"
  run_and_show situla doctor --cluster
  unbind 3 "$SITULA_LAB_PREFIX/bin/situla"
  compared warn clocks | grep -E 'by the clock of node[12]: node3 is at least 8[0-9] s behind'
  compared warn versions | grep -E 'situla [0-9.]+ on node\[1-2\], 0\.0\.1 on node3'
}

# by_sbcast [COMMANDS [SETTINGS]]: the doctor's JSON, with sbcast chosen, in a mount namespace where the commands took something away.
by_sbcast() {
  printf 'distribute = "sbcast"\n%s\n' "${2:-}" >/tmp/sbcast.toml
  # shellcheck disable=SC2016
  run --separate-stderr unshare -m sh -c 'mount --bind /tmp/sbcast.toml /etc/situla/situla.toml; eval "$1"; situla doctor --json' - "${1:-}"
}

@test "sbcast: what it needs is there, or is named" {
  by_sbcast
  field store-mode found | grep '^sbcast: /var/lib/situla on '
  [ "$(field sbcast status)" = ok ]
  [ "$(field munge status)" = ok ]
  # The lab's disks are in memory.
  by_sbcast 'mkdir /tmp/memory; mount -t tmpfs tmpfs /tmp/memory' 'store_path = "/tmp/memory/store"'
  [ "$(field sbcast-incoming status)" = warn ]
  field sbcast-incoming found | grep '^/tmp/memory/store-incoming .* takes memory of the node'
  by_sbcast 'umount -l /run/munge'
  [ "$status" -eq 1 ]
  [ "$(field munge status)" = fail ]
  field munge fix | grep 'systemctl start munge'
  # shellcheck disable=SC2016
  by_sbcast 'for place in /usr/bin /bin; do mount --bind /dev/null $place/sbcast; done'
  [ "$status" -eq 1 ]
  field sbcast found | grep '^missing: sbcast$'
  by_sbcast '' 'store_path = "/shared/store"'
  [ "$(field store-mode status)" = warn ]
  # One node by sbcast, the others by themselves.
  bind 2 /etc/situla/situla.toml 'distribute = "sbcast"'
  run_and_show situla doctor --cluster
  unbind 2 /etc/situla/situla.toml
  compared warn store-mode | grep -F 'shared (/shared/store) on node[1,3], sbcast (/var/lib/situla) on node2'
}
