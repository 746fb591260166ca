# Completion of situla, and of enroot, its second name, for bash. Commands, options and the kinds of their values are those of
# `situla help` and `situla COMMAND --help`.

# _situla_usage SECTION [COMMAND]: the lines of a section of the usage.
_situla_usage() {
  "${COMP_WORDS[0]}" ${2:+"$2"} --help 2>/dev/null | sed -n "/^$1:\$/,/^\$/s/^  //p"
}

# _situla_options [COMMAND]: its options; without a command, the commands.
_situla_options() {
  if [ -z "$1" ]; then
    _situla_usage Commands | sed -n 's/^\([a-z]*\) .*/\1/p'
  else
    _situla_usage Options "$1" | sed -n 's/^\(-[^ ]*\).*/\1/p' | tr , '\n'
  fi
}

# _situla_value COMMAND OPTION: what completes its value; fails for an option without one.
_situla_value() {
  # "-o,--output FILE  Name of the file"; behind a flag there are two spaces, or "Excludes: ..."
  case $(_situla_usage Options "$1" | sed -nE "s/^([^ ]*,)?$2(,[^ ]*)? ([^ ]+).*/\\3/p") in
    "" | Excludes:* | Needs:*) return 1 ;;
    ARCH*) echo architecture ;;
    DIR*) echo directory ;;
    FILE*) echo file ;;
    KEY*) echo variable ;;
    NAME\|FILE*) echo environment ;;
    SRC*) echo mount ;;
    *) echo nothing ;;
  esac
}

# _situla_names CURRENT: COMPREPLY is what of its input begins like that, a name in each line. Files of others are among them, and "compgen -W"
# would run what a name holds for the shell.
_situla_names() {
  local name
  COMPREPLY=()
  while IFS= read -r name; do
    if [[ $name == "$1"* ]]; then COMPREPLY+=("$(printf %q "$name")"); fi
  done
}

# _situla_complete KIND CURRENT: sets COMPREPLY.
_situla_complete() {
  local word=$2 program=${COMP_WORDS[0]}
  local IFS=$'\n'
  case $1 in
    architecture) COMPREPLY=($(compgen -W $'x86_64\naarch64\nppc64le\namd64\narm64\nppc64el' -- "$word")) ;;
    directory) compopt -o filenames; COMPREPLY=($(compgen -d -- "$word")) ;;
    file | mount) compopt -o filenames; COMPREPLY=($(compgen -f -- "$word")) ;;
    variable) COMPREPLY=($(compgen -e -- "$word")) ;;
    container) _situla_names "$word" < <("$program" list 2>/dev/null) ;;
    process)
      _situla_names "$word" < <("$program" list --fancy 2>/dev/null | sed -n '2,$s/^ *\(.* \)\{0,1\} *\([0-9][0-9]*\)  .*$/\2/p')
      ;;
    image)
      compopt -o filenames
      COMPREPLY=($(compgen -f -X '!*.@(sqsh|squashfs|sqfs|sfs)' -- "$word") $(compgen -d -- "$word"))
      ;;
    reference)
      # A colon ends a word: what follows the scheme is a word of its own.
      [ "${COMP_WORDS[COMP_CWORD]}" = : ] || [[ $COMP_LINE == *://* ]] && return
      compopt -o nospace
      COMPREPLY=($(compgen -W $'docker://\ndockerd://\npodman://\noci:\noci-archive:\ndocker-archive:\ndir:' -- "$word"))
      ;;
    environment)
      _situla_complete file "$2"
      local files=("${COMPREPLY[@]}")
      _situla_names "$word" < <("$program" environment list 2>/dev/null | sed 's/ .*//')
      COMPREPLY+=("${files[@]}")
      ;;
    code) _situla_names "$word" < <("$program" explain 2>/dev/null | sed 's/ .*//') ;;
    command) COMPREPLY=($(compgen -W "$(_situla_options)" -- "$word")) ;;
  esac
}

# _situla_argument COMMAND NUMBER CURRENT: the NUMBERth (from 0) word that is no option.
_situla_argument() {
  case $1:$2 in
    start:0 | inject:0)
      _situla_complete container "$3"
      local names=("${COMPREPLY[@]}")
      _situla_complete image "$3"
      COMPREPLY=("${names[@]}" "${COMPREPLY[@]}")
      ;;
    export:0 | remove:*) _situla_complete container "$3" ;;
    create:0 | bundle:0) _situla_complete image "$3" ;;
    inspect:0)
      _situla_complete reference "$3"
      local schemes=("${COMPREPLY[@]}")
      _situla_complete image "$3"
      COMPREPLY=("${schemes[@]}" "${COMPREPLY[@]}")
      ;;
    import:0 | load:0 | digest:0 | tags:0) _situla_complete reference "$3" ;;
    batch:0) _situla_complete file "$3" ;;
    environment:0) COMPREPLY=($(compgen -W "list show check" -- "$3")) ;;
    environment:*) _situla_complete environment "$3" ;;
    explain:0) _situla_complete code "$3" ;;
    exec:0) _situla_complete process "$3" ;;
    help:0) _situla_complete command "$3" ;;
    # The container's own command: its files are not here.
  esac
}

_situla() {
  local current=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} arguments=0 option="" end="" kind i
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    _situla_complete command "$current"
    return
  fi
  # Readline makes a word of the sign in --name=value.
  [ "$current" = = ] && current=""
  for ((i = 2; i < COMP_CWORD; i++)); do
    local word=${COMP_WORDS[i]}
    if [ "$word" = = ] && [ -n "$option" ]; then
      continue
    elif [ -n "$option" ]; then
      option=""
    elif [ "$arguments" -eq 0 ] && [ -z "$end" ] && [ "$word" = -- ]; then
      end=yes
    elif [ -z "$end" ] && [[ $word == -* ]]; then
      _situla_value "$command" "$word" >/dev/null && option=$word
    else
      arguments=$((arguments + 1))
    fi
  done
  if [ -n "$option" ]; then
    kind=$(_situla_value "$command" "$option")
    _situla_complete "$kind" "$current"
  elif [[ $current == -* ]] && [ -z "$end" ]; then
    case $command:$arguments in
      start:0 | exec:0 | batch:0) ;;
      start:* | exec:* | batch:*) return ;;  # behind the container's name they are its command's
    esac
    COMPREPLY=($(compgen -W "$(_situla_options "$command")" -- "$current"))
  else
    _situla_argument "$command" "$arguments" "$current"
  fi
}

complete -F _situla situla enroot
