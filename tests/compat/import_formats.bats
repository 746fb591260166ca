# lab: --user root
# Layers in every format that images have today: the same tree as umoci has for the same content.
bats_require_minimum_version 1.5.0

load import_trees

# A tree with something of everything, and $work/tree.tar of it.
make_tree() {
  cd "$work"
  mkdir -p tree/etc tree/usr/share/doc "tree/$(printf 'd%.0s' {1..120})"
  local i
  for i in 0 1 511 512 513 131072 700000; do head -c "$i" /dev/urandom >"tree/usr/share/$i"; done
  seq 100000 >tree/etc/numbers
  ln -s ../usr/share/1 tree/etc/link
  ln tree/etc/numbers "tree/$(printf 'd%.0s' {1..120})/$(printf 'n%.0s' {1..130})"
  ln -s "$(printf 't%.0s' {1..150})" tree/etc/long-link
  touch -d @1700000000.75 tree/etc/time
  setfattr -n user.colour -v blue tree/etc/numbers
  tar -C tree --format=pax --sort=name --xattrs --xattrs-include='user.*' -cf tree.tar .
}

# in_pieces FILE COUNT: FILE.0 FILE.1 ...
in_pieces() { split -n "$2" -d -a 1 "$1" "$1."; }

# same_as_umoci LAYER...: both read the same layout
same_as_umoci() {
  rm -rf layout image.sqsh
  "$here/make-layout" layout "$@"
  situla import -o image.sqsh oci:layout
  "$here/import-vs-umoci" image.sqsh layout:latest
}

# same_content LAYER...: umoci reads the same content from gzip layers
same_content() {
  rm -rf layout gzip image.sqsh
  "$here/make-layout" layout "$@"
  "$here/make-layout" --gzip gzip "$@"
  situla import -o image.sqsh oci:layout
  "$here/import-vs-umoci" image.sqsh gzip:latest
}

# mtime PATH: in the image
mtime() { unsquashfs -d '' -lln -UTC image.sqsh "$1" | tail -1; }

@test "layers that are not compressed" {
  make_tree
  same_as_umoci tree.tar
}

@test "gzip: one member, several, an empty one, many small ones, zeros behind the last" {
  make_tree
  gzip -k tree.tar
  same_as_umoci tree.tar.gz
  in_pieces tree.tar 5
  gzip tree.tar.?
  same_as_umoci <(cat tree.tar.0.gz tree.tar.1.gz <(gzip </dev/null) tree.tar.2.gz tree.tar.3.gz tree.tar.4.gz)
  python3 -c 'import sys, gzip; d = sys.stdin.buffer.read(); [sys.stdout.buffer.write(gzip.compress(d[i:i + 700], 1)) for i in range(0, len(d), 700)]' \
    <tree.tar >small.gz
  same_as_umoci small.gz
  { cat tree.tar.gz; head -c 4096 /dev/zero; } >padded.gz
  same_content padded.gz
}

@test "zstd: one frame, several, skippable ones, no content size, with checksums and without" {
  make_tree
  zstd -q tree.tar
  same_content tree.tar.zst
  zstd -q --no-check -19 <tree.tar >piped.zst
  same_content piped.zst
  in_pieces tree.tar 4
  zstd -q tree.tar.?
  printf '\x5a\x2a\x4d\x18\x05\0\0\0index' >skippable
  cat skippable tree.tar.0.zst tree.tar.1.zst skippable skippable tree.tar.2.zst <(zstd </dev/null) tree.tar.3.zst skippable >frames.zst
  same_content frames.zst
}

@test "zstd with a window of 128 MiB is read; a larger one is refused with what to do" {
  cd "$work"
  mkdir tree
  # Found again only by a window of more than 100 MiB.
  { head -c 4000000 /dev/urandom | tee part; head -c 100000000 /dev/zero | tr '\0' x; cat part; } >tree/long
  tar -C tree -cf tree.tar .
  zstd -q --long=27 <tree.tar >long27.zst
  [ "$(stat -c %s long27.zst)" -lt 5000000 ]
  same_content long27.zst
  zstd -q --long=31 --ultra <tree.tar >long31.zst
  rm -rf layout
  "$here/make-layout" layout long31.zst
  run situla import -o other.sqsh oci:layout
  echo "$output"
  [ "$status" = 1 ]
  [[ "$output" == *"layer 1 of 1"*"a window of more than 128 MiB"*"hint: "*"--long=27"* ]]
  [ ! -e other.sqsh ]
}

# estargz: every file in a gzip member of its own, landmark and index as files, and a footer member that is empty.
make_estargz() {
  python3 - <<'PYTHON'
import gzip, io, json, struct, tarfile
def member(data):
    return gzip.compress(data, 6, mtime=0)
def entry(name, content):
    info = tarfile.TarInfo(name)
    info.size = len(content)
    return info.tobuf(tarfile.PAX_FORMAT) + content + bytes(-len(content) % 512)
source, out, toc, offset = open("tree.tar", "rb").read(), b"", [], 0
with tarfile.open("tree.tar") as archive:
    starts = [i.offset for i in archive.getmembers()] + [archive.offset]
for first, last in zip(starts, starts[1:]):
    toc.append({"offset": len(out)})
    out += member(source[first:last])
out += member(entry(".no.prefetch.landmark", b"\x0f"))
place = len(out)
out += member(entry("stargz.index.json", json.dumps({"version": 1, "entries": toc}).encode()) + bytes(1024))
extra = b"SG" + struct.pack("<H", 22) + b"%016xSTARGZ" % place
out += b"\x1f\x8b\x08\x04\0\0\0\0\0\xff" + struct.pack("<H", len(extra)) + extra + b"\x01\0\0\xff\xff" + bytes(8)
open("tree.estargz", "wb").write(out)
PYTHON
}

@test "estargz is a layer like others: landmark and index are files" {
  make_tree
  make_estargz
  same_as_umoci tree.estargz
  unsquashfs -d '' -l image.sqsh | grep -x /stargz.index.json
  unsquashfs -d '' -l image.sqsh | grep -x /.no.prefetch.landmark
}

@test "zstd:chunked is a layer like others: its index and footer lie in skippable frames" {
  make_tree
  in_pieces tree.tar 6
  zstd -q tree.tar.?
  printf '{"version":1,"entries":[]}' | zstd -q >toc
  { cat tree.tar.?.zst
    printf '\x50\x2a\x4d\x18'; python3 -c 'import struct, os, sys; sys.stdout.buffer.write(struct.pack("<I", os.path.getsize("toc")))'; cat toc
    printf '\x50\x2a\x4d\x18\x40\0\0\0'; head -c 56 /dev/zero; printf GNUlInUx; } >chunked.zst
  same_content chunked.zst
}

@test "zstd:chunked as skopeo makes it, from a registry" {
  cd "$work"
  local image
  for image in weird:latest debian:12; do
    skopeo copy -q --dest-compress --dest-compress-format zstd:chunked "oci:$SITULA_LAB_IMAGES/$image" "docker://registry.test/chunked/$image"
    skopeo inspect --raw "docker://registry.test/chunked/$image" | grep -q zstd-chunked.manifest-position
    same_tree "chunked/$image" "$image"
  done
}

@test "tar: ustar, v7, GNU and pax, with long names and links" {
  make_tree
  local format
  for format in gnu pax; do
    tar -C tree --format=$format --sort=name -cf a.tar .
    same_as_umoci a.tar
  done
  for format in ustar v7; do
    tar -C tree --format=$format --sort=name -cf a.tar ./etc/numbers ./usr
    same_as_umoci a.tar
  done
}

@test "tar: sparse files of GNU and of pax 0.0, 0.1 and 1.0" {
  cd "$work"
  mkdir tree
  truncate -s 3M tree/hole
  truncate -s 9G tree/huge
  printf middle | dd of=tree/huge bs=1 seek=9000000000 conv=notrunc status=none
  seq 1000 | dd of=tree/ends bs=1000 seek=2000 status=none
  # So many pieces that GNU's header needs extensions.
  python3 -c 'f = open("tree/comb", "wb"); [(f.seek(i * 65536), f.write(b"%d" % i)) for i in range(200)]; f.truncate(200 * 65536)'
  local options
  for options in --format=gnu "--format=pax --sparse-version=0.0" "--format=pax --sparse-version=0.1" "--format=pax --sparse-version=1.0"; do
    tar -C tree $options --sort=name -Scf a.tar .
    [ "$(stat -c %s a.tar)" -lt 2000000 ]
    rm -rf layout image.sqsh mount
    "$here/make-layout" layout a.tar
    situla import -o image.sqsh oci:layout
    mkdir mount
    mount -t squashfs -o loop,ro,nodev,nosuid image.sqsh mount
    run bash -c 'cmp mount/hole tree/hole && cmp mount/ends tree/ends && cmp mount/comb tree/comb &&
      stat -c %s mount/huge && dd if=mount/huge bs=1 skip=8999999999 count=8 status=none | od -An -c'
    umount mount
    echo "$options: $output"
    [ "$status" = 0 ]
    [ "${lines[0]}" = 9663676416 ]
    [ "$(tr -d ' ' <<<"${lines[1]}")" = '\0middle\0' ]
  done
}

@test "tar: times are whole seconds, rounded down; before 1970 and beyond 2106 as near as squashfs has them" {
  cd "$work"
  python3 - <<'PYTHON'
import io, tarfile
with tarfile.open("a.tar", "w", format=tarfile.PAX_FORMAT) as out:
    for name, time in (("fraction", 1700000000.75), ("old", -5.5), ("far", 9999999999)):
        info = tarfile.TarInfo(name)
        info.mtime = time
        out.addfile(info)
PYTHON
  "$here/make-layout" layout a.tar
  situla import -o image.sqsh oci:layout
  mkdir mount
  mount -t squashfs -o loop,ro,nodev,nosuid image.sqsh mount
  run stat -c '%n %Y' mount/fraction mount/old mount/far
  umount mount
  [ "$output" = "$(printf 'mount/fraction 1700000000\nmount/old 0\nmount/far 4294967295')" ]
}

@test "tar: one block at the end, none, or anything behind it" {
  make_tree
  local end
  end=$(python3 -c 'import tarfile; t = tarfile.open("tree.tar"); t.getmembers(); print(t.offset)')
  head -c "$end" tree.tar >none.tar
  same_as_umoci none.tar
  head -c $((end + 512)) tree.tar >one.tar
  same_as_umoci one.tar
  { cat tree.tar; head -c 100000 /dev/urandom; } >garbage.tar
  same_as_umoci garbage.tar
  { cat tree.tar; head -c 3000000 /dev/zero; } >zeros.tar
  same_as_umoci zeros.tar
  gzip garbage.tar
  same_as_umoci garbage.tar.gz
}

@test "tar: the last of several entries of one name counts; global headers are passed over" {
  cd "$work"
  python3 - <<'PYTHON'
import io, tarfile
def put(out, name, content=b"", kind=tarfile.REGTYPE, link="", mode=0o644):
    info = tarfile.TarInfo(name)
    info.type, info.size, info.linkname, info.mode = kind, len(content), link, mode
    out.addfile(info, io.BytesIO(content))
with tarfile.open("twice.tar", "w") as out:
    put(out, "a", b"first")
    put(out, "a", b"second", mode=0o600)
    put(out, "b", b"file")
    put(out, "b", kind=tarfile.SYMTYPE, link="a")
    put(out, "c", kind=tarfile.SYMTYPE, link="a")
    put(out, "c", b"a file again")
    put(out, "d", kind=tarfile.DIRTYPE, mode=0o755)
    put(out, "d/inside", b"1")
    put(out, "d", kind=tarfile.DIRTYPE, mode=0o700)
    put(out, "h", kind=tarfile.LNKTYPE, link="a")
    put(out, "a", b"third")
with tarfile.open("global.tar", "w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "a commit"}) as out:
    put(out, "g", b"content")
PYTHON
  same_as_umoci twice.tar
  rm -rf layout image.sqsh
  "$here/make-layout" layout global.tar
  situla import -o image.sqsh oci:layout
  [ "$(unsquashfs -cat image.sqsh g)" = content ]
}

@test "empty layers: no bytes, an archive of nothing, compressed nothing; and no layer at all" {
  make_tree
  head -c 10240 /dev/zero >empty.tar
  : >nothing
  gzip -k empty.tar
  gzip <nothing >nothing.gz
  zstd -q <nothing >nothing.zst
  same_as_umoci empty.tar tree.tar empty.tar.gz
  same_content nothing tree.tar nothing.gz nothing.zst empty.tar
  "$here/make-layout" none
  situla import -o none.sqsh oci:none
  unsquashfs -d '' -l none.sqsh | grep -x /etc/rc
}

@test "an image of 127 layers" {
  cd "$work"
  local i
  mkdir tree
  for i in $(seq 127); do
    rm -rf tree/*
    mkdir "tree/d$((i % 5))"
    echo "$i" >"tree/d$((i % 5))/$((i % 11))"
    echo "$i" >"tree/only-$i"
    if [ $((i % 9)) = 0 ]; then touch "tree/d$((i % 5))/.wh..wh..opq"; fi
    if [ "$i" -gt 20 ] && [ $((i % 7)) = 0 ]; then touch "tree/.wh.only-$((i - 10))"; fi
    tar -C tree --sort=name -cf "$(printf layer-%03d "$i")" .
  done
  same_as_umoci layer-*
}

@test "an image of another architecture is imported with a warning" {
  make_tree
  "$here/make-layout" --arch riscv64 layout tree.tar
  run situla import -o image.sqsh oci:layout
  echo "$output"
  [ "$status" = 0 ]
  [ "$(grep -c "Image architecture doesn't match the requested one: riscv64 != $(dpkg --print-architecture)" <<<"$output")" = 1 ]
  run situla import -a riscv64 -o other.sqsh oci:layout
  [[ "$output" != *"doesn't match"* ]]
  "$here/make-layout" --arch "$(dpkg --print-architecture)/v9" newer tree.tar
  run situla import -o newer.sqsh oci:newer
  [ "$status" = 0 ]
  [[ "$output" == *"The image is for $(dpkg --print-architecture)/v9, which not every"* ]]
}
