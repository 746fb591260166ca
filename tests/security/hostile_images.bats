# lab: --user alice
# Images that are small to fetch and want to be large: an import stays under 256 MiB of memory, or is refused with a number and where an
# administrator changes it, and leaves nothing. hostile_images.py makes them and measures; its table has more cases than are asserted here.

setup() {
  export ENROOT_CACHE_PATH="$BATS_TEST_TMPDIR/cache" ENROOT_TEMP_PATH="$BATS_TEST_TMPDIR"
}

# imported CASE...: one line each, "CASE STATUS LEFT ERROR"; fails where a process had 256 MiB or more.
imported() {
  python3 "$BATS_TEST_DIRNAME/hostile_images.py" measure --timeout 300 prlimit --as=6442450944 situla import -o '{target}' '{image}' -- "$@" \
    >"$BATS_TEST_TMPDIR/table"
  cut -f1,3- "$BATS_TEST_TMPDIR/table"
  awk -F'\t' 'NR > 1 && $3 >= 256 { over = 1 } END { exit over }' "$BATS_TEST_TMPDIR/table"
}

# refused TEXT CASE...: each ends with an error that has TEXT, and leaves nothing.
refused() {
  local text=$1
  shift
  imported "$@"
  awk -F'\t' -v text="$text" 'NR > 1 && ($5 != 1 || $6 != 0 || index($7, text) == 0) { print "not refused: " $0; bad = 1 } END { exit bad }' "$BATS_TEST_TMPDIR/table"
}

# before: imported; 10 MB of layer with 400,000 long directories took 651 MiB, 650 KB with paths 2000 deep 717 MiB, 40 layers upon each other 303 MiB
@test "names, directories and depth are limited by memory" {
  refused "raise metadata in the table [limits] of /etc/situla/situla.toml" directories_2_million depth_4095 layers_that_hide
}

# before: 2 GiB of memory after a minute, and not at its end
@test "a hundred million empty files are refused" {
  refused "raise metadata in" empty_files_100_million
}

# before: 6 MB of layer took 3732 MiB
@test "attributes that differ are limited" {
  refused "raise xattrs in the table [limits] of /etc/situla/situla.toml" xattrs_distinct
}

# before: imported, with 1900 MiB
@test "attributes that are the same are kept once" {
  imported xattrs_equal
  [ "$(awk -F'\t' 'NR > 1 { print $5 }' "$BATS_TEST_TMPDIR/table")" = 0 ]
}

# before: 164 KB of layer took 1852 MiB inside libarchive
@test "the map of a sparse file is limited" {
  refused "have more than 2.0 MiB" sparse_map_of_40_million
}

# before: still writing zeros after a minute
@test "a file of 8 EiB is refused at its header" {
  refused "read tar: Tar entry size overflow" file_of_8_eib
  refused "raise file_size in the table [limits] of /etc/situla/situla.toml" sparse_of_8_eib
}

# before: imported: 100 GiB of zeros of gzip in 42 s, 200 GiB of zstd in 26 s; 100 GiB of letters were still being written after a minute
@test "bombs of gzip and zstd are refused" {
  refused "raise expansion in the table [limits] of /etc/situla/situla.toml" gzip_bomb_of_members gzip_bomb_of_letters zstd_bomb zstd_bomb_behind_the_archive
}

# before: still following them after a minute
@test "links that lead through links are not followed for ever" {
  refused "too many levels of symbolic links" links_in_circles
}

# before: imported; of eight times as many files, 2.5 MB of layer, in 26 s, and beneath another layer in 145 s
@test "deep paths are not walked for ever" {
  refused "lead over more than" deep_paths_by_turns deep_paths_below_a_layer
}

# before: still looking after 200 s, at a layer of 235 KB that is there 300 times
@test "hidden files of lower layers are not looked for for ever" {
  refused "lead over more than" deep_paths_in_many_layers
}

# before: still comparing after 100 s, at 130 KB of layer with 5,000 small files; after 25 s at 10 MB with 20,000 large ones
@test "contents that were made to have one checksum are not compared for ever" {
  refused "made to have the same checksums" small_files_of_one_checksum large_files_of_one_checksum
}

# before: imported in 53 and 47 s; 65,000 values, or names, in 1.5 MB of layer
@test "attributes that were made to have one checksum are not compared for ever" {
  refused "made to have the same checksums" xattr_values_of_one_checksum xattr_names_of_one_checksum
}

# before: imported in 8 s; 2.6 MB of layer, 30 entries with 34,000 attributes each
@test "the attributes of one entry are limited" {
  refused "the limit is 64.0 KiB" xattrs_of_one_entry
}

# before: 50 s of writing zeros, before the bottom layer turned out not to be what the manifest says
@test "holes of sparse files count against what has come, not against what the manifest claims" {
  refused "raise expansion in the table [limits] of /etc/situla/situla.toml" sparse_below_a_liar
}

# before: the window and the names together took 292 MiB
@test "the window of a zstd layer counts as memory" {
  refused "raise metadata in" zstd_window_and_names
  imported zstd_window_of_128_mib hard_links_1_million
  [ "$(awk -F'\t' 'NR > 1 { print $5 }' "$BATS_TEST_TMPDIR/table" | sort -u)" = 0 ]
}

# before: 4 MB of nested manifest took 161 MiB, 15 MB of configuration 379 MiB, 300,000 annotations more than a minute; "too many layers" had no number
@test "manifests and configurations are limited in size, depth and values" {
  refused "raise manifest_size in" manifest_of_100_mb index_of_100000
  refused "raise config_size in" config_of_100_mb
  refused "nested more than 64 deep" manifest_deep config_deep
  refused "more than 100000 values" manifest_huge_annotations
  refused "the image has 10000 layers, the limit is 512" layers_10000
}
