# lab: --user root --situla-conf tests/cluster/tier_extract.toml
load helpers
load tiers
chosen_tier_is_used() {
  run pgrep -u alice situla-image
  [ "$status" -eq 1 ]
  run findmnt -n -t squashfs
  [ -z "$output" ]
}

@test "the main road on this tier" { check_the_main_road_on_this_tier; }
@test "root inside, and writing, on this tier" { check_root_inside_and_writing_on_this_tier; }
@test "nothing is left on this tier, after an end and after a cancel" { check_nothing_is_left_on_this_tier_after_an_end_and_afte; }
@test "the tier is the one that was chosen" { check_the_tier_is_the_one_that_was_chosen; }
