# lab: --nodes 4 --gpus 8 --nvidia --gpus=8 --nvidia --devices=real --user root --situla-conf tests/cluster/gpu.toml --enroot-conf tests/compat/conf/node_local.conf --slurm-conf SchedulerParameters=bf_interval=2,sched_interval=2
# Batch scripts as users have them: scripts/NAME.sbatch, and beside each what it shows and prints (NAME.expected; its form: compare-output).
# All of them run as alice, several at a time, in jobs of one node and then in jobs of four; the tests compare.
load batch_scripts

@test "this table names every script, and every script has its expected output" {
  every_script_is_listed
}

@test "01 script inside" { as_expected; }
@test "02 srun in batch" { as_expected; }
@test "03 scratch user mount" { as_expected; }
@test "04 relative mounts" { as_expected; }
@test "05 mount flags" { as_expected; }
@test "06 workdir" { as_expected; }
@test "07 mount home" { as_expected; }
@test "08 remap root writable" { as_expected; }
@test "09 readonly" { as_expected; }
@test "10 container env" { as_expected; }
@test "11 sqsh relative" { as_expected; }
@test "12 sqsh absolute" { as_expected; }
@test "13 sqsh without dot" { as_expected; }
@test "14 references" { as_expected; }
@test "15 pyxis variables" { as_expected; }
@test "16 array" { as_expected; }
@test "17 array of steps" { as_expected; }
@test "18 hetjob" { as_expected; }
@test "19 parallel steps" { as_expected; }
@test "20 heredoc" { as_expected; }
@test "21 quoting" { as_expected; }
@test "22 exit codes" { as_expected; }
@test "23 kill on bad exit" { as_expected; }
@test "24 strict" { as_expected; }
@test "25 deepspeed hostfile" { as_expected; }
@test "26 torchrun rdzv" { as_expected; }
@test "27 torchrun head node ip" { as_expected; }
@test "28 horovod mpirun" { as_expected; }
@test "29 ranks" { as_expected; }
@test "30 pytorch image" { as_expected; }
@test "31 gpus" { as_expected; }
@test "32 nvidia visible devices" { as_expected; }
@test "33 limits umask" { as_expected; }
@test "34 tmpdir" { as_expected; }
@test "35 export none" { as_expected; }
@test "36 export list" { as_expected; }
@test "37 output patterns" { as_expected; }
@test "38 stdin" { as_expected; }
@test "39 signal before limit" { as_expected; }
@test "40 scancel signal" { as_expected; }
@test "41 requeue" { as_expected; }
@test "42 enroot create start" { as_expected; }
@test "43 enroot export" { as_expected; }
@test "44 enroot exec" { as_expected; }
@test "45 guide lrz" { as_expected; }
@test "46 megatron launcher" { as_expected; }
@test "47 ray cluster" { as_expected; }
@test "48 sbcast" { as_expected; }
@test "49 sweep" { as_expected; }
@test "50 multi prog" { as_expected; }
@test "51 chain" { as_expected; }
@test "52 labels" { as_expected; }
@test "53 pmi" { as_expected; }
@test "54 failing import" { as_expected; }
@test "55 script fails to start" { as_expected; }
@test "56 options without image" { as_expected; }
@test "57 options accumulate" { as_expected; }
@test "58 export none inside" { as_expected; }
@test "59 chdir" { as_expected; }
@test "60 name two steps" { as_expected; }
@test "61 name exec" { as_expected; }
@test "62 name flags" { as_expected; }
@test "63 name two jobs" { as_expected; }
@test "64 save then run" { as_expected; }
@test "65 save onto source" { as_expected; }
@test "66 entrypoint" { as_expected; }
@test "67 unshare" { as_expected; }
@test "68 mlperf" { as_expected; }
@test "69 name save" { as_expected; }

@test "nothing is left on any node, and no container in the user's directories" {
  nothing_is_left
}
