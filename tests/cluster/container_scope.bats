# lab: --plugin-arg container_scope=job
# container_scope=job: what is left of a named container when its job has ended.
load helpers

bats_require_minimum_version 1.5.0

containers() { ls -A "$HOME/.local/share/enroot" 2> /dev/null; }

@test "a named container is there in its job, and gone after it" {
  cat > "$BATS_TEST_TMPDIR/script" << 'END'
#!/bin/bash
srun --container-image=registry.test/debian:12 --container-name=mine --container-writable touch /mark
srun --container-name=mine ls /mark
END
  run -0 sbatch -W -o "$BATS_TEST_TMPDIR/out" "$BATS_TEST_TMPDIR/script"
  run -0 cat "$BATS_TEST_TMPDIR/out"
  [ "${lines[-1]}" = /mark ]
  sleep 1
  [ -z "$(containers)" ]
}

@test "a container that cannot be removed does not drain its node" {
  mkdir -p "$HOME/.local/share/enroot"
  cat > "$BATS_TEST_TMPDIR/script" << 'END'
#!/bin/bash
srun --container-image=registry.test/debian:12 --container-name=stuck true
chmod 555 "$HOME/.local/share/enroot"
END
  run -0 sbatch -W -o "$BATS_TEST_TMPDIR/out" "$BATS_TEST_TMPDIR/script"
  sleep 2
  containers > "$BATS_TEST_TMPDIR/left"
  chmod 755 "$HOME/.local/share/enroot"
  rm -rf "$HOME"/.local/share/enroot/pyxis_*
  grep -q stuck "$BATS_TEST_TMPDIR/left"
  run -0 sinfo -h -o %T
  [[ "$output" != *drain* ]]
}
