# lab: --user root --proctrack pgid --situla-conf tests/cluster/no_idle.toml
load helpers
load cancel
