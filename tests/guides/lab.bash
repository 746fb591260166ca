# Makes a lab into the cluster that the guides are written for: the registries have the names that people type. As root, on a node.

guide_images() {
  local pair
  for pair in ngc=nvidia/pytorch:24.10-py3 debian:12=library/debian:12 ubuntu=library/ubuntu:24.04 tiny=my-org/my-image:1.0; do
    skopeo copy -q "docker://registry.test/${pair%%=*}" "docker://registry.test/${pair#*=}" &
  done
  wait
}

# Docker Hub is the open registry under another name. NGC has a token server of its own, which wants a key for what is not NVIDIA's.
guide_registries() {
  sed -i '/# guides$/d' /etc/hosts
  printf '%s # guides\n' '127.0.0.2 registry-1.docker.io' '127.0.0.2 mirror.example.org' '127.0.0.12 nvcr.io' '127.0.0.5 authn.nvidia.com' >>/etc/hosts
  sed -e 's/127\.0\.0\.4:443/127.0.0.12:443/' -e 's/auth-token\.test/authn.nvidia.com/' "$SITULA_LAB/token.yml" >"$SITULA_LAB/nvcr.yml"
  setsid docker-registry serve "$SITULA_LAB/nvcr.yml" </dev/null >"$SITULA_LAB/logs/nvcr.log" 2>&1 3>&- &
  echo $! >"$SITULA_LAB/nvcr.pid"
  until (exec 7<>/dev/tcp/127.0.0.12/443) 2>/dev/null; do sleep 0.1; done
}

# What users have: data where all nodes see it, a project directory.
guide_directories() {
  install -d -o alice -g alice /scratch/alice/data
  echo "a sample" >/scratch/alice/data/sample
}

# sbatch, whose --wait looks every ten seconds only: here, five times a second. For the front of users' PATH.
guide_sbatch() {
  mkdir -p /shared/bin
  cat >/shared/bin/sbatch <<'END'
#!/bin/bash
[ "$1" = --wait ] || exec /usr/bin/sbatch "$@"
job=$(/usr/bin/sbatch --parsable "${@:2}") || exit
echo "Submitted batch job $job"
while sleep 0.2; do
  case $(squeue --noheader --job "$job" --states=all --format=%T) in
    COMPLETED) exit 0 ;;
    # Nothing: slurmctld was too busy to answer.
    PENDING | RUNNING | COMPLETING | CONFIGURING | '') ;;
    *) exit 1 ;;
  esac
done
END
  chmod 755 /shared/bin/sbatch
}

guide_cluster() {
  guide_sbatch
  guide_images
  guide_registries
  guide_directories
}

guide_end() {
  kill "$(cat "$SITULA_LAB/nvcr.pid")"
}
