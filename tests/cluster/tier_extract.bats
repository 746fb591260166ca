# lab: --user root --situla-conf tests/cluster/tier_extract.toml
load helpers
load tiers
chosen_tier_is_used() { ! pgrep -u alice -f squashfuse && ! findmnt -t squashfs; }
