# lab: --user root --proctrack cgroup --situla-conf tests/cluster/no_idle.toml
load helpers
load cancel
