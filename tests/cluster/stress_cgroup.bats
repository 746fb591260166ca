# lab: --user root --proctrack cgroup --situla-conf tests/cluster/no_idle.toml
load helpers
load stress

@test "a hundred unnamed steps at once" { check_a_hundred_unnamed_steps; }
@test "fifty steps reuse one container at once" { check_fifty_reuses_of_one_container; }
@test "fifty steps attach while the first one ends" { check_fifty_attaches_while_the_first_step_ends; }
