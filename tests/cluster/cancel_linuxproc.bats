# lab: --user root --proctrack linuxproc --situla-conf tests/cluster/no_idle.toml
load helpers
load cancel
