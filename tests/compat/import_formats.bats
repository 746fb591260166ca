# lab: --user root
# Layers in every format that images have today, and what becomes of them. Judged by other tools.
bats_require_minimum_version 1.5.0

load import_trees
load import_many

@test "a hundred thousand files take little memory" { peak_stays_low 100000; }
