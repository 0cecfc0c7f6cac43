#!/bin/sh
# The resident runner: launches jobs in a box and reports how they ended.
#
# It is sent as data through one spawn of the transport and reads one request a line:
#   run ID FLAGS SPEC   launch a job; FLAGS: i = a stdin pipe, - = none; SPEC - = the bytes that `spec` brought
#   spec N, body N      the next N bytes are the next run's SPEC, or the script it reads from fd 9
#   kill ID SIG SCOPE   p = the main process, g = its group, a = all that the job started   -> K ID ok|no|gone
#   get ID FILE SKIP N  N blocks of 4096 bytes after SKIP: od's lines, which begin with a blank -> G ID FILE SIZE
#   st ID, list         -> S ID done STATUS | run PID | new | lost | none, and `L end` after a list
#   watch ID            report the end of a job that another runner launched
#   pre ID.., rm ID..   make job directories ahead; remove the directories of ended jobs
#   tidy DAYS           remove the jobs that ended more than DAYS days ago
#   ping X              -> P X
# and says   D ID STATUS I OUT/ERR [full]   ended, all output inline as hex, - = none
#            D ID STATUS B SIZE SIZE [full] ended, output to be fetched
#            E ID WORD                      not launched
# STATUS: N = exit code, sN = signal N, ?N = code N or signal N-128, lost.
#
# Every message is one line below 4096 bytes and one printf: a pipe keeps such a write in one piece, whoever else
# writes. fd 3 and 4 are the transport; 0, 1 and 2 never are. Every name begins with bb_: what the box's
# environment exports under another name must reach the jobs as it is.
# Words are split on purpose, and eval uses what looks unused.
# shellcheck disable=SC2034,SC2046,SC2086,SC2154,SC2015,SC2012,SC2013,SC2044,SC2174,SC2209,SC2216,SC3040
exec 3>&1 4<&0 </dev/null >/dev/null 2>&1
[ -z "${BASH_VERSION-}" ] || set -o posix
set +e +u +f +C
IFS=' 	
'
bb_n='
'
bb_mask=$(umask); umask 077
case ${PATH+s} in s) bb_path="PATH=\$bb_old"; bb_old=$PATH;; *) bb_path='unset PATH';; esac
PATH=${PATH:+$PATH:}/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
case ${LC_ALL+s} in s) bb_lc="LC_ALL=\$bb_all"; bb_all=$LC_ALL; export LC_ALL;; *) bb_lc='unset LC_ALL';; esac
LC_ALL=C # ${#x} counts bytes, and case and printf take them as they are
bb_boot=-; read -r bb_boot </proc/sys/kernel/random/boot_id

bb_say() { printf '%s\n' "$*" >&3; }

# A state directory of ours alone. The fallbacks lie in shared places: another user's is not used.
bb_ours() {
  mkdir -p -m 700 "$1" && [ -d "$1" ] && [ ! -L "$1" ] || return 1
  set -- "$1" $(ls -ldn "$1")
  case $2 in drwx------*) [ "$4" = "$bb_uid" ];; *) return 1;; esac
}
bb_uid=$(id -u)
bb_h=${HOME:-}; [ -n "$bb_h" ] || bb_h=$(eval "echo ~$(id -un)")
bb_jobs=
if mkdir -p "$bb_h/.local/state/bb-box/jobs" && [ -w "$bb_h/.local/state/bb-box/jobs" ]; then bb_jobs=$bb_h/.local/state/bb-box/jobs
elif bb_ours "/tmp/bb-box-$bb_uid" && mkdir -p "/tmp/bb-box-$bb_uid/jobs"; then bb_jobs=/tmp/bb-box-$bb_uid/jobs
elif bb_ours "/dev/shm/bb-box-$bb_uid" && mkdir -p "/dev/shm/bb-box-$bb_uid/jobs"; then
  bb_jobs=/dev/shm/bb-box-$bb_uid/jobs
fi
[ -n "$bb_jobs" ] || { bb_say "$bb_nonce fail no directory for jobs can be written"; exit 1; }

# A subshell's own pid and start time, without a process where /proc is there.
if [ -r /proc/self/stat ]; then
  bb_self() { read -r bb_s </proc/self/stat; set -- $bb_s; bb_me=$1; shift 21; bb_t0=$1; }
else
  # shellcheck disable=SC2016
  bb_self() { bb_me=$(exec sh -c 'echo $PPID'); bb_t0=0; }
fi
# In place: none of our subshells leads a group, so the job keeps its pid.
if bb_s=$(command -v setsid); then bb_exec="exec $bb_s"
elif bb_s=$(command -v perl); then bb_exec="exec $bb_s -e 'use POSIX; setsid; exec {\$ARGV[0]} @ARGV or exit 127'"
else bb_exec=exec; fi
# A shell without job control has `&` ignore SIGINT and SIGQUIT for good, and jobs would never be interrupted.
# bash can take that back; GNU env can for the others; else jobs are launched in the foreground of a subshell
# that is then killed, which leaves the supervisor behind.
if [ -n "${BASH_VERSION-}" ]; then bb_mode=bash
elif env --default-signal=INT,QUIT true; then
  bb_mode=env; bb_exec="exec $(command -v env) --default-signal=INT,QUIT ${bb_exec#exec}"
else bb_mode=fore; fi

# Exactly $1 bytes into bb_b. dd never reads past its block, where `head -c` may.
bb_take() {
  bb_b=; bb_left=$1
  while [ "$bb_left" -gt 0 ]; do
    bb_c=$(dd bs=$((bb_left < 65536 ? bb_left : 65536)) count=1 2>/dev/null; printf x); bb_c=${bb_c%x}
    [ -n "$bb_c" ] || return 1
    bb_b=$bb_b$bb_c; bb_left=$((bb_left - ${#bb_c}))
  done
}

# Runs in a process of its own and becomes the command.
bb_job() {
  trap - HUP INT QUIT TERM PIPE CHLD
  bb_self; printf '%s %s %s\n' "$bb_me" "$bb_t0" "$bb_boot" >"$bb_d/pid" || exit 125
  exec >"$bb_d/out" 2>"$bb_d/err" 3>&- 4<&-
  case $1 in i) exec <"$bb_d/in";; esac # waits until the stdin stream opens it
  umask "$bb_mask"; eval "$bb_path"; eval "$bb_lc"; BB_JOB=$bb_id; export BB_JOB
  eval "$2"; exit 125
}
bb_no() { printf '%s: %s\n' "$1" "$2" >&2; exit "$3"; }
# What a SPEC ends with. A script goes through a pipe to fd 9: never an argument, never a file.
go() {
  # In words of our own: setsid's and env's are about themselves.
  case $1 in
  */*) [ -e "$1" ] || bb_no "$1" 'there is no such program in the box' 127
    [ -x "$1" ] && [ ! -d "$1" ] || bb_no "$1" 'the box may not execute this' 126;;
  *) command -v "$1" >/dev/null 2>&1 || bb_no "$1" 'there is no such program in the box' 127;;
  esac
  if [ -n "$bb_body" ]; then
    mkfifo -m 600 "$bb_d/s" || exit 125
    (exec </dev/null >/dev/null 2>&1; printf '%s' "$bb_body" >"$bb_d/s") &
    exec 9<"$bb_d/s"; rm -f "$bb_d/s"; bb_body=
    eval "$bb_exec \"\$@\" 9<&9" # said again: some shells set close-on-exec above fd 2
  fi
  eval "$bb_exec \"\$@\""
}

bb_hex() { set -- $(od -An -v -tx1 -N1101 "$1"); bb_x="$*"; }
bb_sizes() { set -- $(cd "$bb_d" && ls -ln err out); bb_size="${14:-0} ${5:-0}"; }
# $1 = ID, $2 = status. Up to 1100 bytes of output ride along.
bb_report() {
  bb_o=; bb_e=
  [ ! -s "$bb_d/out" ] || { bb_hex "$bb_d/out"; bb_o=$bb_x; }
  [ ! -s "$bb_d/err" ] || { bb_hex "$bb_d/err"; bb_e=$bb_x; }
  if [ $((${#bb_o} + ${#bb_e})) -gt 3300 ]; then bb_sizes; bb_say "D $1 $2 B $bb_size$bb_full"
  else bb_say "D $1 $2 I ${bb_o:--}/${bb_e:--}$bb_full"; fi
}
# One for each job; outlives the runner. It records first and then tells.
bb_sup() {
  trap '' HUP INT QUIT TERM PIPE
  case $bb_mode in
  env) # `jobs` says Done(143) or Terminated
    bb_job "$2" "$3" & bb_p=$!; wait "$bb_p"; bb_r=$?
    [ $bb_r -le 128 ] || jobs >"$bb_d/sig";;
  bash) # the same, but only while the job is not yet waited for
    trap 'jobs >"$bb_d/sig"' CHLD
    bb_job "$2" "$3" & bb_p=$!; wait "$bb_p"; bb_r=$?
    # 145 is also what a wait says that SIGCHLD interrupted.
    [ $bb_r != 145 ] || { read -r bb_s <"$bb_d/sig"; case $bb_s in *"Done(145)"*) ;; *) wait "$bb_p"; bb_r=$?;; esac; }
    trap - CHLD;;
  fore) # a death by signal is said on the waiting shell's stderr, but for INT and PIPE
    { (bb_job "$2" "$3" 2>/dev/null); bb_r=$?; } 2>"$bb_d/sig";;
  esac
  if [ $bb_r -gt 128 ]; then
    bb_s=; read -r bb_s <"$bb_d/sig"
    case $bb_mode:$bb_r:$bb_s in
    fore:130: | fore:141:) bb_r="?$bb_r";;
    fore:*:) ;;
    *"Done($bb_r)"*) ;;
    *) bb_r=s$((bb_r - 128));;
    esac
  fi
  printf '%s\n' "$bb_r" 1<>"$bb_d/rc" || bb_full=' full' # over reserved bytes: works on a full disk
  bb_report "$1" "$bb_r"
  # Opened both ways it wakes a writer that waits for a reader which will never come.
  case $2 in i) : <>"$bb_d/in"; rm -f "$bb_d/in";; esac
}
bb_run() {
  bb_id=$1; bb_d=$bb_jobs/$1; bb_full=
  [ -d "$bb_d" ] || mkdir "$bb_d" || [ -d "$bb_d" ] || { bb_say "E $1 nodir"; return; }
  # Created anew, this claims the ID; its blanks reserve the room for the status.
  set -C; printf '%-20s\n' - >"$bb_d/rc"; bb_r=$?; set +C
  [ $bb_r = 0 ] || { if [ -s "$bb_d/rc" ]; then bb_say "E $1 exists"; else bb_say "E $1 full"; fi; return; }
  case $2 in i) mkfifo -m 600 "$bb_d/in" || { bb_say "E $1 nofifo"; return; };; esac
  case $bb_mode in
  fore) (bb_self; { bb_sup "$@"; } 4<&- >/dev/null | kill -9 "$bb_me");;
  *) { bb_sup "$@"; } 4<&- &;;
  esac
}

# Whether the job's main process lives. A pid that was used again, or a dead one nobody waits for, is not it.
bb_alive() {
  bb_p=; bb_t=; bb_u=; read -r bb_p bb_t bb_u <"$bb_jobs/$1/pid" && [ -n "$bb_p" ] || return 1
  [ "$bb_u" = "$bb_boot" ] || return 1
  if [ "$bb_t" = 0 ]; then kill -0 "$bb_p"; return; fi
  read -r bb_s <"/proc/$bb_p/stat" || return 1
  set -- ${bb_s##*) }; [ "$1" != Z ] || return 1
  shift 19; [ "$1" = "$bb_t" ]
}
bb_ended() { bb_r=-; read -r bb_r <"$bb_jobs/$1/rc"; case $bb_r in '' | -*) return 1;; esac; }
bb_state() {
  if [ ! -e "$bb_jobs/$1/rc" ]; then bb_say "S $1 none"
  elif bb_ended "$1"; then bb_say "S $1 done $bb_r"
  elif bb_alive "$1"; then bb_say "S $1 run $bb_p"
  elif bb_ended "$1"; then bb_say "S $1 done $bb_r" # it may have ended meanwhile
  # Between a claim and a process lie milliseconds: after a minute whoever was to launch it is no more.
  elif [ -z "$bb_p$(find "$bb_jobs/$1/rc" -mmin +1)" ]; then bb_say "S $1 new"
  else bb_say "S $1 lost"; fi
}
bb_watch() {
  bb_d=$bb_jobs/$1; bb_full=
  # Before its pid is known a job is new, and between its end and the record lies the supervisor's work: a job is
  # lost only when it is seen neither alive nor ended ten times.
  bb_y=0
  while ! bb_ended "$1" && [ $bb_y -lt 10 ]; do
    if bb_alive "$1"; then bb_y=0; else bb_y=$((bb_y + 1)); fi
    kill -0 $$ || exit
    sleep 0.2 || sleep 1
  done
  bb_ended "$1" || bb_r=lost
  bb_report "$1" "$bb_r"
}
# Those that left the job's group: in its session, or with its mark in their environment.
bb_others() {
  for bb_x in $(grep -l "BB_JOB=$1" /proc/[0-9]*/environ); do
    bb_x=${bb_x%/environ}; kill -s "$2" "${bb_x#/proc/}" && bb_k=ok
  done
  [ -z "$3" ] || for bb_x in /proc/[0-9]*/stat; do
    read -r bb_s <"$bb_x" || continue
    bb_x=${bb_x%/stat}; set -- "$1" "$2" "$3" ${bb_s##*) }
    if [ "$7" = "$3" ] && kill -s "$2" "${bb_x#/proc/}"; then bb_k=ok; fi
  done
}
# A job that was just launched may not lead its group yet.
bb_group() {
  for bb_x in 1 2 3 4 5 6 7 8 9 10; do
    bb_alive "$1" || return
    kill "-$2" "-$bb_p" && { bb_k=ok; return; }
    bb_k=no; sleep 0.02 || sleep 1
  done
}
bb_kill() {
  bb_k=gone; bb_q=
  ! bb_alive "$1" || bb_q=$bb_p
  case $3 in
  p) [ -z "$bb_q" ] || { bb_k=no; kill -s "$2" "$bb_q" && bb_k=ok; };;
  *) bb_group "$1" "$2";;
  esac
  case $3 in a) bb_others "$1" "$2" "$bb_q";; esac
  bb_say "K $1 $bb_k"
}
# Raw od lines may mix with messages only between lines: dd writes whole numbers of them (49 bytes each).
bb_get() {
  dd bs=4096 skip="$3" count="$4" 2>/dev/null <"$bb_jobs/$1/$2" | od -An -v -tx1 | dd obs=4067 2>/dev/null >&3
  bb_d=$bb_jobs/$1; bb_sizes
  case $2 in out) bb_say "G $1 out ${bb_size% *}";; *) bb_say "G $1 err ${bb_size#* }";; esac
}
bb_tidy() {
  cd "$bb_jobs" || return
  for bb_x in $(find . -name rc -mtime "+$1"); do
    bb_x=${bb_x#./}; bb_x=${bb_x%/rc}
    if bb_ended "$bb_x" || ! bb_alive "$bb_x"; then rm -rf -- "$bb_x"; fi
  done
  for bb_x in $(find . -type d -mtime "+$1"); do rmdir -- "$bb_x"; done # made ahead and never used
}

bb_spec=; bb_body=
bb_say "$bb_nonce hello 1 $$ $bb_jobs"
while IFS=' ' read -r bb_v bb_a bb_b bb_c <&4; do
  case $bb_v in
  ping) bb_say "P $bb_a"; continue;;
  spec) bb_take "$bb_a" <&4 || exit 1; bb_spec=$bb_b; continue;;
  body) bb_take "$bb_a" <&4 || exit 1; bb_body=$bb_b; bb_b=; continue;;
  list)
    for bb_x in "$bb_jobs"/*/rc; do bb_x=${bb_x%/rc}; [ -d "$bb_x" ] && bb_state "${bb_x##*/}"; done
    bb_say 'L end'; continue;;
  tidy) (bb_tidy "$bb_a") 4<&- & continue;;
  esac
  # The rest name a job, and a name is never a path.
  case $bb_v in
  pre | rm) case "$bb_a $bb_b $bb_c" in *[!A-Za-z0-9\ ]*) continue;; esac;;
  *) case $bb_a in *[!A-Za-z0-9]* | '') continue;; esac;;
  esac
  case $bb_v in
  run)
    [ "$bb_c" != - ] || bb_c=$bb_spec
    bb_run "$bb_a" "$bb_b" "$bb_c"; bb_spec=; bb_body=;;
  kill) bb_kill "$bb_a" "$bb_b" "$bb_c" 4<&- & ;;
  get) bb_get "$bb_a" "$bb_b" ${bb_c} 4<&- & ;;
  st) bb_state "$bb_a";;
  watch) bb_watch "$bb_a" 4<&- & ;;
  # The foreground subshell lets the shell wait for supervisors that have ended.
  pre) (:); (cd "$bb_jobs" && mkdir -- $bb_a $bb_b $bb_c) & ;;
  rm) (cd "$bb_jobs" && rm -rf -- $bb_a $bb_b $bb_c) & ;;
  esac
done
