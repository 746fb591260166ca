# The root file system of an instance: this machine's, with private copies of everything a node or a test may change. Sourced by instance.
# shellcheck shell=bash

# A directory of this machine seen through an overlay: changes stay in the instance, in memory.
private_copy() {
  local work=$scratch/overlay$1
  mkdir -p "$work/upper" "$work/work" "$root$1"
  mount -t overlay overlay -o "lowerdir=$1,upperdir=$work/upper,workdir=$work/work" "$root$1"
}

# The repository is seen inside where it is outside, and by ordinary users, even below a home directory that is closed to them.
expose_repository() {
  local path="" part
  local -a parts
  IFS=/ read -ra parts <<<"${lab_repo#/}"
  for part in "${parts[@]}"; do
    path+=/$part
    [ "$path" != "$lab_repo" ] || break
    if [ -d "$root$path" ] && (($(stat -c 0%a "$root$path") % 8 % 2 == 0)); then
      mount -t tmpfs -o mode=755 cover "$root$path"
    fi
  done
  # Not there, or there only as an overlay's copy.
  if [ "$(stat -c %d:%i "$lab_repo")" != "$(stat -c %d:%i "$root$lab_repo" 2>/dev/null)" ]; then
    mkdir -p "$root$lab_repo"
    mount --rbind "$lab_repo" "$root$lab_repo"
  fi
}

# What --disk asks for: XFS, as sites have it, with file extents that can be shared; ext4 slows down for minutes after many files were
# deleted. The loop device goes with the instance's mounts.
mount_disk() {
  local loop
  mkdir -p "$dir/disk"
  truncate -s 60G "$dir/disk.xfs"
  mkfs.xfs -q "$dir/disk.xfs"
  loop=$(losetup --find --show --direct-io=on "$dir/disk.xfs")
  mount "$loop" "$dir/disk"
  losetup --detach "$loop"
}

enter_root() {
  # Put together on a directory that is not itself carried over.
  local root=/dev/shm entry top
  mount --make-rprivate /
  if [ "$LAB_DISK" = yes ]; then mount_disk; fi
  mount -t tmpfs -o mode=755 root "$root"
  local scratch=$root/.scratch
  mkdir -m 700 "$scratch"
  for entry in /*; do
    top=${entry#/}
    if [ -L "$entry" ]; then
      cp -P "$entry" "$root/"
    elif [ -d "$entry" ]; then
      case $top in
        dev | proc | sys | tmp | run | home | root | shared | scratch | lost+found) ;;
        etc | var | opt) private_copy "$entry" ;;
        usr) mkdir "$root/usr"; mount --bind /usr "$root/usr"; mount -o remount,bind,ro "$root/usr" ;;
        *) mkdir -p "$root/$top"; mount --rbind "$entry" "$root/$top" ;;
      esac
    fi
  done
  mkdir -p "$root"/{dev,proc,sys,home,shared,scratch,run,tmp,root}
  mount -t tmpfs -o mode=755 home "$root/home"
  mount -t tmpfs -o mode=1777 shared "$root/shared"
  mount -t tmpfs -o mode=755 scratch "$root/scratch"
  if [ "$LAB_DISK" = yes ]; then
    mkdir -p "$dir/disk/home"
    mount --bind "$dir/disk/home" "$root/home"
  fi
  chmod 711 "$root/root"
  node_mounts "$root"
  expose_repository
  # The plugin and the programs as they are now: a later build must not change them under running daemons.
  if [ "$LAB_PLUGIN" = yes ]; then
    cp -a "$lab_prefix" "$scratch/prefix"
    mount --bind "$scratch/prefix" "$root$lab_prefix"
  fi
  case $lab_repo in
    # Nodes have their own of these: they find the repository again through this.
    /tmp/* | /var/tmp/* | /run/*) mkdir "$scratch/repository"; mount --rbind "$root$lab_repo" "$scratch/repository" ;;
  esac
  mkdir "$root/.old"
  cd "$root" || return
  pivot_root . .old
  umount -l /.old
  rmdir /.old
  mkdir -p /var/lib/situla /var/spool/slurmd /var/spool/slurmctld /etc/slurm /etc/situla /etc/enroot
  cat "$lab_state/tls/ca.crt" >>/etc/ssl/certs/ca-certificates.crt
  ln -sf "$lab_state/tls/ca.crt" "/etc/ssl/certs/$(openssl x509 -hash -noout -in "$lab_state/tls/ca.crt").0"
}

# What each machine has for itself: /proc, /sys, /dev, /run, /tmp. $1 is the root to put them in ("" for the present one).
node_mounts() {
  local root=$1 nodes
  [ -n "$root" ] || umount -l /run /tmp /proc
  mount -t tmpfs -o mode=755,nosuid run "$root/run"
  mkdir -m 1777 "$root/run/lock"
  mount -t tmpfs -o mode=1777 tmp "$root/tmp"
  [ -z "$root" ] || { mount -t proc proc "$root/proc"; mount -t sysfs sysfs "$root/sys"; mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"; }
  [ -n "$root" ] || mount -t proc proc /proc
  # A /dev of its own, filled like this machine's, because some nodes get other modes than without udev (fuse: 0666) and mqueue is
  # mounted. Loop devices are made ahead: the kernel adds new ones only to the real devtmpfs.
  nodes=$(mktemp -d "$root/run/dev.XXXX")
  mount -t tmpfs -o mode=755,nosuid dev "$nodes"
  /usr/bin/python3 - "$nodes" <<'PYTHON'
import os, stat, sys
new = sys.argv[1]
for name in os.listdir("/dev"):
    st = os.lstat("/dev/" + name)
    if stat.S_ISLNK(st.st_mode):
        os.symlink(os.readlink("/dev/" + name), f"{new}/{name}")
    elif stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode):
        os.mknod(f"{new}/{name}", stat.S_IFMT(st.st_mode), st.st_rdev)
        os.chmod(f"{new}/{name}", stat.S_IMODE(st.st_mode))
        os.chown(f"{new}/{name}", st.st_uid, st.st_gid)
for number in range(256):
    if not os.path.exists(f"{new}/loop{number}"):
        os.mknod(f"{new}/loop{number}", 0o660 | stat.S_IFBLK, os.makedev(7, number))
if not os.path.exists(f"{new}/fuse"):
    os.mknod(f"{new}/fuse", 0o666 | stat.S_IFCHR, os.makedev(10, 229))
os.chmod(f"{new}/fuse", 0o666)
if os.path.lexists(f"{new}/ptmx"):
    os.unlink(f"{new}/ptmx")
os.symlink("pts/ptmx", f"{new}/ptmx")
for name in os.listdir("/dev"):  # folders with device nodes, one level deep (net/tun, a vendor's)
    if name in ("pts", "shm", "mqueue", "hugepages", "fd") or os.path.islink("/dev/" + name) or not os.path.isdir("/dev/" + name):
        continue
    os.mkdir(f"{new}/{name}")
    for inner in os.listdir("/dev/" + name):
        st = os.lstat(f"/dev/{name}/{inner}")
        if stat.S_ISCHR(st.st_mode) or stat.S_ISBLK(st.st_mode):
            os.mknod(f"{new}/{name}/{inner}", st.st_mode, st.st_rdev)
PYTHON
  mkdir "$nodes/pts" "$nodes/mqueue" "$nodes/shm"
  mount -t devpts -o newinstance,gid=5,mode=620,ptmxmode=666 devpts "$nodes/pts"
  mount -t tmpfs -o mode=1777,nosuid,nodev shm "$nodes/shm"
  mount -t mqueue mqueue "$nodes/mqueue"
  if [ -z "$root" ]; then
    umount -l /dev
  fi
  mount --move "$nodes" "$root/dev"
  rmdir "$nodes"
}

# In a node, after everything that covers directories.
find_repository() {
  [ -d /.scratch/repository ] || return 0
  mkdir -p "$lab_repo"
  mount --rbind /.scratch/repository "$lab_repo"
}

write_accounts() {
  local user host
  {
    echo "127.0.0.1 localhost"
    printf '%s\n' "${lab_hosts[@]}"
    for ((n = 1; n <= LAB_NODES; n++)); do echo "127.0.1.$n node$n"; done
  } >/etc/hosts
  sed -i 's/^hosts:.*/hosts: files/; s/^\(passwd\|group\|shadow\|gshadow\):.*/\1: files/' /etc/nsswitch.conf
  rm -f /etc/resolv.conf
  echo "# the lab has no name server" >/etc/resolv.conf
  cat >>/etc/group <<GROUPS
situla:x:$lab_uid_situla:
situla-import:x:$lab_uid_situla_import:
alice:x:$lab_uid_alice:
bob:x:$lab_uid_bob:
crew:x:$lab_gid_crew:alice
GROUPS
  cat >>/etc/passwd <<USERS
situla:x:$lab_uid_situla:$lab_uid_situla:Situla image store:/var/lib/situla:/usr/sbin/nologin
situla-import:x:$lab_uid_situla_import:$lab_uid_situla_import:Situla image importer:/nonexistent:/usr/sbin/nologin
alice:x:$lab_uid_alice:$lab_uid_alice:Alice:/home/alice:/bin/bash
bob:x:$lab_uid_bob:$lab_uid_bob:Bob:/home/bob:/bin/bash
USERS
  for user in situla situla-import alice bob; do echo "$user:!:19000::::::" >>/etc/shadow; done
  for user in alice bob; do
    cp -a /etc/skel "/home/$user"
    chown -R "$user:$user" "/home/$user"
    chmod 700 "/home/$user"
    install -d -m 700 -o "$user" -g "$user" "/scratch/$user"
  done
  # alice has credentials, bob has none.
  mkdir -p /home/alice/.config/enroot
  for host in auth.test auth-token.test; do
    echo "machine $host login $lab_registry_user password $lab_registry_password"
  done >/home/alice/.config/enroot/.credentials
  chmod 600 /home/alice/.config/enroot/.credentials
  chown -R alice:alice /home/alice/.config
}
