# Functions for hooks and configuration scripts: source "${ENROOT_LIBRARY_PATH}/common.sh". Bash. Names and behaviour are those
# that scripts written for enroot rely on.
# shellcheck shell=bash

[ -z "${_COMMON_SH_-}" ] || return 0
readonly _COMMON_SH_=1

if [ -t 2 ]; then readonly TTY_ON=y; else readonly TTY_OFF=y; fi

# Colours: for common::fmt by name.
if [ -n "${TTY_ON-}" ] && [ -n "${TERM-}" ] && [ "${TERM}" != dumb ]; then
  readonly clr=$'\e[0m' bold=$'\e[1m' red=$'\e[31m' green=$'\e[32m' yellow=$'\e[33m' blue=$'\e[94m'
fi

# fmt COLOUR TEXT
common::fmt() {
  local -r colour=$1
  printf '%s%s%s' "${!colour-}" "$2" "${clr-}"
}

# log [LEVEL TEXT|- [NL]]: one line on standard error; "-": a line for each on standard input. NL: an empty line after it, on a terminal.
common::log() {
  local prefix="" line
  if [ -n "${2-}" ]; then
    case ${1-} in
      INFO) prefix="$(common::fmt blue '[INFO]') " ;;
      WARN) prefix="$(common::fmt yellow '[WARN]') " ;;
      ERROR) prefix="$(common::fmt red '[ERROR]') " ;;
      *) prefix=" " ;;
    esac
    if [ "$2" = - ]; then
      while IFS= read -r -t 1 line; do printf '%s%b\n' "${prefix}" "${line}" >&2; done
    else
      printf '%s%b\n' "${prefix}" "$2" >&2
    fi
  fi
  if [ -n "${TTY_ON-}" ] && { [ $# -eq 0 ] || [ "${3-}" = NL ]; }; then echo >&2; fi
  return 0
}

# err TEXT: says it and ends the script with status 1.
common::err() {
  common::log ERROR "${1-}"
  exit 1
}

# checkcmd CMD...: ends the script when one of them is not there.
common::checkcmd() {
  local command
  for command in "$@"; do
    command -v "${command}" >/dev/null 2>&1 || common::err "Command not found: ${command}"
  done
}

# read ARG...: as the builtin, but the end of the input is no error.
common::read() {
  # shellcheck disable=SC2162
  read "$@" || true
}

# readstrarray NAME TEXT: the lines of TEXT, none when it is empty.
common::readstrarray() {
  if [ -n "${2-}" ]; then readarray -t "$1" <<<"$2"; fi
}

common::chdir() {
  cd "$1" 2>/dev/null || common::err "Could not change directory: $1"
}

# realpath PATH: without links; all but the last component must exist.
common::realpath() {
  local resolved
  resolved=$(readlink -f -- "$1" 2>/dev/null) || common::err "No such file or directory: $1"
  printf '%s' "${resolved}"
}

# mktmpdir PREFIX
common::mktmpdir() {
  umask 077
  mktemp -d -p "${ENROOT_TEMP_PATH:-${TMPDIR:-/tmp}}" "$1.XXXXXXXXXX"
}

# rmall PATH: the whole tree, also directories without write permission; other file systems stay.
common::rmall() {
  rm -rf --one-file-system --preserve-root -- "$1" 2>/dev/null && return 0
  chmod -f -R u+rwX -- "$1" || true
  rm -rf --one-file-system --preserve-root -- "$1"
}

# fixperms DIR: its owner can read all of it and write to its directories.
common::fixperms() {
  chmod -f -R u+rX -- "$1" || true
  find "$1" -maxdepth 5 -type d ! -perm -u=w -exec chmod -f u+w {} +
}

# getpwent, getgrent: the database line of the user and group outside of the user namespace.
common::getpwent() {
  local outside
  read -r _ outside _ </proc/self/uid_map
  getent passwd "${outside}"
}
common::getgrent() {
  local outside
  read -r _ outside _ </proc/self/gid_map
  getent group "${outside}"
}

# runparts list|exec SUFFIX DIR: names the files with the suffix, or runs those that are executable until one fails.
common::runparts() {
  local -r action=$1 suffix=$2 directory=$3
  local file status
  for file in "${directory}"/*"${suffix}"; do
    [ -e "${file}" ] || continue
    case ${action} in
      list) printf '%s\n' "${file}" ;;
      exec)
        [ -x "${file}" ] && [ ! -d "${file}" ] || continue
        status=0
        "${file}" || status=$?
        [ "${status}" -eq 0 ] || common::err "${file} exited with return code ${status}"
        ;;
    esac
  done
}

# mountpoint PATH: the mount point that it lies on.
common::mountpoint() {
  local path
  path=$(common::realpath "$1")
  until [ -z "${path}" ] || mountpoint -q "${path}"; do path=${path%/*}; done
  printf '%s' "${path:-/}"
}

# envsubst FILE: its text with ${NAME} replaced from the environment; nothing else is special.
common::envsubst() {
  [ -f "$1" ] || return 0
  local line out name
  while IFS= read -r line || [ -n "${line}" ]; do
    out=""
    while [[ ${line} =~ \$\{([A-Za-z_][A-Za-z0-9_]*)\} ]]; do
      name=${BASH_REMATCH[1]}
      out+=${line%%"\${${name}}"*}
      # Variables of this shell that are not exported are none of the environment's.
      if [[ $(declare -p "${name}" 2>/dev/null) =~ ^declare\ -[a-zA-Z]*x ]]; then out+=${!name}; fi
      line=${line#*"\${${name}}"}
    done
    printf '%s\n' "${out}${line}"
  done <"$1"
}

# envfmt FILE: leaves only well-formed definitions that are no ENROOT_ ones, without the quotes around values. In place.
common::envfmt() {
  local line result="" name value
  while IFS= read -r line || [ -n "${line}" ]; do
    line=${line#"${line%%[![:space:]]*}"}
    [[ ${line} =~ ^([A-Za-z_][A-Za-z0-9_]*)=(.*)$ ]] || continue
    name=${BASH_REMATCH[1]} value=${BASH_REMATCH[2]}
    [[ ${name} != ENROOT_* ]] || continue
    if [[ ${value} =~ ^[\"\'](.*)[\"\'][[:space:]]*$ ]]; then value=${BASH_REMATCH[1]}; fi
    result+=${name}=${value}$'\n'
  done <"$1"
  printf '%s' "${result}" >"$1"
}

# evalnetrc FILE: netrc text, passwords that begin with a dollar sign evaluated by the shell.
common::evalnetrc() {
  [ -f "$1" ] || return 0
  local line
  while IFS= read -r line || [ -n "${line}" ]; do
    if [[ ${line} =~ ^([[:space:]]*([^[:space:]]+[[:space:]]+){5})(\$.*)$ ]]; then
      printf '%s%s\n' "${BASH_REMATCH[1]}" "$(eval "echo ${BASH_REMATCH[3]}")"
    else
      printf '%s\n' "${line}"
    fi
  done <"$1"
}

# curl ARG...: the body on standard output; a status of 400 or more ends the script unless it is one of those in CURL_IGNORE.
common::curl() {
  local body status result=0 code
  body=$(mktemp) || return 1
  local -a errors=()
  if [ -n "${CURL_ERROUT+x}" ]; then errors=(--stderr "${body}"); fi
  status=$(curl -o "${body}" ${errors[@]+"${errors[@]}"} -w '%{http_code}' "$@") || result=$?
  if [[ ${status} =~ ^[0-9]+$ ]] && [ "${status}" -ge 400 ]; then
    for code in ${CURL_IGNORE-}; do
      if [ "${status}" -eq "${code}" ]; then
        cat "${body}"
        rm -f "${body}"
        return 0
      fi
    done
    rm -f "${body}"
    common::err "URL ${*: -1} returned error code: ${status}"
  fi
  cat "${body}"
  rm -f "${body}"
  return "${result}"
}

common::jq() {
  jq "$@" 2>/dev/null || common::err "Could not process JSON input"
}

# debarch MACHINE: what Debian and container registries call it.
common::debarch() {
  case $1 in
    x86_64) printf amd64 ;;
    aarch64) printf arm64 ;;
    ppc64le) printf ppc64le ;;
    *) common::err "Unsupported architecture: $1" ;;
  esac
}
