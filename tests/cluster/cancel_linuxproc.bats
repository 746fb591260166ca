# lab: --user root --proctrack linuxproc --situla-conf tests/cluster/no_idle.toml
load helpers
load cancel

@test "scancel while the image is imported" { check_scancel_while_the_image_is_imported; }
@test "scancel while the tasks run" { check_scancel_while_the_tasks_run; }
@test "scancel while the tasks of a writable container run" { check_scancel_while_the_tasks_of_a_writable_container_ru; }
@test "kill -9 of the importer: the right error, nothing left" { check_kill_9_of_the_importer_the_right_error_nothing_lef; }
@test "kill -9 of the broker during an import: the right error, nothing left" { check_kill_9_of_the_broker_during_an_import_the_right_er; }
@test "kill -9 of the broker while tasks run: they go on, nothing is left when they end" { check_kill_9_of_the_broker_while_tasks_run_they_go_on_no; }
@test "kill -9 of slurmstepd during an import" { check_kill_9_of_slurmstepd_during_an_import; }
@test "kill -9 of slurmstepd while tasks run: the container's processes end" { check_kill_9_of_slurmstepd_while_tasks_run_the_container; }
@test "kill -9 of the builder while it works: the right error, nothing left" { check_kill_9_of_the_builder_while_it_works_the_right_err; }
