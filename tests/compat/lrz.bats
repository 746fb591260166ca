# lab:
# What the guides of a computing centre tell its users to type, host names aside. Every test goes on where the one before it ended.
bats_require_minimum_version 1.5.0

setup_file() {
  export work=$(mktemp -d "$HOME/guide.XXXXXX")
  export ENROOT_DATA_PATH=$work/containers
  cd "$work"
  skopeo copy -q docker://registry.test/debian:12 docker://registry.test/nvidia/pytorch:24.10-py3
  make_package "$work/packages"
}

teardown_file() {
  cd /
  chmod -R u+rwX "$work"
  rm -rf "$work"
}

setup() { cd "$work"; }

# make_package DIRECTORY: a Debian package, and a mirror of one package, as `deb file:` wants it. The package changes owners, makes a user's
# group and runs a script, which is what fails when only one id is mapped.
make_package() {
  local tree=$1/tree
  mkdir -p "$tree/DEBIAN" "$tree/usr/bin" "$tree/etc" "$tree/var/lib/guide-tool"
  printf '#!/bin/sh\necho the tool runs\n' >"$tree/usr/bin/guide-tool"
  chmod 755 "$tree/usr/bin/guide-tool"
  echo setting=1 >"$tree/etc/guide-tool.conf"
  echo /etc/guide-tool.conf >"$tree/DEBIAN/conffiles"
  printf '%s\n' 'Package: guide-tool' 'Version: 1.0' 'Architecture: all' 'Maintainer: nobody <nobody@example.org>' 'Description: a tool' \
    'Section: misc' 'Priority: optional' >"$tree/DEBIAN/control"
  printf '#!/bin/sh\nset -e\nchown daemon:daemon /var/lib/guide-tool\necho configured >/var/lib/guide-tool/state\n' >"$tree/DEBIAN/postinst"
  chmod 755 "$tree/DEBIAN/postinst"
  dpkg-deb --root-owner-group --build "$tree" "$1/guide-tool_1.0_all.deb" >/dev/null
  rm -rf "$tree"
  (
    cd "$1"
    dpkg-deb --field guide-tool_1.0_all.deb
    echo "Filename: ./guide-tool_1.0_all.deb"
    echo "Size: $(stat -c %s guide-tool_1.0_all.deb)"
    echo "SHA256: $(sha256sum guide-tool_1.0_all.deb | cut -d' ' -f1)"
  ) >"$1/Packages"
  echo 'deb [trusted=yes] file:/mnt/packages ./' >"$1/guide.list"
}

@test "a key of the registry in .credentials, an image of the registry" {
  mkdir -p config
  export ENROOT_CONFIG_PATH=$work/config
  # First without the key: the registry does not give the image to anybody.
  run --separate-stderr enroot import docker://token.test#nvidia/pytorch:24.10-py3
  [ "$status" -eq 1 ]
  grep -q '^\[ERROR\] .*token.test' <<<"$stderr"
  printf 'machine token.test login $oauthtoken password ngc-key\nmachine auth-token.test login $oauthtoken password ngc-key\n' >config/.credentials
  chmod 600 config/.credentials
  enroot import docker://token.test#nvidia/pytorch:24.10-py3
  [ "$(ls *.sqsh)" = nvidia+pytorch+24.10-py3.sqsh ]
  # The login may be written out, too; a dollar sign in it is no variable.
  enroot import -o again.sqsh 'docker://$oauthtoken@token.test#nvidia/pytorch:24.10-py3'
  cmp <(unsquashfs -ll -n nvidia+pytorch+24.10-py3.sqsh | awk '{ $4 = $5 = ""; print }') <(unsquashfs -ll -n again.sqsh | awk '{ $4 = $5 = ""; print }')
  rm again.sqsh
}

@test "create --name" {
  enroot create --name mycontainer nvidia+pytorch+24.10-py3.sqsh
  [ "$(enroot list)" = mycontainer ]
}

@test "start, as oneself: files of the image, and not to be changed" {
  [ "$(enroot start mycontainer id -u)" = "$(id -u)" ]
  [ "$(enroot start mycontainer sh -c '. /etc/os-release; echo $ID')" = debian ]
  run enroot start mycontainer touch /usr/new
  [ "$status" -ne 0 ]
}

@test "start --root --rw and apt install of a package file" {
  mkdir -p data
  cp packages/*.deb data
  enroot start --root --rw --mount "$work/data:/mnt/data" mycontainer apt-get install -y /mnt/data/guide-tool_1.0_all.deb
  [ "$(enroot start mycontainer guide-tool)" = "the tool runs" ]
  [ "$(enroot start mycontainer cat /var/lib/guide-tool/state)" = configured ]
  enroot start --root --rw mycontainer apt-get purge -y guide-tool
  run -127 enroot start mycontainer guide-tool
}

@test "start --root --rw and apt update, apt install from a mirror" {
  enroot start --root --rw --mount "$work/packages:/mnt/packages" mycontainer sh -ec '
    cp /mnt/packages/guide.list /etc/apt/sources.list
    apt-get update
    apt-get install -y guide-tool'
  [ "$(enroot start mycontainer dpkg-query -W -f '${Status}' guide-tool)" = "install ok installed" ]
  [ "$(enroot start mycontainer guide-tool)" = "the tool runs" ]
}

@test "echo ... >> /etc/environment" {
  enroot start --root --rw mycontainer sh -c 'echo "GUIDE_SETTING=from the container" >> /etc/environment'
  [ "$(enroot start mycontainer printenv GUIDE_SETTING)" = "from the container" ]
}

@test "srun --pty enroot start --mount ./data:/mnt/data NAME bash" {
  mkdir -p data
  echo input >data/file
  cat >script <<'END'
set timeout 60
spawn srun --pty enroot start --mount ./data:/mnt/data mycontainer bash
expect -re {[$#] $}
send "tr a-z A-Z </mnt/data/file; echo output >/mnt/data/result; exit 5\r"
expect { eof {} timeout { exit 99 } }
exit [lindex [wait] 3]
END
  run expect -f script
  echo "$output"
  [ "$status" -eq 5 ]
  grep -q INPUT <<<"$output"
  [ "$(cat data/result)" = output ]
}

@test "in a batch script" {
  cat >job.sh <<'END'
#!/bin/bash
#SBATCH --output=job.out
srun enroot start --mount ./data:/mnt/data mycontainer bash -c 'guide-tool; cat /mnt/data/file; echo $GUIDE_SETTING'
srun --container-image="$PWD/nvidia+pytorch+24.10-py3.sqsh" --container-mounts=./data:/mnt/data bash -c 'cat /mnt/data/file; id -u'
END
  sbatch --wait job.sh
  [ "$(cat job.out)" = "the tool runs
input
from the container
input
$(id -u)" ]
}

@test "start IMAGE.sqsh" {
  [ "$(enroot start nvidia+pytorch+24.10-py3.sqsh sh -c '. /etc/os-release; echo $ID')" = debian ]
  [ "$(enroot start --root --rw nvidia+pytorch+24.10-py3.sqsh sh -c 'touch /usr/new && echo written')" = written ]
  [ "$(enroot list)" = mycontainer ]
}

@test "export --output, remove, and the changed container from its file" {
  enroot export --output mycontainer.sqsh mycontainer
  enroot remove -f mycontainer
  [ -z "$(enroot list)" ]
  [ "$(enroot start mycontainer.sqsh guide-tool)" = "the tool runs" ]
  enroot create --name copy mycontainer.sqsh
  [ "$(enroot start copy sh -c 'guide-tool; printenv GUIDE_SETTING')" = "the tool runs
from the container" ]
  [ "$(srun --container-image=./mycontainer.sqsh guide-tool)" = "the tool runs" ]
  run --separate-stderr enroot export --output mycontainer.sqsh copy
  [ "$status" -eq 1 ]
  grep -q "^\[ERROR\] File already exists: .*mycontainer.sqsh" <<<"$stderr"
}

@test "remove" {
  enroot create --name other nvidia+pytorch+24.10-py3.sqsh
  enroot remove other <<<y
  run enroot list
  [[ " ${lines[*]} " != *" other "* ]]
  run --separate-stderr enroot start other true
  [ "$status" -eq 1 ]
  grep -q "^\[ERROR\] No such file or directory: $ENROOT_DATA_PATH/other" <<<"$stderr"
}
