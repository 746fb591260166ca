# lab:
# What a start changes in a container's root is printed by one printer: before it (start --dry-run) and while it is done (SITULA_DEBUG).
load helpers

setup() { cd "$HOME"; }

@test "the plan of a container: a dry run, a start and a step say the same of it" {
  local mount=/tmp:/data:none:x-create=dir,bind,ro line
  situla import -o tiny.sqsh docker://registry.test/tiny
  run -0 situla start --dry-run --mount "$mount" tiny.sqsh touch /tmp/started
  [ ! -e /tmp/started ]
  [[ $output == *"bind /tmp on /data [ro, create directory]  (--mount)"* ]]
  [[ $output == *" on /proc"*"file /etc/passwd"* ]]
  local plan=$output
  SITULA_DEBUG=1 run -0 situla start --mount "$mount" tiny.sqsh true
  while read -r line; do [[ $output == *"$line"* ]] || { echo "lacks: $line"; false; }; done <<<"$plan"
  SITULA_DEBUG=1 run -0 srun --container-image=./tiny.sqsh --container-mounts=/tmp:/data:ro true
  [[ $output == *"situla: bind /tmp on /data [recursive, ro, create]  (--container-mounts)"* ]]
  while read -r line; do
    [[ $line == *"(--mount)" || $output == *"situla: $line"* ]] || { echo "lacks: $line"; false; }
  done <<<"$plan"
  run -0 srun --container-image=./tiny.sqsh true
  [[ $output != *" on /"* ]]
}

@test "a batch script is mounted at its own place, read-only" {
  cat >script.sh <<'EOF'
#!/bin/sh
grep -c " $0 ro,nosuid,nodev" /proc/self/mountinfo
EOF
  SITULA_DEBUG=1 run -0 "$lab_tests/submit" --output=out.txt --container-image=registry.test/tiny script.sh
  [ "$(tail -n 1 out.txt)" = 1 ] || { cat out.txt; false; }
}
