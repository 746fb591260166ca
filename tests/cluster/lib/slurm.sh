# The daemons of an instance: munge, registries, slurmctld, and one machine per node. Sourced by instance.
# shellcheck shell=bash

# Starts a daemon with its output in a log of its own.
daemon() {
  local name=$1
  shift
  setsid "$@" </dev/null >"$dir/logs/$name.log" 2>&1 &
}

# Waits until a command succeeds; $1 says what is awaited.
await() {
  local what=$1 tries
  shift
  for ((tries = 0; tries < 1000; tries++)); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.02
  done
  echo "lab: gave up waiting for $what" >&2
  return 1
}

write_slurm_conf() {
  local n line key folder
  cat >/etc/slurm/slurm.conf <<CONF
ClusterName=lab
SlurmctldHost=ctl(127.0.1.0)
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
ProctrackType=proctrack/$LAB_PROCTRACK
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
ReturnToService=2
MailProg=/bin/true
MpiDefault=none
SlurmdParameters=config_overrides
StateSaveLocation=/var/spool/slurmctld
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldDebug=info
SlurmdDebug=$LAB_SLURMD_DEBUG
SlurmdLogFile=$dir/logs/slurmd.%n.log
KillWait=5
PlugStackConfig=/etc/slurm/plugstack.conf
CONF
  [ "$LAB_PROCTRACK" != cgroup ] || sed -i 's,^TaskPlugin=.*,TaskPlugin=task/cgroup,' /etc/slurm/slurm.conf
  for line in "${LAB_SLURM_CONF[@]}"; do
    key=${line%%=*}
    case $key in NodeName | PartitionName) ;; *) sed -i "/^$key=/Id" /etc/slurm/slurm.conf ;; esac
    echo "$line" >>/etc/slurm/slurm.conf
  done
  if [ -n "$LAB_NVIDIA" ]; then
    # shellcheck disable=SC2086
    "$lab_repo/tests/gpu/make-driver-root" --nvml "$lab_repo/build/release/tests/gpu/libmock_nvml.so" $LAB_NVIDIA /shared/nvidia
  fi
  if [ "$LAB_GPUS" -gt 0 ]; then
    # Slurm wants to see files, and hands out their numbers.
    local gpu_files=/dev/loop
    [ -z "$LAB_NVIDIA" ] || gpu_files=/shared/nvidia/dev/nvidia
    echo "Name=gpu File=$gpu_files[0-$((LAB_GPUS - 1))]" >/etc/slurm/gres.conf
    printf '%s\n' GresTypes=gpu "NodeName=DEFAULT Gres=gpu:$LAB_GPUS" >>/etc/slurm/slurm.conf
  fi
  # One machine plays all nodes: each has its own name, address and port, and more cores than there are, so that many tasks fit.
  for ((n = 1; n <= LAB_NODES; n++)); do
    echo "NodeName=node$n NodeHostname=node$n NodeAddr=127.0.1.$n Port=$((7000 + n)) CPUs=32 RealMemory=4096 State=UNKNOWN"
    # slurmd would make it for root alone; suites run as alice.
    install -m 644 /dev/null "$dir/logs/slurmd.node$n.log"
  done >>/etc/slurm/slurm.conf
  echo "PartitionName=lab Nodes=ALL Default=YES MaxTime=INFINITE OverSubscribe=FORCE:64 State=UP" >>/etc/slurm/slurm.conf
  cat >/etc/slurm/cgroup.conf <<CONF
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
ConstrainCores=no
ConstrainRAMSpace=no
ConstrainDevices=no
CONF
  printf 'AutoBasePath=true\nBasePath=/var/spool/slurmd/job_container\n' >/etc/slurm/job_container.conf
  rm -rf /etc/slurm/plugstack.conf.d
  : >/etc/slurm/plugstack.conf
  if [ "$LAB_PLUGIN" = yes ]; then
    echo "required $lab_prefix/lib/slurm/spank_situla.so ${LAB_PLUGIN_ARGS[*]}" >/etc/slurm/plugstack.conf
  fi
  cp -r "$dir/slurm.d/." /etc/slurm/
  # What the project ships for /etc/enroot, as an administrator would copy it.
  for folder in hooks.d mounts.d environ.d; do
    [ ! -d "$lab_repo/conf/$folder" ] || cp -r "$lab_repo/conf/$folder" /etc/enroot/
  done
  [ -z "$LAB_ENROOT_CONF" ] || cp "$dir/enroot.conf" /etc/enroot/enroot.conf
  # The lab's registry with a token server has it under another name, as a site with a GitLab has.
  mkdir -p /etc/enroot/enroot.conf.d
  echo "ENROOT_TOKEN_SERVERS token.test=auth-token.test" >/etc/enroot/enroot.conf.d/token_servers.conf
  [ -z "$LAB_ENROOT_HOOKS" ] || cp -r "$dir/hooks.d" /etc/enroot/hooks.d
  [ -z "$LAB_SITULA_CONF" ] || cp "$dir/situla.toml" /etc/situla/situla.toml
  chmod -R a+rX /etc/slurm /etc/enroot /etc/situla
}

start_munge() {
  # Nodes have their own /run: the socket's directory is kept where it can be bound into each.
  mkdir -p /run/munge /var/spool/munge.run /etc/munge /var/log/munge /var/lib/munge
  chown munge:munge /var/spool/munge.run /etc/munge /var/log/munge /var/lib/munge
  mount --bind /var/spool/munge.run /run/munge
  head -c 128 /dev/urandom >/etc/munge/munge.key
  chown munge:munge /etc/munge/munge.key
  chmod 400 /etc/munge/munge.key
  daemon munged setpriv --reuid munge --regid munge --clear-groups munged --foreground
}

start_registries() {
  local name address auth number=0
  mkdir -p /.scratch/registry/{upper,work,merged}
  mount -t overlay overlay /.scratch/registry/merged \
    -o "lowerdir=$lab_state/registry,upperdir=/.scratch/registry/upper,workdir=/.scratch/registry/work"
  for name in registry auth token; do
    number=$((number + 1))
    address=127.0.0.$((number + 1))
    case $name in
      registry) auth="" ;;
      auth) auth="auth: {htpasswd: {realm: auth.test, path: $lab_state/tls/htpasswd}}" ;;
      token) auth="auth: {token: {realm: \"https://auth-token.test/token\", service: token.test, issuer: lab, rootcertbundle: $lab_state/tls/token.crt}}" ;;
    esac
    cat >"$dir/$name.yml" <<CONF
version: 0.1
log: {accesslog: {disabled: false}, level: info}
storage: {filesystem: {rootdirectory: /.scratch/registry/merged}, cache: {blobdescriptor: inmemory}, delete: {enabled: true}}
http: {addr: "$address:443", secret: lab, tls: {certificate: $lab_state/tls/server.crt, key: $lab_state/tls/server.key}}
$auth
CONF
    daemon "$name.test" docker-registry serve "$dir/$name.yml"
  done
  daemon servers /usr/bin/python3 "$lab_source/servers/servers.py" "$lab_state"
}

registries_answer() {
  local number
  for number in 2 3 4 5 6 7 9; do
    (exec 3<>"/dev/tcp/127.0.0.$number/443") || return 1
  done
}

has_child() {
  [ -n "$(child_of "$1")" ]
}

nodes_idle() {
  [ "$(sinfo -h -N -o %T | grep -cx idle)" -eq "$LAB_NODES" ]
}

start_slurm() {
  local n outer
  mkdir -p /var/log/slurm
  chown slurm:slurm /var/spool/slurmctld /var/log/slurm
  await "munge" munge -n
  daemon slurmctld setpriv --reuid slurm --regid slurm --clear-groups slurmctld -D
  for ((n = 1; n <= LAB_NODES; n++)); do
    setsid unshare --mount --uts --ipc --pid --fork --kill-child "$lab_source/lib/node" "$dir" "$n" \
      </dev/null >"$dir/logs/node$n.log" 2>&1 &
    outer=$!
    await "the first process of node$n" has_child "$outer"
    child_of "$outer" >"$dir/node$n.pid"
  done
  await "the nodes to be idle (logs/slurmctld.log, logs/node*.log)" nodes_idle
  await "the registries to listen" registries_answer
}
