# lab:
# Every form of enroot's fstab dialect and of environment files, in a real container. The expected results are written from
# COMPAT.md 6, not from what comes out. As alice.
bats_require_minimum_version 1.5.0

setup_file() {
  cd "$HOME"
  export root=$HOME/forms
  mkdir -p "$root"/{bin,etc,mnt,dst,a/b,links} src/sub
  cp /usr/bin/busybox "$root/bin/"
  for applet in sh cat ls env; do ln -sf busybox "$root/bin/$applet"; done
  ln -sfn /mnt "$root/links/inside"
  ln -sfn ../../../../mnt "$root/links/dots"
  printf 'PATH=/bin\nIMAGE=1\nEVERYWHERE=image\n' >"$root/etc/environment"
  touch "$root/file" "src/sub/deep"
  echo content >src/file
  mkdir -p data
  ln -sfn "$root" data/forms
}

setup() {
  work=$(mktemp -d "$HOME/fstab.XXXXXX")
  cd "$HOME"
  export ENROOT_DATA_PATH=$HOME/data ENROOT_CONFIG_PATH=$work/user ENROOT_SYSCONF_PATH=$work/site SRC=$HOME/src
  mkdir -p "$work"/{user,site}/{mounts.d,environ.d}
  # Only what the shell inside needs: nothing else is mounted.
  echo "/proc /proc none x-create=dir,rbind,rslave 0 -1" >"$work/site/mounts.d/10-system.fstab"
}

teardown() { rm -rf "$work"; }

# with_fstab TEXT CMD: starts a container with these lines and runs the shell command in it.
with_fstab() {
  printf '%s\n' "$1" >"$work/user/mounts.d/50-test.fstab"
  enroot start forms sh -c "$2"
}

# mounted TARGET: "TYPE OPTION,OPTION..." of what is mounted there last (mountinfo(5)), inside.
mounted() {
  echo "while read -r id parent device root target options rest; do
    [ \"\$target\" = $1 ] && result=\"\${rest#*- } \$options\"; done </proc/self/mountinfo
    set -- \$result; echo \"\$1 \$4\""
}

# Rows of "fstab line | target | type | words that the mount's options have, or lack with a '!'".
check_mounts() {
  local line target type words got word failed=0
  while IFS='|' read -r line target type words; do
    line=$(sed 's/ *$//' <<<"$line") target=${target// /} type=${type// /}
    [ -n "$line" ] || continue
    got=$(with_fstab "$line" "$(mounted "$target")" 2>&1) || true
    [[ $type == "any" && $got == *" "* && $got != " "* ]] || [[ $got == "$type "* ]] || { echo "'$line': expected $type on $target, got '$got'"; failed=1; }
    for word in $words; do
      case $word in
        !*) [[ ",${got#* }," != *",${word#!},"* ]] || { echo "'$line': $word expected, got '$got'"; failed=1; } ;;
        *) [[ ",${got#* }," == *",$word,"* ]] || { echo "'$line': $word expected, got '$got'"; failed=1; } ;;
      esac
    done
  done
  return "$failed"
}

@test "missing fields of a line are guessed" {
  check_mounts <<'TABLE'
tmpfs /mnt                           | /mnt         | tmpfs  | rw
tmpfs /mnt size=1m                   | /mnt         | tmpfs  | rw
tmpfs /new x-create=dir,size=1m      | /new         | tmpfs  | rw
tmpfs /mnt tmpfs                     | /mnt         | tmpfs  | rw
tmpfs /mnt tmpfs ro,noexec           | /mnt         | tmpfs  | ro noexec
${SRC}                               | /home/alice/src | any | rw
${SRC} x-create=dir,bind             | /home/alice/src | any | rw
${SRC} x-create=dir,rbind,ro         | /home/alice/src | any | ro
${SRC} /mnt                          | /mnt         | any    | rw
${SRC} /new/deep                     | /new/deep    | any    | rw
${SRC} /mnt bind                     | /mnt         | any    | rw
${SRC} /mnt bind,ro                  | /mnt         | any    | ro
${SRC} /mnt none bind,ro,nosuid      | /mnt         | any    | ro nosuid
none /mnt devpts                     | /mnt         | devpts | rw
devpts /mnt devpts newinstance,ptmxmode=0666 | /mnt | devpts | rw
./src /mnt                           | /mnt         | any    | rw
${SRC}/file /file bind               | /file        | any    | rw
TABLE
}

@test "options of a line" {
  check_mounts <<'TABLE'
${SRC} /mnt none bind,ro,nosuid,nodev,noexec | /mnt | any   | ro nosuid nodev noexec
${SRC} /mnt none bind,rw                     | /mnt | any   | rw !ro
${SRC} /mnt none bind,ro,rw                  | /mnt | any   | rw !ro
${SRC} /mnt none defaults,bind               | /mnt | any   | rw
tmpfs /mnt tmpfs noatime                     | /mnt | tmpfs | noatime
${SRC} /mnt none bind,rslave                 | /mnt | any   | rw
${SRC} /mnt none bind,private                | /mnt | any   | rw
tmpfs /mnt tmpfs rw,nosuid,mode=755,size=2m  | /mnt | tmpfs | rw nosuid
${SRC} /new none x-create=dir,bind           | /new | any   | rw
${SRC}/file /new none x-create=file,bind     | /new | any   | rw
${SRC} /new/d none x-create=auto,bind        | /new/d | any | rw
${SRC}/file /new/f none x-create=auto,bind   | /new/f | any | rw
${SRC} /links/inside none bind               | /mnt | any   | rw
${SRC} /links/dots none bind                 | /mnt | any   | rw
TABLE
  [ "$(with_fstab "$SRC/file /new/f none x-create=auto,bind" 'cat /new/f')" = content ]
  [ "$(with_fstab 'tmpfs /mnt tmpfs mode=711' 'busybox stat -c %a /mnt')" = 711 ]
  [ "$(with_fstab 'tmpfs /mnt size=1m' 'busybox df -k /mnt' | awk 'NR == 2 { print $2 }')" = 1024 ]
}

@test "passes: -1 before the hooks, 0 after them, others never; also in the column of the frequency" {
  check_mounts <<'TABLE'
tmpfs /mnt tmpfs rw 0 -1 | /mnt | tmpfs | rw
tmpfs /mnt tmpfs rw -1   | /mnt | tmpfs | rw
tmpfs /mnt tmpfs rw 0 0  | /mnt | tmpfs | rw
tmpfs /mnt tmpfs rw 0    | /mnt | tmpfs | rw
tmpfs /mnt 0 -1          | /mnt | tmpfs | rw
TABLE
  for line in 'tmpfs /mnt tmpfs rw 0 1' 'tmpfs /mnt tmpfs rw 2' 'UUID=x /mnt ext4 errors=remount-ro 0 1' '# tmpfs /mnt' ''; do
    [ "$(with_fstab "$line" "$(mounted /mnt)")" = " " ]
  done
  mkdir -p "$work/site/hooks.d"
  printf '#!/bin/bash\ngrep -c " ${ENROOT_ROOTFS}/\\(mnt\\|dst\\) " /proc/self/mountinfo >"$HOME/forms.seen"\n' >"$work/site/hooks.d/50-look.sh"
  chmod +x "$work/site/hooks.d/50-look.sh"
  with_fstab 'tmpfs /mnt tmpfs rw 0 -1
tmpfs /dst tmpfs rw 0 0' true
  [ "$(cat "$HOME/forms.seen")" = 1 ]
}

@test "bind is one mount, rbind the whole tree" {
  tree='tmpfs /a tmpfs x-create=dir 0 -1
tmpfs /a/b tmpfs x-create=dir 0 -1'
  [ "$(with_fstab "$tree
\${ENROOT_ROOTFS}/a /mnt none bind" "$(mounted /mnt/b)")" = " " ]
  [ "$(with_fstab "$tree
\${ENROOT_ROOTFS}/a /mnt none rbind" "$(mounted /mnt/b)")" = "tmpfs rw,relatime" ]
  [ "$(with_fstab "$tree
\${ENROOT_ROOTFS}/a /mnt none rbind,ro" "$(mounted /mnt/b)")" = "tmpfs ro,relatime" ]
}

@test "x-move, x-detach, remount, and what is mounted over" {
  run with_fstab "tmpfs /a tmpfs x-create=dir 0 -1
\${ENROOT_ROOTFS}/a /mnt none x-move" "$(mounted /mnt); result=; $(mounted /a)"
  [ "${lines[0]}" = "tmpfs rw,relatime" ]
  [ "${lines[1]}" = " " ]
  [ "$(with_fstab "tmpfs /mnt tmpfs size=1m 0 -1
none /mnt none x-detach" "$(mounted /mnt)")" = " " ]
  [ "$(with_fstab 'none /mnt none x-detach,nofail,silent' 'echo started')" = started ]
  [ "$(with_fstab "tmpfs /mnt tmpfs size=1m 0 -1
none /mnt none remount,bind,ro,nosuid" "$(mounted /mnt)")" = "tmpfs ro,nosuid,relatime" ]
  [ "$(with_fstab "tmpfs /mnt tmpfs size=1m
$SRC/sub /mnt none bind" 'ls /mnt')" = deep ]
}

@test "what cannot be mounted ends the start, unless it may fail" {
  # line | what the message names
  while IFS='|' read -r line word; do
    line=$(sed 's/ *$//' <<<"$line") word=${word// /}
    run --separate-stderr with_fstab "$line" 'echo started'
    echo "'$line': $output $stderr"
    [ "$status" -eq 1 ]
    [ -z "$output" ]
    grep -q "50-test.fstab:1.*$word" <<<"$stderr"
  done <<'TABLE'
/no/such/source /mnt none bind            | /no/such/source
${SRC} /not/there none bind               | /not/there
${SRC} ../../outside none x-create=dir,bind | outside
${SRC} /mnt/../../outside none x-create=dir,bind | outside
tmpfs /not/there tmpfs                    | /not/there
${SRC} /file none bind                    | /file
nosuchtype /mnt nosuchtype                | nosuchtype
a b c d e f g                             | fields
TABLE
  run --separate-stderr with_fstab '/no/such/source /mnt none bind,nofail' 'echo started'
  [ "$output" = started ]
  grep -q '^\[WARN\].*/no/such/source' <<<"$stderr"
  run --separate-stderr with_fstab '/no/such/source /mnt none bind,nofail,silent' 'echo started'
  [ "$output" = started ]
  [ -z "$stderr" ]
}

@test "where lines come from: image, site, user, hooks, script, options; later ones lie on top" {
  # Each mounts a tmpfs of another size on /mnt.
  cp "$work/site/mounts.d/10-system.fstab" "$work/system"
  size='busybox df -k /mnt | busybox tail -n 1 | busybox tr -s " " | busybox cut -d" " -f2'
  sized() { echo "tmpfs /mnt tmpfs size=$1k${2:+ 0 $2}"; }
  sized 64 >"$root/etc/fstab"
  [ "$(enroot start forms sh -c "$size")" = 64 ]
  sized 128 >"$work/site/mounts.d/50.fstab"
  [ "$(enroot start forms sh -c "$size")" = 128 ]
  sized 256 >"$work/user/mounts.d/01.fstab"
  [ "$(enroot start forms sh -c "$size")" = 256 ]
  echo "mounts() { echo '$(sized 512)'; }" >"$work/conf"
  [ "$(enroot start --conf "$work/conf" forms sh -c "$size")" = 512 ]
  [ "$(enroot start --conf "$work/conf" --mount tmpfs:/mnt:tmpfs:size=1024k forms sh -c "$size")" = 1024 ]
  # Those of hooks lie below the files' lines of pass 0, above those of pass -1.
  mkdir -p "$work/site/hooks.d"
  printf '#!/bin/bash\necho "%s" >>"${ENROOT_MOUNTS}"\n' "$(sized 2048)" >"$work/site/hooks.d/50.sh"
  chmod +x "$work/site/hooks.d/50.sh"
  [ "$(enroot start forms sh -c "$size")" = 256 ]
  rm "$root/etc/fstab" "$work/site/mounts.d/50.fstab"
  sized 256 -1 >"$work/user/mounts.d/01.fstab"
  [ "$(enroot start forms sh -c "$size")" = 2048 ]
}

@test "environment files: forms of lines" {
  # line of environ.d | NAME | its value inside; "-": it is not set
  export HOST_VALUE='from host'
  local failed=0
  while IFS='|' read -r line name value; do
    line=$(sed 's/ *$//' <<<"$line") name=${name// /} value=$(sed 's/^ //; s/ *$//' <<<"$value")
    printf '%b\n' "$line" >"$work/user/environ.d/50.env"
    got=$(enroot start forms env | grep "^$name=") || got=-
    [ "$got" = "$value" ] || [ "$got" = "$name=$value" ] || { echo "'$line': expected '$value', got '$got'"; failed=1; }
  done <<'TABLE'
A=plain                | A    | plain
A=two words            | A    | two words
A="quoted words"       | A    | quoted words
A='single'             | A    | single
A=in"side"             | A    | in"side"
A=${HOST_VALUE}        | A    | from host
A="${HOST_VALUE}!"     | A    | from host!
A=$HOST_VALUE          | A    | $HOST_VALUE
A=${NOT_SET}x          | A    | x
A=$(id)                | A    | $(id)
A=1\nA=2               | A    | 2
  A=indented           | A    | indented
# A=comment            | A    | -
A                      | A    | -
1A=digit               | 1A   | -
A-B=dash               | A-B  | -
A =blank               | A    | -
ENROOT_A=1             | ENROOT_A | -
A=b=c                  | A    | b=c
A=                     | A    | 
EVERYWHERE=user        | EVERYWHERE | user
TABLE
  return "$failed"
}

@test "environment: image, site, user, script, --env, and hooks last; later wins" {
  value() { enroot start "$@" forms env | sed -n 's/^EVERYWHERE=//p'; }
  [ "$(value)" = image ]
  echo 'EVERYWHERE=site' >"$work/site/environ.d/10.env"
  [ "$(value)" = site ]
  echo 'EVERYWHERE=user' >"$work/user/environ.d/05.env"
  [ "$(value)" = user ]
  echo 'environ() { echo EVERYWHERE=script; }' >"$work/conf"
  [ "$(value --conf "$work/conf")" = script ]
  [ "$(value --conf "$work/conf" --env EVERYWHERE=option)" = option ]
  [ "$(EVERYWHERE=host value -e EVERYWHERE)" = host ]
  [ "$(value -e EVERYWHERE=a=b)" = a=b ]
  mkdir -p "$work/site/hooks.d"
  printf '#!/bin/bash\necho EVERYWHERE=hook >>"${ENROOT_ENVIRON}"\n' >"$work/site/hooks.d/50.sh"
  chmod +x "$work/site/hooks.d/50.sh"
  [ "$(value -e EVERYWHERE=option)" = hook ]
  run --separate-stderr enroot start -e 1X=2 forms true
  [ "$status" -eq 1 ]
  grep -q '^\[ERROR\] Invalid argument: 1X=2' <<<"$stderr"
}
