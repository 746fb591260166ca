# lab: --plugin-arg container_scope=job
# container_scope=job: what is left of a named container when its job has ended. And signals in a PID namespace.
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

@test "a signal reaches a program in a PID namespace once" {
  cat > "$HOME/count" << 'END'
n=0; trap 'n=$((n+1))' USR1
for i in $(seq 40); do sleep 0.1; done; echo total $n
END
  srun -J once --container-image=registry.test/debian:12 --container-unshare=pid \
    --container-mounts="$HOME/count:/count" bash /count > "$BATS_TEST_TMPDIR/out" 2>&1 &
  for _ in $(seq 100); do grep -q imported "$BATS_TEST_TMPDIR/out" && break; sleep 0.1; done
  sleep 1
  id=$(squeue -h -n once -o %i)
  for _ in 1 2 3 4; do scancel -s USR1 "$id.0"; sleep 0.3; done
  wait
  grep -qx 'total 4' "$BATS_TEST_TMPDIR/out"
}
