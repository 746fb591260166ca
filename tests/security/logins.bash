# A login that alice's own command finds: for suites that look where that command runs. Loaded by .bats files.

keep_login() {
  mkdir -p /home/alice/.config/enroot
  cp /home/alice/.config/enroot/.credentials "$BATS_FILE_TMPDIR/credentials" 2>/dev/null || true
}
restore_login() {
  [ ! -e "$BATS_FILE_TMPDIR/credentials" ] || install -o alice -m 600 "$BATS_FILE_TMPDIR/credentials" /home/alice/.config/enroot/.credentials
}
# password_from COMMAND
password_from() {
  echo "machine auth.test login alice password \$($1; echo secret)" >/home/alice/.config/enroot/.credentials
  chown -R alice: /home/alice/.config
  chmod 600 /home/alice/.config/enroot/.credentials
}
