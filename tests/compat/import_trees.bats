# lab: --name usual --user root
# lab: --name large --user root --disk --with pytorch
# What an image becomes when it is imported, judged by other tools: umoci for the tree, unsquashfs and the kernel for the file.
bats_require_minimum_version 1.5.0

load import_trees

# peak_stays_low FILES: an import from files takes at most 32 MiB and 176 bytes for each file. A registry's window of 48 MiB is not in
# it: with a million files all of it stays below 256 MiB.
peak_stays_low() {
  "$here/../bench/many_files" --files "$1" "$work/layout"
  python3 - "$1" situla import -o "$work/image.sqsh" "oci:$work/layout" <<'PYTHON'
import os, subprocess, sys
child = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(child.pid, 0)
peak, bound = usage.ru_maxrss * 1024, (32 << 20) + 176 * int(sys.argv[1])
print(f"{sys.argv[1]} files: peak {peak / 2**20:.0f} MiB, bound {bound / 2**20:.0f} MiB")
sys.exit(status != 0 or peak > bound)
PYTHON
  rm -rf "$work/layout"
  [ "$(unsquashfs -d '' -lls "$work/image.sqsh" srv/data | grep -c 'item-[0-9]*.json$')" = "$1" ]
}

# bats file_tags=lab:usual

@test "tiny, with every kind of layer" {
  same_tree tiny:latest tiny:latest
  same_tree tiny:zstd tiny:latest
  same_tree tiny:tar tiny:latest
}

@test "debian:12" { same_tree debian:12 debian:12; }

@test "weird: whiteouts, links, type changes, xattrs, names, modes" {
  same_tree weird:latest weird:latest
  same_tree weird:zstd weird:latest
}

# 200 of them: tests/cluster/run --user root -- env SITULA_RANDOM_IMAGES=200 bats -f random tests/compat/import_trees.bats
@test "random images, from a registry, a layout and an archive" {
  run "$here/import-random" --images "${SITULA_RANDOM_IMAGES:-30}"
  echo "$output"
  # The seed is worth knowing, whatever came out.
  sed 's/^/# /' <<<"$output" >&3
  [ "$status" -eq 0 ]
}

@test "the kernel mounts the file" {
  situla import -o "$work/image.sqsh" docker://registry.test/weird
  mkdir "$work/mount"
  mount -t squashfs -o loop,ro,nodev,nosuid "$work/image.sqsh" "$work/mount"
  run find "$work/mount" ! -type l -exec stat -c %u:%g {} +
  local owners=$output directory wrong=
  # As every file system counts: two, and one for each directory in it.
  while read -r directory; do
    [ "$(stat -c %h "$directory")" -eq "$(($(find "$directory" -mindepth 1 -maxdepth 1 -type d | wc -l) + 2))" ] || wrong+=" $directory"
  done < <(find "$work/mount" -type d)
  umount "$work/mount"
  [ "$(sort -u <<<"$owners")" = 0:0 ]
  [ -z "$wrong" ]
}

@test "two imports with SOURCE_DATE_EPOCH are the same bytes" {
  export SOURCE_DATE_EPOCH=1700000000
  local image
  for image in weird debian:12; do
    situla import -o "$work/a.sqsh" "docker://registry.test/$image"
    situla import -o "$work/b.sqsh" "docker://registry.test/$image"
    cmp "$work/a.sqsh" "$work/b.sqsh"
    rm "$work"/?.sqsh
  done
}

@test "a hundred thousand files take little memory" { peak_stays_low 100000; }

# bats file_tags=lab:large

@test "pytorch, an image of two gigabytes" {
  rm -rf "$work"
  work=$(mktemp -d /root/situla-test.XXXXXX)
  same_tree pytorch:latest pytorch:latest
}

@test "import torch, as the first thing after a cold import" {
  run runuser -u alice -- env HOME=/home/alice srun --container-image=registry.test/pytorch python3 -c 'import torch; print(int(torch.ones(3).sum()))'
  [ "$status" -eq 0 ]
  [ "${lines[-1]}" = 3 ]
}

@test "a million files in bounded memory" {
  rm -rf "$work"
  work=$(mktemp -d /root/situla-test.XXXXXX)
  peak_stays_low 1000000
}
