# lab:
# enroot.conf and image references, form by form, against the real program. What is expected comes from COMPAT.md 3 and 4.
bats_require_minimum_version 1.5.0

setup_file() {
  export shared=$(mktemp -d "$HOME/configuration.XXXXXX")
  cd "$shared"
  ENROOT_DATA_PATH=$shared/data enroot load -n tiny docker://registry.test#tiny
}

teardown_file() {
  cd /
  chmod -R u+rwX "$shared"
  rm -rf "$shared"
}

setup() {
  work=$shared/$BATS_TEST_NUMBER
  mkdir -p "$work/etc/enroot.conf.d"
  cd "$work"
  export ENROOT_SYSCONF_PATH=$work/etc ENROOT_DATA_PATH=$shared/data
}

# value KEY: what is in effect, from the program itself.
value() { situla info --json | jq -r --arg key "$1" '.configuration[$key] // "(none)"'; }

# check TABLE: lines "what enroot.conf says => value of ENROOT_X"; all of them are tried.
check() {
  local line failed=0 found
  while IFS= read -r line; do
    [ -n "$line" ] || continue
    printf '%s\n' "${line% => *}" >etc/enroot.conf
    found=$(value ENROOT_X 2>stderr)
    [ "$found" = "${line##* => }" ] || { failed=1; echo "${line% => *}: '$found' instead of '${line##* => }'"; cat stderr; }
  done
  return $failed
}

@test "lines of enroot.conf: both forms, comments, quotes" {
  check <<'END'
ENROOT_X value => value
ENROOT_X=value => value
ENROOT_X = value => value
ENROOT_X	value => value
   ENROOT_X   value    => value
ENROOT_X=a=b => a=b
ENROOT_X -noI -noD -noF -noX -no-duplicates => -noI -noD -noF -noX -no-duplicates
ENROOT_X=-comp zstd -Xcompression-level 3 -b 1M => -comp zstd -Xcompression-level 3 -b 1M
ENROOT_X "two  words" => two  words
ENROOT_X 'a $HOME b' => a $HOME b
ENROOT_X two    words => two words
ENROOT_X value # a comment => value
# ENROOT_X value => (none)
#ENROOT_X value => (none)
ENROOT_X => (none)
ENROOT_X= => (none)
END
}

@test "values are what eval echo prints" {
  export HOME=/home/alice
  check <<END
ENROOT_X \$HOME/x => /home/alice/x
ENROOT_X \${HOME}/x => /home/alice/x
ENROOT_X ~/x => /home/alice/x
ENROOT_X \${XDG_DATA_HOME}/x => /home/alice/.local/share/x
ENROOT_X \${XDG_CONFIG_HOME}/x => /home/alice/.config/x
ENROOT_X \${XDG_CACHE_HOME}/x => /home/alice/.cache/x
ENROOT_X /run/enroot/user-\$(id -u) => /run/enroot/user-$(id -u)
ENROOT_X /run/enroot/\`id -un\` => /run/enroot/alice
ENROOT_X \${NOT_SET}x => x
ENROOT_X \${NOT_SET:-default} => default
ENROOT_X \${HOME##*/} => alice
ENROOT_X \$((2 * 21)) => 42
ENROOT_X \\\$HOME => \$HOME
ENROOT_X {a,b}c => ac bc
ENROOT_X \$(exit 3) => (none)
END
}

@test "the first definition wins, enroot.conf before enroot.conf.d, which is read by name" {
  printf '%s\n' 'ENROOT_A one' 'ENROOT_A two' 'ENROOT_EMPTY' 'ENROOT_BASE /base' >etc/enroot.conf
  printf '%s\n' 'ENROOT_A ten' 'ENROOT_B ten' 'ENROOT_EMPTY ten' 'ENROOT_LATER ${ENROOT_BASE}/x' >etc/enroot.conf.d/10-a.conf
  printf '%s\n' 'ENROOT_B twenty' 'ENROOT_C twenty' >etc/enroot.conf.d/20-b.conf
  printf '%s\n' 'ENROOT_C other' 'ENROOT_D other' >etc/enroot.conf.d/05-no.txt
  [ "$(value ENROOT_A)" = one ]
  [ "$(value ENROOT_B)" = ten ]
  [ "$(value ENROOT_C)" = twenty ]
  [ "$(value ENROOT_D)" = "(none)" ]
  [ "$(value ENROOT_EMPTY)" = ten ]
  [ "$(value ENROOT_LATER)" = /base/x ]
}

@test "the environment beats the files unless it is empty" {
  printf '%s\n' 'ENROOT_X file' 'https_proxy http://file:1' 'SSL_CERT_FILE /file' 'NVIDIA_VISIBLE_DEVICES none' 'MELLANOX_X file' >etc/enroot.conf
  [ "$(value ENROOT_X)" = file ]
  [ "$(ENROOT_X=environment value ENROOT_X)" = environment ]
  [ "$(ENROOT_X='' value ENROOT_X)" = file ]
  [ "$(ENROOT_X='$HOME' value ENROOT_X)" = '$HOME' ]
  [ "$(https_proxy=http://environment:2 value https_proxy)" = http://environment:2 ]
  [ "$(value SSL_CERT_FILE)" = /file ]
  [ "$(NVIDIA_VISIBLE_DEVICES=all value NVIDIA_VISIBLE_DEVICES)" = all ]
  [ "$(value MELLANOX_X)" = file ]
}

@test "keys that are none of enroot's are not taken, and said" {
  printf '%s\n' 'PATH /nowhere' 'LD_PRELOAD /x.so' 'enroot_x y' 'ENROOT_lower y' 'HTTP_PROXY http://x' 'ENROOT_X taken' >etc/enroot.conf
  run --separate-stderr situla info --json
  [ "$status" -eq 0 ]
  [ "$(jq -r '.configuration | keys[]' <<<"$output" | grep -cxE 'PATH|LD_PRELOAD|enroot_x|ENROOT_lower|HTTP_PROXY')" = 0 ]
  [ "$(jq -r .configuration.ENROOT_X <<<"$output")" = taken ]
  [ "$(grep -c '^\[WARN\] .*enroot.conf:[0-9]*: ignoring unknown key' <<<"$stderr")" = 5 ]
}

@test "ten words are false, what says yes is true, and 0 and off with a warning; anything else is an error" {
  run -0 enroot start tiny id -u
  own=$output
  failed=0
  for word in n no N No NO f F false False FALSE; do
    echo "ENROOT_REMAP_ROOT $word" >etc/enroot.conf
    [ "$(enroot start tiny id -u)" = "$own" ] || { echo "in the file, $word is true"; failed=1; }
    rm etc/enroot.conf
    [ "$(ENROOT_REMAP_ROOT=$word enroot start tiny id -u)" = "$own" ] || { echo "$word is true"; failed=1; }
  done
  for word in y yes Y YES t true True TRUE 1 on; do
    [ "$(ENROOT_REMAP_ROOT=$word enroot start tiny id -u 2>&1)" = 0 ] || { echo "$word is not true"; failed=1; }
  done
  for word in 0 off OFF; do
    run --separate-stderr env ENROOT_REMAP_ROOT=$word enroot start tiny id -u
    [ "$output" = 0 ] && [ "$stderr" = "[WARN] ENROOT_REMAP_ROOT=$word (environment) means yes, as in enroot: write no" ] || { echo "$word is not true"; failed=1; }
  done
  # enroot takes them for yes, which nobody who writes them means.
  for word in nO none nope ja fALSE FaLSE falsE ff NN; do
    run --separate-stderr env ENROOT_REMAP_ROOT=$word enroot start tiny id -u
    [ "$status" -eq 1 ] && [ -z "$output" ] && [[ $stderr == *"ENROOT_REMAP_ROOT=$word (environment) is neither yes nor no"* ]] || { echo "$word is taken"; failed=1; }
  done
  # False in the environment beats true in the file.
  echo "ENROOT_REMAP_ROOT yes" >etc/enroot.conf
  [ "$(ENROOT_REMAP_ROOT=no enroot start tiny id -u)" = "$own" ] || { echo "the file beats the environment"; failed=1; }
  [ "$(ENROOT_REMAP_ROOT='' enroot start tiny id -u)" = 0 ] || { echo "empty beats the file"; failed=1; }
  [ "$failed" = 0 ]
}

@test "directories follow the XDG base directories, and each can be set" {
  run -0 env -u ENROOT_DATA_PATH -u XDG_RUNTIME_DIR -u TMPDIR HOME=/home/alice situla info --json
  jq -er '.configuration | .ENROOT_DATA_PATH == "/home/alice/.local/share/enroot" and .ENROOT_CONFIG_PATH == "/home/alice/.config/enroot"
    and .ENROOT_CACHE_PATH == "/home/alice/.cache/enroot" and .ENROOT_TEMP_PATH == "/tmp"' <<<"$output"
  run -0 env -u ENROOT_DATA_PATH XDG_DATA_HOME=/d XDG_CONFIG_HOME=/c XDG_CACHE_HOME=/h XDG_RUNTIME_DIR=/r TMPDIR=/t situla info --json
  jq -er '.configuration | .ENROOT_DATA_PATH == "/d/enroot" and .ENROOT_CONFIG_PATH == "/c/enroot" and .ENROOT_CACHE_PATH == "/h/enroot"
    and .ENROOT_RUNTIME_PATH == "/r/enroot" and .ENROOT_TEMP_PATH == "/t"' <<<"$output"
  for key in DATA CONFIG CACHE RUNTIME TEMP LIBRARY; do
    echo "ENROOT_${key}_PATH /somewhere/$key" >etc/enroot.conf
    [ "$(env -u ENROOT_DATA_PATH situla info --json | jq -r ".configuration.ENROOT_${key}_PATH")" = "/somewhere/$key" ]
  done
}

@test "references: default file names" {
  digest=$(enroot digest docker://registry.test#tiny)
  hex=${digest#sha256:}
  failed=0
  while read -r reference file; do
    rm -f ./*.sqsh
    enroot import "$reference" 2>stderr || { echo "$reference:"; cat stderr; failed=1; continue; }
    [ "$(echo *.sqsh)" = "$file" ] || { echo "$reference: $(echo *.sqsh) instead of $file"; failed=1; }
  done <<END
docker://registry.test#tiny tiny+latest.sqsh
docker://registry.test/tiny tiny+latest.sqsh
docker://registry.test:443/tiny tiny+latest.sqsh
docker://registry.test:443#tiny tiny+latest.sqsh
registry.test#tiny tiny+latest.sqsh
registry.test/tiny:zstd tiny+zstd.sqsh
docker://registry.test#tiny:v2s2 tiny+v2s2.sqsh
docker://alice@registry.test#public/tiny:latest public+tiny+latest.sqsh
docker://alice@registry.test/public/tiny public+tiny+latest.sqsh
docker://registry.test#tiny@$digest tiny+sha256+$hex.sqsh
docker://registry.test#tiny:v2s2@$digest tiny+v2s2.sqsh
END
  # With tag and digest, the digest counts.
  rm -f ./*.sqsh
  enroot import -o both.sqsh "docker://registry.test#tiny:v2s2@$digest"
  [[ "$(situla inspect ./both.sqsh | grep '^Provenance:')" == *"$digest"* ]]
  [ "$failed" = 0 ]
}

@test "references: without a registry it is Docker Hub, under all its names; others are named as typed" {
  export ENROOT_CONNECT_TIMEOUT=2 ENROOT_TRANSFER_RETRIES=3
  failed=0
  while read -r reference image; do
    run --separate-stderr enroot digest "$reference"
    [ "$status" -eq 1 ] || failed=1
    grep -qF "$image" <<<"$stderr" || { echo "$reference: $stderr"; failed=1; }
  done <<'END'
docker://ubuntu registry-1.docker.io/library/ubuntu:latest
ubuntu registry-1.docker.io/library/ubuntu:latest
docker://ubuntu:22.04 registry-1.docker.io/library/ubuntu:22.04
docker://library/ubuntu registry-1.docker.io/library/ubuntu:latest
docker://nvidia/cuda:12.4 registry-1.docker.io/nvidia/cuda:12.4
docker://joe@ubuntu registry-1.docker.io/library/ubuntu:latest
docker://docker.io/ubuntu registry-1.docker.io/library/ubuntu:latest
docker://docker.io#nvidia/cuda registry-1.docker.io/nvidia/cuda:latest
docker://index.docker.io#ubuntu registry-1.docker.io/library/ubuntu:latest
docker://registry-1.docker.io#library/ubuntu registry-1.docker.io#library/ubuntu:
docker://$oauthtoken@nvcr.io#nvidia/pytorch:24.10-py3 $oauthtoken@nvcr.io#nvidia/pytorch:24.10-py3:
docker://nvcr.io/nvidia/pytorch:24.10-py3 nvcr.io/nvidia/pytorch:24.10-py3
docker://shortname#x/y shortname#x/y:
docker://localhost:5999/x localhost:5999/x:
END
  [ "$failed" = 0 ]
}

@test "architectures under both families of names" {
  amd64=$(enroot digest -a x86_64 docker://registry.test#multiarch)
  arm64=$(enroot digest -a aarch64 docker://registry.test#multiarch)
  [ "$amd64" != "$arm64" ]
  [ "$(enroot digest --arch amd64 docker://registry.test#multiarch)" = "$amd64" ]
  [ "$(enroot digest --arch=arm64 docker://registry.test#multiarch)" = "$arm64" ]
  [ "$(enroot digest docker://registry.test#multiarch)" = "$amd64" ]
}
