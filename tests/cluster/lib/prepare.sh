# What is made once and reused by every instance: Situla installed, test images, certificates. Sourced by run after common.sh.
# shellcheck shell=bash

# Builds and installs when a source is newer than the last installation. Instances copy the prefix, so installing does not disturb them.
prepare_situla() {
  local sources=(CMakeLists.txt CMakePresets.json packaging common hooks plugin conf) stamp=$lab_state/prefix.stamp
  (
    flock 9
    cd "$lab_repo" || exit 1
    if [ -e "$stamp" ] && [ -z "$(find "${sources[@]}" -newer "$stamp" -print -quit 2>/dev/null)" ]; then
      exit 0
    fi
    touch "$stamp.new"
    {
      cmake --preset release -DCMAKE_INSTALL_PREFIX="$lab_prefix" -DSITULA_LIBEXEC_DIR="$lab_prefix/libexec/situla" &&
        cmake --build --preset release --target common/all hooks/all plugin/all packaging/all &&
        rm -rf "$lab_state/stage" &&
        DESTDIR=$lab_state/stage cmake --install build/release
    } >"$lab_state/build.log" 2>&1 || {
      tail -n 30 "$lab_state/build.log" >&2
      die "building Situla failed; the whole log is $lab_state/build.log"
    }
    rm -rf "$lab_prefix"
    mv "$lab_state/stage$lab_prefix" "$lab_prefix"
    rm -rf "$lab_state/stage"
    mv "$stamp.new" "$stamp"
  ) 9>"$lab_state/build.lock"
}

prepare_images() {
  "$lab_source/images/build" "$@" || die "making the test images failed"
}

# A CA of the lab's own, one certificate for all its hosts, one certificate of another CA, a key that signs tokens.
prepare_certificates() (
  flock 9
  cd "$lab_state/tls" || exit 1
  local host names="IP:::1"
  for host in "${lab_hosts[@]}" "${lab_real_names[@]}"; do names+=",DNS:${host#* }"; done
  [ "$(cat made 2>/dev/null)" != "$names" ] || exit 0
  {
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -subj "/CN=Situla lab CA" -keyout ca.key -out ca.crt
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=registry.test" -keyout server.key -out server.csr
    openssl x509 -req -in server.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 3650 -out server.crt \
      -extfile <(echo "subjectAltName=$names")
    openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=badcert.test" -addext "subjectAltName=DNS:badcert.test" \
      -keyout stranger.key -out stranger.crt
    openssl req -x509 -newkey rsa:2048 -nodes -days 3650 -subj "/CN=token signer" -keyout token.key -out token.crt
    htpasswd -Bbn "$lab_registry_user" "$lab_registry_password" >htpasswd
  } >openssl.log 2>&1 || { cat openssl.log >&2; die "making the lab's certificates failed"; }
  echo "$names" >made
) 9>"$lab_state/tls.lock"
