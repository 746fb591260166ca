# lab: --user root --proctrack cgroup --gpus 4 --nvidia --gpus=4 --nvidia --devices=real --slurm-conf TaskPlugin=task/affinity,task/cgroup --slurm-file tests/cluster/slurm/cgroup.conf --situla-conf tests/cluster/gpu.toml
# GPUs in Slurm steps: an image without any file of the driver finds libraries, programs and the step's own GPUs. Slurm confines
# the devices; the machine's GPUs are what tests/gpu/make-driver-root makes of them.
load helpers

make_program() {
  cat >/shared/try-cuda.c <<'C'
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
  void *library = dlopen("libcuda.so.1", RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  int (*version)(int *) = (int (*)(int *))dlsym(library, "cuDriverGetVersion");
  int number = 0;
  if (!version || version(&number)) return 2;
  printf("CUDA %d\n", number);
  return 0;
}
C
  gcc -O1 -o /shared/try-cuda /shared/try-cuda.c
  chmod 755 /shared/try-cuda
}

# An image file of a directory.
make_image() { mksquashfs "$1" "$2" -quiet -no-progress -all-root -noD -noF >/dev/null; }

# The dynamic linker, libc and the program: no shell, no package manager, no cache of the linker.
make_distroless() {
  local root=/shared/distroless library
  mkdir -p "$root"/{etc,proc,sys,dev,tmp,usr/bin,lib64,lib/x86_64-linux-gnu}
  for library in /lib64/ld-linux-x86-64.so.2 /lib/x86_64-linux-gnu/libc.so.6; do cp -L "$library" "$root$library"; done
  cp /shared/try-cuda "$root/usr/bin/"
  make_image "$root" /shared/distroless.sqsh
}

# What Alpine has: musl's loader, which reads a file with directories, and busybox. The program needs no libc function that the
# two C libraries do not share.
make_musl() {
  local root=/shared/alpine
  mkdir -p "$root"/{etc,proc,sys,dev,tmp,bin,lib,usr/lib,usr/bin}
  cp -L /lib/x86_64-linux-musl/libc.so "$root/lib/ld-musl-x86_64.so.1"
  ln -s ld-musl-x86_64.so.1 "$root/lib/libc.musl-x86_64.so.1"
  cp /bin/busybox "$root/bin/sh"
  musl-gcc -O1 -o "$root/usr/bin/try-cuda" /shared/try-cuda.c
  make_image "$root" /shared/alpine.sqsh
}

# Debian with what CUDA images say in their environment.
make_cuda() {
  local root=/shared/cuda
  unsquashfs -q -n -d "$root" /shared/debian.sqsh >/dev/null
  printf 'NVIDIA_VISIBLE_DEVICES=all\nNVIDIA_DRIVER_CAPABILITIES=compute,utility\n' >>"$root/etc/environment"
  make_image "$root" /shared/cuda.sqsh
}

setup_file() {
  make_program
  as_alice situla import -o /shared/debian.sqsh docker://registry.test/debian:12 2>/dev/null
  make_distroless
  make_musl
  make_cuda
  chmod 644 /shared/*.sqsh
  mkdir -p /shared/cdi
  as_alice srun -Q --container-image=/shared/debian.sqsh true
  as_alice srun -Q --container-image=registry.test/tiny true
}

setup() {
  cd /home/alice
  unset NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES
  snapshot
}

teardown() {
  rm -f /shared/cdi/*
  as_alice scancel -u alice 2>/dev/null || true
  wait 2>/dev/null || true
}

# step OPTION... CMD...: a step of alice; the variables of this shell that begin with NVIDIA_ are the job's.
step() { run_and_show as_alice srun -Q "$@"; }
gpus='ls /proc/driver/nvidia/gpus | wc -l'

@test "slurmd has looked at the GPUs when it started" {
  wait_until 30 test -s /run/situla/nvidia.json
  [ "$(stat -c '%U %a' /run/situla/nvidia.json)" = "root 644" ]
  grep -q '"driver_version": "999.88.77"' /run/situla/nvidia.json
  grep -q GPU- /run/situla/nvidia.json
}

@test "an image without CUDA: libraries by ldconfig -p and by dlopen(3), programs, nodes" {
  export NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
  step --gres=gpu:1 --container-image=/shared/debian.sqsh --container-mounts=/shared/try-cuda:/usr/bin/try-cuda sh -c '/sbin/ldconfig -p; try-cuda; nvidia-smi; test -c /dev/nvidiactl'
  [ "$status" -eq 0 ]
  [[ "$output" == *"libcuda.so.1 (libc6,x86-64) => /lib/x86_64-linux-gnu/libcuda.so.1"* || "$output" == *"libcuda.so.1 (libc6,x86-64) => /usr/lib/x86_64-linux-gnu/libcuda.so.1"* ]]
  [[ "$output" == *"libnvidia-ml.so.1 "* ]]
  [[ "$output" == *"libc.so.6 "* ]]
  [[ "$output" == *"CUDA 13000"* ]]
  [[ "$output" == *"nvidia-smi of the fake driver 999.88.77"* ]]
}

@test "without variables an image gets nothing, and void and off say so" {
  step --container-image=/shared/debian.sqsh sh -c 'ls /usr/lib/x86_64-linux-gnu/libcuda.so.1 2>/dev/null || echo none'
  [ "$output" = none ]
  NVIDIA_VISIBLE_DEVICES=void step --container-image=/shared/cuda.sqsh sh -c 'ls /usr/lib/x86_64-linux-gnu/libcuda.so.1 2>/dev/null || echo none'
  [ "$output" = none ]
  nothing_left
}

@test "the image's own environment asks for GPUs" {
  step --gres=gpu:1 --container-image=/shared/cuda.sqsh --container-mounts=/shared/try-cuda:/usr/bin/try-cuda sh -c 'try-cuda && nvidia-smi'
  [ "$status" -eq 0 ]
  [[ "$output" == *"CUDA 13000"*"nvidia-smi of"* ]]
}

@test "distroless, with glibc and no cache; musl as in Alpine; busybox alone" {
  export NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
  step --gres=gpu:1 --container-image=/shared/distroless.sqsh /usr/bin/try-cuda
  [ "$output" = "CUDA 13000" ]
  step --gres=gpu:1 --container-image=/shared/alpine.sqsh /usr/bin/try-cuda
  [ "$output" = "CUDA 13000" ]
  step --gres=gpu:1 --container-image=registry.test/tiny nvidia-smi
  [[ "$output" == *"nvidia-smi of the fake driver"* ]]
  nothing_left
}

@test "a step sees the GPUs that Slurm gave it, numbered from 0" {
  export NVIDIA_VISIBLE_DEVICES=all
  for count in 1 2 4; do
    step --gres=gpu:$count --container-image=/shared/debian.sqsh sh -c "$gpus"
    [ "$output" = "$count" ]
  done
  NVIDIA_VISIBLE_DEVICES=0,1 step --gres=gpu:2 --container-image=/shared/debian.sqsh sh -c "$gpus"
  [ "$output" = 2 ]
  NVIDIA_VISIBLE_DEVICES=2 step --gres=gpu:2 --container-image=/shared/debian.sqsh true
  [ "$status" -ne 0 ]
  [[ "$output" == *"device error: 2: unknown device"*"hint: this job may use 0 = GPU-"* ]]
}

@test "per-task GPUs: the container has those of all tasks, each task its own" {
  export NVIDIA_VISIBLE_DEVICES=all
  step -n4 --gpus-per-task=1 --container-image=/shared/debian.sqsh sh -c "echo \$($gpus) \$CUDA_VISIBLE_DEVICES"
  [ "$status" -eq 0 ]
  [ "$(grep -c '^4 [0-9]$' <<<"$output")" -eq 4 ]
  step -n2 --gpus-per-task=2 --container-image=/shared/debian.sqsh sh -c "$gpus"
  [ "$output" = $'4\n4' ]
  nothing_left
}

@test "named containers and writable ones: the driver's files come anew with each start, and none stays" {
  export NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility
  for ((i = 0; i < 2; i++)); do
    step --gres=gpu:1 --container-image=/shared/debian.sqsh --container-name=kept --container-writable --container-mounts=/shared/try-cuda:/usr/bin/try-cuda try-cuda
    [[ "$output" == *"CUDA 13000"* ]]
  done
  NVIDIA_VISIBLE_DEVICES=void step --container-name=kept sh -c 'test -s /usr/lib/x86_64-linux-gnu/libcuda.so.999.88.77 || echo empty'
  [[ "$output" == *empty ]]
  as_alice enroot remove -f pyxis_kept
}

@test "mistakes are said once, and nothing runs" {
  NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,magic step -n2 --container-image=/shared/debian.sqsh echo ran
  [ "$status" -ne 0 ]
  [ "$(grep -c "Unknown NVIDIA driver capability: magic" <<<"$output")" -eq 1 ]
  [[ "$output" != *ran* ]]
  NVIDIA_VISIBLE_DEVICES=all NVIDIA_REQUIRE_CUDA='cuda>=99.0' step --container-image=/shared/debian.sqsh echo ran
  [ "$status" -ne 0 ]
  [[ "$output" == *"unsatisfied condition: cuda>=99.0"* ]]
  NVIDIA_DISABLE_REQUIRE=1 NVIDIA_VISIBLE_DEVICES=all NVIDIA_REQUIRE_CUDA='cuda>=99.0' step --gres=gpu:1 --container-image=/shared/debian.sqsh echo ran
  [ "$output" = ran ]
  nothing_left
}

@test "devices of CDI specifications, by option and by variable" {
  cat >/shared/cdi/vendor.yaml <<'Y'
cdiVersion: "0.6.0"
kind: vendor.test/card
devices:
  - name: "0"
    containerEdits:
      deviceNodes: [{path: /dev/nvidia0}]
      env: ["CARD=0"]
  - name: all
    containerEdits:
      deviceNodes: [{path: /dev/nvidia0}, {path: /dev/nvidia1}, {path: /dev/nvidia2}, {path: /dev/nvidia3}]
containerEdits:
  env: ["VENDOR=test"]
  mounts: [{hostPath: /shared/try-cuda, containerPath: /opt/vendor/tool, options: [ro, nosuid, nodev, bind]}]
Y
  step --gres=gpu:4 --container-devices=vendor.test/card=0 --container-image=/shared/debian.sqsh sh -c 'echo $VENDOR $CARD; test -x /opt/vendor/tool && test -c /dev/nvidia0 && echo there'
  [ "$status" -eq 0 ]
  [[ "$output" == "test 0"*there ]]
  NVIDIA_VISIBLE_DEVICES=vendor.test/card=all step --gres=gpu:1 --container-image=/shared/debian.sqsh sh -c 'echo $VENDOR'
  [[ "$output" == *test ]]
  step --container-devices=vendor.test/card=7,nobody.test/x=1 --container-image=/shared/debian.sqsh true
  [ "$status" -ne 0 ]
  [[ "$output" == *"unresolvable CDI devices vendor.test/card=7, nobody.test/x=1"*hint:* ]]
  as_alice sbatch -Q --wait -o devices.out --gres=gpu:4 --container-image=/shared/debian.sqsh --container-devices=vendor.test/card=0 --wrap 'echo $VENDOR $CARD'
  grep -x 'test 0' devices.out
  nothing_left
}

@test "enroot start, situla inject and doctor on the node" {
  export NVIDIA_VISIBLE_DEVICES=0
  run_and_show as_alice enroot start /shared/debian.sqsh nvidia-smi
  [ "$status" -eq 0 ]
  [[ "$output" == *"nvidia-smi of the fake driver"* ]]
  run_and_show as_alice situla inject --dry-run /shared/debian.sqsh
  [ "$status" -eq 0 ]
  [[ "$output" == *"mount /shared/nvidia/usr/bin/nvidia-smi on /usr/bin/nvidia-smi"* ]]
  run_and_show as_alice situla doctor
  [[ "$output" == *"999.88.77"*"gpu 3"* ]]
}

@test "another driver: the next start looks anew, and the node learns of it" {
  local version=/shared/nvidia/proc/driver/nvidia/version
  cp "$version" /shared/version.before
  sed -i 's/Sat Nov/Sun Nov/' "$version"
  NVIDIA_VISIBLE_DEVICES=all step --gres=gpu:1 --container-image=/shared/debian.sqsh nvidia-smi
  [ "$status" -eq 0 ]
  wait_until 30 grep -q 'Sun Nov' /run/situla/nvidia.json
  cp /shared/version.before "$version"
}
