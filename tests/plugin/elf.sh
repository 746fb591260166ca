#!/bin/sh
# The plugin is loaded into slurmd, slurmstepd, srun, sbatch and salloc: it must need nothing but the C and C++ runtime, and
# show nothing but what Slurm looks up. The programs that every start waits for must not load libcurl, whose thirty libraries take
# longer than all they do. usage: elf.sh spank_situla.so PROGRAM...
set -eu
export LC_ALL=C
plugin=$1
shift
failed=0

expected_libraries="libc.so.6 libgcc_s.so.1 libm.so.6 libstdc++.so.6"
for library in $(readelf -dW "$plugin" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
  # AddressSanitizer builds bring their own runtime; it is never installed.
  case $library in libasan.so.*|libubsan.so.*) continue ;; esac
  case " $expected_libraries " in
    *" $library "*) ;;
    *) echo "the plugin needs $library"; failed=1 ;;
  esac
done

expected="plugin_name plugin_type plugin_version slurm_spank_exit slurm_spank_init slurm_spank_init_post_opt \
slurm_spank_job_epilog slurm_spank_job_prolog slurm_spank_local_user_init slurm_spank_task_exit slurm_spank_task_init slurm_spank_task_init_privileged \
slurm_spank_user_init spank_plugin_version"
found=$(nm -D --defined-only "$plugin" | awk '{print $3}' | sort | xargs)
[ "$found" = "$(echo $expected | xargs)" ] || { echo "the plugin exports: $found"; failed=1; }

# A constructor of our own would run in every program of Slurm; the compiler's frame_dummy is the one that is always there.
constructors=$(readelf -SW "$plugin" | awk '$2 == ".init_array" || $3 == ".init_array" {for (i = 1; i <= NF; i++) if ($i == "INIT_ARRAY") print $(i + 3)}')
[ "$((0x${constructors:-0}))" -le 8 ] || { echo "the plugin has $((0x$constructors / 8)) constructors"; failed=1; }
readelf -lW "$plugin" | grep -q 'TLS' && { echo "the plugin has thread-local storage"; failed=1; }
for program; do
  readelf -dW "$program" | grep -E 'NEEDED.*lib(curl|ssl|crypto)' && { echo "${program##*/} loads these"; failed=1; }
done
[ $failed -eq 0 ] && echo "libraries, symbols and constructors are as they should be"
exit $failed
