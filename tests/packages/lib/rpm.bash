# Roots for rpm, and small packages of other people. Sourced by rpm.bats.
# shellcheck shell=bash

# rpm of this machine, whatever its own configuration says about keys.
rpm_in() { rpm --root "$1" --nosignature "${@:2}"; }

# add_libraries ROOT PROGRAM...: what the programs load, from this machine.
add_libraries() {
  local root=$1 needed
  ldd "${@:2}" | grep -o '/[^ )]*' | grep -v ':$' | sort -u | while read -r needed; do
    [ -e "$root$needed" ] || install -D -m 755 "$needed" "$root$needed"
  done
}

# make_root DIR: a system that scriptlets run in: its directories, a shell, the programs of coreutils, util-linux and systemd that they call,
# update-alternatives; root is its only account; rpm's database is empty.
make_root() {
  local root=$1
  local programs=(/bin/sh /bin/date /bin/mv /bin/rm /bin/stat /bin/umount /usr/bin/systemd-sysusers /usr/bin/systemd-tmpfiles /usr/bin/update-alternatives)
  mkdir -p "$root"/{etc/slurm,dev,proc,tmp,run,var/{lib,log,tmp}} \
    "$root"/usr/{bin,sbin,lib/systemd/system,lib/sysusers.d,lib/tmpfiles.d,libexec,lib64/slurm,share/{bash-completion/completions,zsh/site-functions,doc,licenses,man/man{1,5,7,8}}}
  chmod 1777 "$root"/tmp "$root"/var/tmp
  ln -s usr/bin "$root/bin"
  cp -L "${programs[@]}" "$root/usr/bin/"
  add_libraries "$root" "${programs[@]}"
  mkdir -p "$root"/{etc/alternatives,var/lib/dpkg/alternatives}
  echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
  echo 'root:x:0:' >"$root/etc/group"
  mknod -m 666 "$root/dev/null" c 1 3
  rpm_in "$root" --initdb
}

# make_package NAME VERSION <SPEC-LINES: a package that rpmbuild makes of a spec with these lines; prints where it is.
make_package() {
  local name=$1 version=$2 top=$fakes/$1-$2 more
  more=$(cat)
  mkdir -p "$top"
  {
    printf 'Name: %s\nVersion: %s\nRelease: 1\nSummary: A stand-in\nLicense: none\nBuildArch: noarch\nAutoReqProv: no\n' "$name" "$version"
    printf '%s\n' "$more"
  } >"$top/package.spec"
  rpmbuild --quiet -bb --define "_topdir $top" --define "_rpmdir $fakes" --define "_rpmfilename %%{NAME}-%%{VERSION}.rpm" \
    --define "_sourcedir $top" "$top/package.spec" >"$top/log" 2>&1 || { cat "$top/log" >&2; return 1; }
  echo "$fakes/$name-$version.rpm"
}

# slurm_package VERSION [NAME]: as SchedMD's slurm.spec names it.
slurm_package() {
  make_package "${2:-slurm}" "$1" <<'SPEC'
%description
Slurm.
%files
SPEC
}

# enroot_package VERSION: as NVIDIA's spec lays it out: all of /etc/enroot is configuration that is not replaced.
enroot_package() {
  make_package enroot "$1" <<'SPEC'
%description
enroot.
%package -n enroot+caps
Summary: A stand-in
Requires: enroot = %{version}
%description -n enroot+caps
enroot+caps.
%install
mkdir -p %{buildroot}/usr/bin %{buildroot}/etc/enroot/hooks.d %{buildroot}/etc/enroot/mounts.d
printf '#!/bin/sh\necho the real enroot %%s\n' %{version} >%{buildroot}/usr/bin/enroot
chmod 755 %{buildroot}/usr/bin/enroot
echo '#ENROOT_RUNTIME_PATH /run/enroot' >%{buildroot}/etc/enroot/enroot.conf
printf '#!/bin/sh\n' >%{buildroot}/etc/enroot/hooks.d/10-home.sh
chmod 755 %{buildroot}/etc/enroot/hooks.d/10-home.sh
echo '/proc /proc none rbind' >%{buildroot}/etc/enroot/mounts.d/10-system.fstab
%files
/usr/bin/enroot
%config(noreplace) /etc/enroot/*
%files -n enroot+caps
SPEC
}

# pyxis_package VERSION
pyxis_package() {
  make_package nvslurm-plugin-pyxis "$1" <<'SPEC'
Requires: (enroot >= 3.1.0 or enroot-hardened >= 3.1.0)
%description
pyxis.
%install
mkdir -p %{buildroot}/usr/lib64/slurm %{buildroot}/usr/share/pyxis
echo plugin >%{buildroot}/usr/lib64/slurm/spank_pyxis.so
echo 'required /usr/lib64/slurm/spank_pyxis.so' >%{buildroot}/usr/share/pyxis/pyxis.conf
%files
/usr/lib64/slurm/spank_pyxis.so
/usr/share/pyxis/pyxis.conf
SPEC
}
