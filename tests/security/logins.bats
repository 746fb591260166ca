# lab: --user root
# Who gets a login? The registry it is for, and nobody whom a registry names.
load ../cluster/helpers

# authorized NAME HOST: whether a request for fault.test/NAME to HOST carried a login.
authorized() { curl -s "https://fault.test/stats/$1" | jq -c --arg host "$2" '.logins[$host] // [] | any'; }

setup() {
  chmod 777 "$BATS_TEST_TMPDIR"
  chmod 755 "$BATS_RUN_TMPDIR" "$BATS_SUITE_TMPDIR" "$BATS_FILE_TMPDIR" "${BATS_TEST_TMPDIR%/*}"
}

# before: "manifest: the login as alice is refused (401)", by the registry that had been given alice's token: the log of fault.test had alice's token of auth-token.test: logins [false,true]
@test "a registry that names another registry's token server gets no token" {
  run_and_show as_alice srun --container-image=fault.test/greedy/step true
  [ "$status" -ne 0 ]
  grep -q 'ENROOT_TOKEN_SERVERS=fault.test=auth-token.test' <<<"$output"
  [ "$(authorized greedy/step fault.test)" = false ]
}
# before: the same of the command
@test "a registry that names another registry's token server gets no token from the command" {
  run_and_show as_alice situla import -o "$BATS_TEST_TMPDIR/x.sqsh" docker://fault.test/greedy/command
  [ "$status" -ne 0 ]
  grep -q 'ENROOT_TOKEN_SERVERS=fault.test=auth-token.test' <<<"$output"
  [ "$(authorized greedy/command fault.test)" = false ]
  # Where alice says that the two belong together it does.
  run_and_show as_alice env ENROOT_TOKEN_SERVERS=fault.test=auth-token.test situla import -o "$BATS_TEST_TMPDIR/x.sqsh" docker://fault.test/greedy/agreed
  [ "$status" -ne 0 ]
  [ "$(authorized greedy/agreed fault.test)" = true ]
}
# before: the same
@test "a token server that the site has written down needs nothing of the user" {
  run_and_show as_alice srun --container-image=token.test/tiny true
  [ "$status" -eq 0 ]
}
# before: the same
@test "a redirect to another host gets no login" {
  printf 'machine fault.test login alice password secret\n' >>/home/alice/.config/enroot/.credentials
  run_and_show as_alice srun --container-image=fault.test/redirect-login true
  [ "$status" -eq 0 ]
  [ "$(authorized redirect-login fault.test)" = true ]
  [ "$(authorized redirect-login content.test)" = false ]
}
