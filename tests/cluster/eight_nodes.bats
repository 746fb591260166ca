# lab: --nodes 8 --user root --situla-conf tests/cluster/sbcast.toml
# Eight nodes with a store each: what one of them cannot do holds up nobody but that one.
load helpers

log=$SITULA_LAB/logs
image=registry.test/debian:12

setup() {
  on_all sh -c 'rm -rf /var/lib/situla/images /var/lib/situla/layers /var/lib/situla/leases /var/lib/situla/slots /var/lib/situla/grants'
  marked=$(wc -l <"$log/registry.test.log")
}
teardown() {
  scancel -u alice,bob -s KILL 2>/dev/null || true
  wait 2>/dev/null || true
}

on_all() { srun -N8 --ntasks-per-node=1 "$@"; }
# How often the largest layer has left the registry; it comes in pieces.
fetched() {
  local size
  size=$(skopeo inspect --raw docker://$image | jq '[.layers[].size] | max')
  tail -n "+$((marked + 1))" "$log/registry.test.log" | sed -n 's|.*GET /v2/debian/blobs/\(sha256:[0-9a-f]*\) [^ ]* 20[06] \([0-9]*\).*|\1 \2|p' |
    awk -v size="$size" '{sum[$1] += $2} END {for (blob in sum) if (sum[blob] > most) most = sum[blob]; printf "%d\n", most / size + 0.5}'
}
images() { on_all sh -c 'situla verify >/dev/null && ls /var/lib/situla/images/sha256/*.sqsh 2>/dev/null | wc -l' | sort | uniq -c | awk '{print $1, $2}' | paste -sd ' '; }

@test "a cold start on eight nodes asks the registry once" {
  # shellcheck disable=SC2016
  run_and_show as_alice srun -N8 --ntasks-per-node=4 --container-image=$image sh -c '. /etc/os-release; echo $ID'
  [ "$status" -eq 0 ]
  [ "$(grep -cx debian <<<"$output")" -eq 32 ]
  [ "$(grep -c 'got the image from node1' <<<"$output")" -eq 7 ]
  [ "$(fetched)" -eq 1 ]
  [ "$(images)" = "8 1" ]
}

@test "no room for what comes on one of eight: it says so and imports, seven get theirs" {
  srun -N1 -w node6 mount -t tmpfs -o size=1m,mode=755 none /var/lib/situla-incoming
  run_and_show as_alice srun -N8 --container-image=$image echo inside
  srun -N1 -w node6 umount /var/lib/situla-incoming
  [ "$status" -eq 0 ]
  [ "$(grep -cx inside <<<"$output")" -eq 8 ]
  [ "$(grep -c 'No space left on device; importing it here' <<<"$output")" -eq 1 ]
  [ "$(fetched)" -eq 2 ]
  [ "$(images)" = "8 1" ]
}

@test "a full disk on one of eight: its task fails with the reason, seven start" {
  srun -N1 -w node6 mount -t tmpfs -o size=4m,mode=700,uid=situla,gid=situla none /var/lib/situla
  run_and_show as_alice srun -N8 --container-image=$image echo inside
  srun -N1 -w node6 umount /var/lib/situla
  [ "$status" -ne 0 ]
  [ "$(grep -cx inside <<<"$output")" -eq 7 ]
  [[ $output == *"situla: node6: the image store /var/lib/situla has 4.0 MiB free, and "*" have to stay so beside this image of "*"[store-full]"* ]]
  [ "$(fetched)" -eq 1 ]
  [ "$(images)" = "1 0 7 1" ]
}

@test "prefetch to eight nodes beside a job of another user on them" {
  cd / && as bob srun -N8 --ntasks-per-node=1 --container-image=registry.test/tiny sleep 300 3>&- &
  wait_until 30 eval '[ "$(squeue -h -t running -u bob | wc -l)" -eq 1 ]'
  run_and_show as_alice situla prefetch --nodes 'node[1-8]' $image
  [ "$status" -eq 0 ]
  [ "$(grep -cE "^node[1-8] +$image +imported\$" <<<"$output")" -eq 8 ]
  [ "$(fetched)" -eq 1 ]
  # bob's goes on, and what was fetched is there.
  [ "$(squeue -h -t running -u bob | wc -l)" -eq 1 ]
  run_and_show as_alice srun -N8 --container-image=$image true
  [ "$status" -eq 0 ]
  [ "$(fetched)" -eq 1 ]
  scancel -u bob
  wait || true
}
