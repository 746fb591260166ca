# Loaded by the suites that import an image of very many files.

# peak_stays_low FILES: an import from files takes at most 32 MiB and 176 bytes for each file. A registry's window of 48 MiB is not in
# it: with a million files all of it stays below 256 MiB.
peak_stays_low() {
  "$here/../bench/many_files" --files "$1" "$work/layout"
  python3 - "$1" situla import -o "$work/image.sqsh" "oci:$work/layout" <<'PYTHON'
import os, subprocess, sys
child = subprocess.Popen(sys.argv[2:])
_, status, usage = os.wait4(child.pid, 0)
peak, bound = usage.ru_maxrss * 1024, (32 << 20) + 176 * int(sys.argv[1])
print(f"{sys.argv[1]} files: peak {peak / 2**20:.0f} MiB, bound {bound / 2**20:.0f} MiB")
sys.exit(status != 0 or peak > bound)
PYTHON
  rm -rf "$work/layout"
  [ "$(unsquashfs -d '' -lls "$work/image.sqsh" srv/data | grep -c 'item-[0-9]*.json$')" = "$1" ]
}
