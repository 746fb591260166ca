# lab: --user root
# A registry that answers as no honest one does: an import ends with an error that says why, in bounded memory, and leaves nothing.
# hostile_registry.py is the registry.
load ../cluster/helpers

setup_file() {
  chmod 755 "$BATS_RUN_TMPDIR" "$BATS_SUITE_TMPDIR" "$BATS_FILE_TMPDIR"
  mkdir "$BATS_FILE_TMPDIR/layouts"
  for image in xattrs_distinct zstd_window_and_names manifest_of_100_mb layers_10000 deep_paths_by_turns; do
    python3 "$BATS_TEST_DIRNAME/hostile_images.py" write "$image" "$BATS_FILE_TMPDIR/layouts/$image"
  done
  python3 "$BATS_TEST_DIRNAME/hostile_registry.py" serve "$SITULA_LAB_IMAGES/../tls" "$BATS_FILE_TMPDIR/layouts" 3>&- &
  echo $! >"$BATS_FILE_TMPDIR/server"
  wait_until 20 curl -s -o /dev/null https://fault.test:8443/
}

teardown_file() {
  kill "$(<"$BATS_FILE_TMPDIR/server")"
}

# asked COMMAND... -- REPOSITORY...: the table in $BATS_TEST_TMPDIR/table; fails where a program had 256 MiB or more.
asked() {
  python3 "$BATS_TEST_DIRNAME/hostile_registry.py" ask "$@" | cut -c1-1000 >"$BATS_TEST_TMPDIR/table"
  cat "$BATS_TEST_TMPDIR/table"
  awk -F'\t' 'NR > 1 { n = split($4, programs, /[ :]/); for (i = 2; i <= n; i += 2) if (programs[i] >= 256) over = 1 } END { exit over }' \
    "$BATS_TEST_TMPDIR/table"
}

# as_told: each line of stdin, "REPOSITORY TEXT", is a row that failed with an error that has the text.
as_told() {
  local repository text wrong=0
  while read -r repository text; do
    repository=$repository text=$text awk -F'\t' '$1 == ENVIRON["repository"] && $2 == 1 && index($5, ENVIRON["text"]) { good = 1 } END { exit !good }' \
      "$BATS_TEST_TMPDIR/table" || { echo "$repository: not '$text'"; wrong=1; }
  done
  return $wrong
}

# before: a manifest and a layer that came by drops were still coming after 20 s, when timeout(1) ended the import; a host of 90 KB was printed
# whole, "talk to : Protocol "file" not supported", and a header that is too long was called "out of memory"
@test "answers without an end, and with two meanings" {
  local home="$BATS_TEST_TMPDIR/home"
  install -d -o alice -m 700 "$home"
  chmod 711 "$BATS_TEST_TMPDIR"
  cat >"$BATS_TEST_TMPDIR/told" <<'END'
http/endless_headers headers
http/header_of_100_mb a header longer than
http/endless_interim_answers headers
http/endless_redirects Maximum (10) redirects followed
http/redirect_to_a_file talk to fault.test:8443: Protocol "file" not supported
http/redirect_to_http talk to plain.test: Protocol "http" not supported
http/redirect_of_100_kb hhh...
http/length_too_long the connection broke
http/length_too_short not JSON
http/length_of_8_eib the answer of fault.test:8443 has
http/two_lengths its content has the digest
http/endless_chunks the answer of fault.test:8443 has
http/endless_chunk_size fault.test:8443
http/endless_trailers sends more than 512.0 KiB of headers
http/endless_error the answer of fault.test:8443 has
http/endless_token the answer is larger than 1.0 MiB
http/endless_refusals login needed, but there are no credentials
http/long_words access is forbidden (403), the registry says: \x1b[31mx
http/endless_error_of_a_layer access is forbidden (403)
http/layer_too_long its content has the digest
http/manifest_by_drops brings fewer than 1024 bytes per second for 1 s
http/layer_by_drops brings fewer than 1024 bytes per second for 1 s
END
  # shellcheck disable=SC2046
  asked runuser -u alice -- env HOME="$home" ENROOT_CACHE_PATH="$home/cache" ENROOT_STALL_TIMEOUT=1 timeout 60 situla import -o "$home/image.sqsh" 'docker://{image}' \
    -- $(cut -d' ' -f1 "$BATS_TEST_TMPDIR/told")
  as_told <"$BATS_TEST_TMPDIR/told"
  [ -z "$(find "$home" -name '*sqsh*')" ]
}

# before: the image with deep paths was imported; the others were refused with these words
@test "hostile images through the whole chain take no more memory of the node than honest ones" {
  snapshot
  cat >"$BATS_TEST_TMPDIR/told" <<'END'
image/xattrs_distinct raise xattrs in the table [limits] of /etc/situla/situla.toml
image/zstd_window_and_names raise metadata in the table [limits] of /etc/situla/situla.toml
image/manifest_of_100_mb raise manifest_size in
image/layers_10000 the image has 10000 layers, the limit is 512
image/deep_paths_by_turns lead over more than
END
  # shellcheck disable=SC2046
  asked runuser -u alice -- env HOME=/home/alice srun --container-image='{image}' true -- $(cut -d' ' -f1 "$BATS_TEST_TMPDIR/told")
  as_told <"$BATS_TEST_TMPDIR/told"
  nothing_left
}
