# lab: --proctrack linuxproc
load ../cluster/helpers
load save_signals

# before: the same
@test "signals that the program catches come once" { check_caught; }
# before: the same
@test "stopped, and going on" { check_stopped; }
# before: the same
@test "cancelled: nothing goes on" { check_killed; }
# before: the same
@test "a program that ends its process group" { check_group; }
