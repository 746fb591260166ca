# lab:
# A person at a terminal: prompt, window size, Ctrl-C, Ctrl-Z and the exit status, by hand and through srun --pty. expect(1) is the person.
bats_require_minimum_version 1.5.0

setup_file() {
  export work=$(mktemp -d "$HOME/interactive.XXXXXX")
  export ENROOT_DATA_PATH=$work/data
  cd "$work"
  enroot import -o debian.sqsh docker://registry.test#debian:12
  enroot create debian.sqsh
}

teardown_file() {
  cd /
  chmod -R u+rwX "$work"
  rm -rf "$work"
}

setup() {
  cd "$work"
  pid=""
}

teardown() { [ -z "$pid" ] || kill "$pid"; }

# person <SCRIPT: an expect script with what all of them need; `see` waits for a pattern, `shell` starts a program whose prompt becomes
# "ready>", `leaves STATUS` ends the script well when the program ended with this status. What was on the terminal is printed.
person() {
  cat >"$BATS_TEST_TMPDIR/script" <<'END'
set timeout 60
proc see {pattern} {
  expect {
    -re $pattern {}
    timeout { puts "\nTIMEOUT: no $pattern"; exit 99 }
    eof { puts "\nEND: no $pattern"; exit 98 }
  }
}
proc type {text} { send -- $text }
proc shell {args} {
  global spawn_id spawn_out
  set ::env(TERM) dumb  ;# no escape sequences among the output
  uplevel #0 [list spawn {*}$args]
  see {[$#] $}
  # Written so that the echo of the line itself is no prompt.
  type "PS1='rea''dy> '; PS0=\r"
  see {\nready> $}
}
# Before the command is in the terminal's foreground, keys that send signals are the shell's. Seen from outside: by its words, which nothing
# else on this node has.
proc in_front {command} {
  for {set i 0} {$i < 600} {incr i} {
    if {![catch {exec ps -u $::env(USER) -o stat=,args= | grep -E "^\[RS\]\[a-zA-Z\]*\[+\] +$command\$"}]} return
    sleep 0.1
  }
  puts "\nNEVER in front: $command"
  exit 94
}
# srun passes the size of the window on in its own time.
proc eventually {text pattern} {
  for {set i 0} {$i < 50} {incr i} {
    type $text
    expect {
      -re $pattern {
        # Answers to what was typed too often shall not be taken for those to come.
        type "echo in-''step-$i\r"
        see "in-step-$i\r\nready> $"
        return
      }
      -re {ready> $} { sleep 0.2 }
      timeout { break }
    }
  }
  puts "\nNEVER: $pattern"
  exit 95
}
# At once: stty(1) sets rows and columns one after the other, and srun of 22.05 now and then misses the second of two signals.
proc resize {rows columns} {
  global spawn_out
  exec python3 -c "import fcntl, struct, termios; fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', $rows, $columns, 0, 0))" < $spawn_out(slave,name)
}
proc leaves {status} {
  expect { eof {} timeout { puts "\nTIMEOUT: still there"; exit 97 } }
  lassign [wait] pid id error code
  if {$error != 0 || $code != $status} { puts "\nended with $error $code, not $status"; exit 96 }
  exit 0
}
END
  cat >>"$BATS_TEST_TMPDIR/script"
  expect -f "$BATS_TEST_TMPDIR/script"
}

# What the person does in a shell; every program that gives one has to bear it. It ends with status 7.
conversation() {
  cat <<'END'
type "tty; test -t 0 && test -t 1 && test -t 2 && echo all-ter''minals\r"
see {/dev/pts/[0-9]+.*all-terminals\r\nready> $}
# The window: its size inside follows, and whoever wants to know is told.
resize 41 131
eventually "stty size\r" {41 131\r\nready> $}
type "trap 'echo was-''resized' WINCH; echo trap-''set\r"
see {trap-set\r\nready> $}
resize 42 132
eventually "\r" {was-resized}
eventually "stty size\r" {42 132\r\nready> $}
type "trap - WINCH\r"
see {ready> $}
# Ctrl-C ends the child, not the shell.
type "sleep 1000\r"
in_front {sleep 1000}
type "\003"
see {ready> $}
type "echo status-\$?\r"
see {status-130\r\nready> $}
# Ctrl-Z stops the child; fg and Ctrl-C end it.
type "sleep 1001\r"
in_front {sleep 1001}
type "\032"
see {Stopped.*ready> $}
type "jobs\r"
see {Stopped +sleep 1001\r\nready> $}
type "fg\r"
see {sleep 1001}
in_front {sleep 1001}
type "\003"
see {ready> $}
type "jobs; echo no-mo''re\r"
see {no-more\r\nready> $}
type "exit 7\r"
END
}

@test "start: a shell in a container" {
  person < <(
    echo 'shell enroot start debian bash --norc'
    conversation
    echo 'leaves 7'
  )
}

@test "start: the shell that /etc/rc gives, without a command, of an image" {
  person < <(
    echo 'shell enroot start --root --rw debian.sqsh'
    echo 'type "id -u; echo \$0\r"'
    echo 'see {\n0\r\n.*ready> $}'
    echo 'type "exit 7\r"'
    echo 'leaves 7'
  )
}

@test "exec: a shell in a running container" {
  enroot start debian sleep 2000 3>&- &
  pid=$!
  for _ in {1..600}; do [ "$(cat /proc/$pid/comm)" != sleep ] || break; sleep 0.05; done
  person < <(
    echo "shell enroot exec -e TERM $pid bash --norc"
    conversation
    echo 'leaves 7'
  )
}

@test "start: job control of the shell outside" {
  person <<'END'
shell bash --norc
type "enroot start debian sleep 1000\r"
in_front {sleep 1000}
type "\032"
see {Stopped.*ready> $}
type "enroot list -f | awk '\$1 == \"debian\" { print \"state\", substr(\$4, 1, 1) }'\r"
see {state T\r\nready> $}
type "bg\r"
see {ready> $}
type "fg\r"
see {enroot start debian}
in_front {sleep 1000}
type "\003"
see {ready> $}
type "echo status-\$?\r"
see {status-130\r\nready> $}
type "exit 7\r"
leaves 7
END
}

@test "srun --pty enroot start" {
  mkdir -p data-of-mine
  echo content >data-of-mine/file
  person < <(
    echo 'shell srun --pty enroot start --mount ./data-of-mine:/mnt/data debian bash --norc'
    echo 'type "cat /mnt/data/file\r"'
    echo 'see {\ncontent\r\nready> $}'
    conversation
    echo 'leaves 7'
  )
}

@test "srun --pty --container-image" {
  person < <(
    echo 'shell srun --pty --container-image=registry.test#debian:12 bash --norc'
    conversation
    echo 'leaves 7'
  )
}
