# lab: --user root --proctrack cgroup --situla-conf tests/cluster/no_idle.toml
load helpers
load save_interrupted

@test "scancel" { check_scancel; }
@test "scancel --signal=KILL" { check_kill_9_of_the_step; }
@test "other signals do not end it" { check_other_signals; }
@test "kill -9 of the saver" { check_kill_9_of_the_saver; }
@test "kill -9 of the broker" { check_kill_9_of_the_broker; }
@test "kill -9 of slurmstepd" { check_kill_9_of_slurmstepd; }
@test "a full disk" { check_a_full_disk; }
