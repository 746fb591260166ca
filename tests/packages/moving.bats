# lab: none
# packaging/guides/moving.md on a machine that uses pyxis and enroot (stand_ins.bash), command by command, there and back. One machine; each test
# goes on where the one before it ended.
load helpers
load stand_ins

setup_file() {
  build_packages
  start_machine slurm
  make_stand_ins "$machine/old"
  mkdir "$machine/here"
  guide install.md install "A Slurm to try it on"
  on sh -c 'apt-get install -y /shared/old/*.deb'
  write_site
  write_user
  configuration >"$machine/configuration"
}

teardown_file() { stop_machine; }

configuration() { on sh -c 'find /etc/enroot /home/alice/.config -type f -exec sha256sum {} + | sort'; }
offer() {
  rm -rf "$machine"/here/*
  cp "$@" "$machine/here/"
  rm -f "$machine"/here/*-dbgsym_*
}
unchanged() { diff "$machine/configuration" <(configuration); }

@test "before: jobs and users meet enroot and pyxis" {
  run -0 as_alice enroot version
  [ "$output" = "enroot stand-in 4.0.1" ]
  run -0 as_alice srun --container-image=debian:12 true
  [[ $output == *"pyxis stand-in: debian:12"* ]]
}

@test "one command exchanges the packages; the configuration stays, to the byte" {
  guide moving.md moving Before
  offer "$packages"/1/*.deb
  guide moving.md moving 'To Situla'
  run on dpkg-query -W -f '${Package} ${db:Status-Status}\n' enroot enroot+caps nvslurm-plugin-pyxis situla situla-enroot situla-slurm-plugin
  echo "$output"
  [ "$(grep -c ' installed' <<<"$output")" -eq 3 ]
  grep -qx 'enroot config-files' <<<"$output"
  unchanged
}

@test "a user's first look" {
  run guide moving.md user 'To Situla'
  echo "$output"
  [ "$status" -eq 0 ]
  grep -q '^VERSION_CODENAME=bookworm' <<<"$output"
  grep -qx old <<<"$output"
}

@test "hook, mount, variables and enroot.conf of the site hold in srun" {
  # shellcheck disable=SC2016
  run -0 as_alice srun --container-image=debian:12 sh -c 'echo "$SITE_HOOK"; cat /srv/site/file; [ -n "$SITE_VARIABLE" ] && touch /written && echo writable'
  [ "$(grep -v '^situla\|^slurmstepd\|^srun: job ' <<<"$output")" = "ran for alice"$'\n'"from the site's directory"$'\n'writable ] || { echo "$output"; false; }
}

@test "and in enroot start, of a container and of an image from before" {
  # shellcheck disable=SC2016
  run -0 as_alice enroot start old sh -c 'cat /etc/mark; echo "$SITE_HOOK"; cat /srv/site/file'
  [ "$output" = "written in the time of enroot"$'\n'"ran for alice"$'\n'"from the site's directory" ] || { echo "$output"; false; }
  run -0 as_alice enroot start old.sqsh cat /etc/mark
  [ "$output" = "written in the time of enroot" ]
  run -0 as_alice srun --container-image=./old.sqsh cat /etc/mark
  [[ $output == *"written in the time of enroot"* ]]
}

@test "credentials are used" {
  as_alice srun --container-image='auth.test#tiny' true
  on mv /home/alice/.config/enroot/.credentials /home/alice/.config/enroot/.credentials.away
  run as_alice srun --container-image='auth.test#tiny' true
  on mv /home/alice/.config/enroot/.credentials.away /home/alice/.config/enroot/.credentials
  [ "$status" -ne 0 ]
}

@test "and back: the old packages find everything as they left it" {
  offer "$machine"/old/*.deb
  guide moving.md moving Back
  unchanged
  run -0 as_alice enroot version
  [ "$output" = "enroot stand-in 4.0.1" ]
  run -0 as_alice srun --container-image=debian:12 true
  echo "$output"
  [[ $output == *"pyxis stand-in: debian:12"* ]]
  run on dpkg-query -W -f '${Package} ${db:Status-Status}\n' 'situla*'
  if grep ' installed' <<<"$output"; then false; fi
  on grep -q execute_entrypoint=0 /etc/slurm/plugstack.conf.d/pyxis.conf
}

@test "there once more, with the settings of the first time" {
  offer "$packages"/1/*.deb
  guide moving.md moving 'To Situla'
  run -0 as_alice srun --container-image=debian:12 cat /srv/site/file
  unchanged
}
