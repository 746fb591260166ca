# lab: none
# The guide to the code: every file that it names is there, and its commands work. It brings up labs of its own.

repository=$BATS_TEST_DIRNAME/../..
guide=packaging/guides/code.md

setup() { cd "$repository"; }

@test "every file and folder that the guide and the READMEs of the folders it replaces name exists" {
  local name missing=""
  for name in $(grep -oE '`(common|hooks|plugin|conf|packaging|tests)/[A-Za-z0-9_./-]*`' "$guide" | tr -d '`' | sort -u); do
    [ -e "$name" ] || missing+=" $name"
  done
  echo "missing:$missing"
  [ -z "$missing" ]
  [ "$(grep -coE '`(common|hooks|plugin)/' "$guide")" -gt 30 ]
}

@test "the commands of the guide run" {
  tests/guides/blocks packager "$guide" >"$BATS_TEST_TMPDIR/script"
  timeout 1800 bash "$BATS_TEST_TMPDIR/script" </dev/null
}

@test "every README of a folder is one screen" {
  local file
  for file in $(git ls-files '*README.md' | grep / | grep -v -e '^tests/bench'); do
    [ "$(wc -l <"$file")" -le 60 ] || echo "$file: $(wc -l <"$file") lines"
  done >"$BATS_TEST_TMPDIR/long"
  cat "$BATS_TEST_TMPDIR/long"
  [ ! -s "$BATS_TEST_TMPDIR/long" ]
}
