# What is to be seen of steps on a node. Sourced.
# shellcheck shell=bash

# running PATTERN...: processes whose program's file has such a name: number, path. The kernel cuts the names it has itself.
running() {
  local names=(-false)
  for name in "$@"; do names+=(-o -lname "*/$name" -o -lname "*/$name (deleted)"); done
  find /proc -maxdepth 2 -regex '/proc/[0-9]+/exe' '(' "${names[@]}" ')' -printf '%h %l\n' 2>/dev/null | sed 's,^/proc/,,'
}

# The store may be on NFS, to which root is nobody, and which cannot tell what is in use.
of_store() { runuser -u situla -- "$@"; }

# What steps can leave on a node, a line each. Few processes: each takes a hundredth of a second here.
left() {
  awk '{ print "mount", $2, $3 }' /proc/self/mounts
  grep -H . /sys/block/loop*/loop/backing_file
  find /sys/block -name 'dm-*'
  find /sys/fs/cgroup -type d '(' -name 'job_*' -o -regex '.*/s[0-9A-Z]+' ')'  # by Slurm's number, or from 26.05 on its SLUID
  running 'situla*' slurmstepd | sed 's/^/process /'
  pgrep -u alice -a | sed 's/^/process /'
  find /run/situla /tmp /var/tmp /dev/shm ! -type d ! -path '/tmp/bats*'
  of_store find /var/lib/situla/{leases,slots,images} ! -type d ! -regex '/var/lib/situla/images/.*[.]\(sqsh\|json\|sha256\)'
  true
} 2>/dev/null
