# lab: --plugin-arg sbatch_support=0
# sbatch_support=0: sbatch and salloc know nothing of containers; srun does, inside their jobs, too.
load helpers

setup() { cd "$HOME"; }

where='[ -e /srv/hello.txt ] && echo inside || echo outside'

@test "sbatch and salloc have no container options" {
  printf '#!/bin/sh\ntrue\n' >script
  for command in "sbatch --container-image=registry.test/tiny script" "salloc --container-image=registry.test/tiny true"; do
    run_and_show $command
    [ "$status" -ne 0 ]
    grep -q "unrecognized option '--container-image" <<<"$output"
  done
  printf '#!/bin/sh\n#SBATCH --container-image=registry.test/tiny\ntrue\n' >script
  run_and_show sbatch script
  [ "$status" -ne 0 ]
  if sbatch --help | grep container-image; then false; fi
  srun --help | grep -q container-image
}

@test "a batch script runs on the host, and its sruns in containers" {
  printf '#!/bin/sh\n%s\nsrun --container-image=registry.test/tiny sh -c "%s"\n' "$where" "$where" >script
  run_and_show "$lab_tests/submit" -o out script
  [ "$status" -eq 0 ]
  grep -v '^situla: import' out >lines
  [ "$(cat lines)" = $'outside\ninside' ]
}

@test "variables count for the sruns, not for the batch script" {
  printf '#!/bin/sh\n%s\nsrun sh -c "%s"\n' "$where" "$where" >script
  PYXIS_CONTAINER_IMAGE=registry.test/tiny run_and_show "$lab_tests/submit" -o out script
  [ "$status" -eq 0 ]
  grep -v '^situla: import' out >lines
  [ "$(cat lines)" = $'outside\ninside' ]
}

@test "an invalid variable does not keep sbatch from queueing" {
  printf '#!/bin/sh\ntrue\n' >script
  PYXIS_CONTAINER_IMAGE=registry.test/tiny PYXIS_CONTAINER_MOUNTS=bad:bad run_and_show "$lab_tests/submit" -o out script
  [ "$status" -eq 0 ]
}
