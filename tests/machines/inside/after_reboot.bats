# What a reboot in the middle of a step and of an import leaves: the disk of steps.bats, booted again.
load helpers

@test "after the reboot no mount, lease or unfinished file is left, and the doctor and verify have nothing to say" {
  ! findmnt --raw --noheadings --output TARGET | grep situla/ || false
  run losetup --list --noheadings
  [ -z "$output" ]
  run situla doctor
  echo "$output"
  [ "$status" -eq 0 ]
  ! grep -E '^ *fail' <<<"$output" || false
  run situla verify
  echo "$output"
  [ "$status" -eq 0 ]
}

@test "the next step gets the image that was being imported" {
  step --container-image=registry.test#debian:12 sh -c '. /etc/os-release; echo $VERSION_CODENAME'
  [ "$output" = bookworm ]
  # With it goes what the one before the reboot has left.
  none_under_way() { [ -z "$(of_store find /var/lib/situla/leases /var/lib/situla/slots -type f)" ]; }
  wait_until 60 none_under_way
}

@test "the named container has what was written before" {
  step --container-name=rebooted --container-writable sh -c 'cat /srv/note; echo after >>/srv/note'
  [ "$output" = before ]
  step --container-name=rebooted --container-writable cat /srv/note
  [ "$output" = $'before\nafter' ]
  run as_alice situla list
  echo "$output"
  [[ $output == *rebooted* ]]
}
