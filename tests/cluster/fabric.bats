# lab: --user root --situla-conf tests/cluster/fabric.toml
# The node's libraries of the network fabric in steps: fabric = [...] in situla.toml. What stands for libfabric and libcxi tells where it comes from.
load helpers

# library DIRECTORY FILE SONAME TEXT [VERSION-OF-SYMBOLS]...: a library whose text() says TEXT; what stands in $needs is linked.
library() {
  local directory=$1 file=$2 soname=$3 text=$4 version script=$BATS_FILE_TMPDIR/script
  shift 4
  mkdir -p "$directory"
  : >"$script"
  for version; do echo "$version { global: ${version}_symbol; };" >>"$script"; done
  {
    echo "const char *${soname%%.*}_text(void) { return \"$text\"; }"
    for version; do echo "int ${version}_symbol(void) { return 1; }"; done
  } >"$BATS_FILE_TMPDIR/code.c"
  gcc -fPIC -shared -Wl,-soname,"$soname" ${1:+-Wl,--version-script,"$script"} -Wl,--no-as-needed -o "$directory/$file" "$BATS_FILE_TMPDIR/code.c" ${needs:-}
  ln -sf "$file" "$directory/$soname"
}

# image NAME: Debian with what lies in /shared/NAME.
image() {
  unsquashfs -q -n -d "/shared/$1.root" /shared/debian.sqsh >/dev/null
  cp -a "/shared/$1/." "/shared/$1.root/usr/lib/x86_64-linux-gnu/"
  mksquashfs "/shared/$1.root" "/shared/$1.sqsh" -quiet -no-progress -all-root -noD -noF >/dev/null
  chmod 644 "/shared/$1.sqsh"
}

setup_file() {
  cat >/shared/try-fabric.c <<'C'
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **words) {
  for (int i = 1; i + 1 < count; i += 2) {
    void *library = dlopen(words[i], RTLD_NOW);
    if (!library) return printf("%s\n", dlerror()), 1;
    const char *(*text)(void) = (const char *(*)(void))dlsym(library, words[i + 1]);
    printf("%s\n", text ? text() : "no text");
  }
  return 0;
}
C
  gcc -O1 -o /shared/try-fabric /shared/try-fabric.c
  chmod 755 /shared/try-fabric
  library /shared/node libcxi.so.1.5 libcxi.so.1 "node's cxi"
  needs=/shared/node/libcxi.so.1 library /shared/node libfabric.so.1.20.0 libfabric.so.1 "node's fabric"
  library /shared/older libfabric.so.1.9.0 libfabric.so.1 "image's fabric"
  library /shared/newer libfabric.so.1.99.0 libfabric.so.1 "image's fabric"
  echo /shared/node >/etc/ld.so.conf.d/fabric.conf
  ldconfig
  as_alice situla import -o /shared/debian.sqsh docker://registry.test/debian:12 2>/dev/null
  image older
  image newer
}

teardown_file() {
  rm -f /etc/ld.so.conf.d/fabric.conf
  ldconfig
}

setup() {
  cd /home/alice
  unset SITULA_FABRIC
  snapshot
}

step() { run_and_show as_alice srun -Q --container-mounts=/shared/try-fabric:/usr/bin/try-fabric "$@"; }
fabric='try-fabric libfabric.so.1 libfabric_text'

@test "an image without them has the node's libraries, with what they need" {
  step --container-image=/shared/debian.sqsh try-fabric libfabric.so.1 libfabric_text libcxi.so.1 libcxi_text
  [ "$status" -eq 0 ]
  [ "$output" = $'node\'s fabric\nnode\'s cxi' ]
  nothing_left
}

@test "an image's older library gives way" {
  step --container-image=/shared/older.sqsh $fabric
  [ "$output" = "node's fabric" ]
  step --container-image=/shared/older.sqsh --container-writable sh -c "$fabric; /sbin/ldconfig; $fabric"
  [[ "$output" == *$'node\'s fabric\nnode\'s fabric' ]]
  nothing_left
}

@test "a newer one stays, and the step is told; cxi comes all the same" {
  step --container-image=/shared/newer.sqsh sh -c "$fabric; try-fabric libcxi.so.1 libcxi_text"
  [ "$status" -eq 0 ]
  [[ "$output" == *"fabric = \"ofi\": the image's own libraries are used: the image's /usr/lib/x86_64-linux-gnu/libfabric.so.1.99.0 is newer than the node's /shared/node/libfabric.so.1.20.0"* ]]
  [[ "$output" == *$'image\'s fabric\nnode\'s cxi' ]]
  nothing_left
}

@test "SITULA_FABRIC=off keeps the image's own" {
  SITULA_FABRIC=off step --container-image=/shared/older.sqsh $fabric
  [ "$output" = "image's fabric" ]
  nothing_left
}

@test "situla inject shows it, the doctor counts it" {
  run_and_show as_alice situla inject --dry-run /shared/older.sqsh
  [ "$status" -eq 0 ]
  [[ "$output" == *"mount /shared/node/libfabric.so.1.20.0 on /usr/lib/x86_64-linux-gnu/libfabric.so.1.9.0"* ]]
  [[ "$output" == *"library libcxi.so.1 /usr/lib/situla-fabric/libcxi.so.1"* ]]
  run_and_show as_alice situla doctor
  # In a container that has this system's files the node's libraries lie over themselves.
  grep -E '^ +ok +fabric = cxi,ofi +2 mounts$' <<<"$output"
  if grep -E 'warn +fabric' <<<"$output"; then false; fi
  rm /etc/ld.so.conf.d/fabric.conf
  ldconfig
  run_and_show as_alice situla doctor
  echo /shared/node >/etc/ld.so.conf.d/fabric.conf
  ldconfig
  grep -E '^ +ok +fabric = cxi,ofi +nothing$' <<<"$output"
  grep -E '^ +warn +fabric +the node has no libcxi.so.1$' <<<"$output"
  grep -E '^ +warn +fabric +the node has no libfabric.so.1$' <<<"$output"
}
