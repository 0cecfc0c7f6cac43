#!/bin/sh
# Follows a job's output until the job has ended: what `out` and `err` get goes to stdout and stderr as it is.
# $1 = the job's directory, $2 and $3 = offsets to begin at, or - for a stream that is not wanted.
# Exits 0 after the last byte, 3 when the job's directory is gone, 4 when the job is lost.
# shellcheck disable=SC2012,SC2015,SC2034,SC2046,SC2086,SC2154,SC2162
cd "$1" || exit 3
# dd moves the offset that the next reader shares.
bb_skip() {
  [ "$1" -lt 65536 ] || dd bs=65536 count=0 skip=$(($1 / 65536)) 2>/dev/null
  [ $(($1 % 65536)) = 0 ] || dd bs=$(($1 % 65536)) count=1 >/dev/null 2>&1
}
# A job that was launched just now makes them in a moment; one that could not even begin has none.
bb_i=0
while [ ! -e err ] && [ $bb_i -lt 100 ]; do
  bb_r=-; read -r bb_r <rc || exit 3
  case $bb_r in '' | -*) ;; *) [ -e err ] || exit 0;; esac
  sleep 0.05 || sleep 1; bb_i=$((bb_i + 1))
done
bb_o=$2; bb_e=$3
case $2 in -) exec 4</dev/null; bb_o=0;; *) [ -r out ] && exec 4<out || exit 3;; esac
case $3 in -) exec 5</dev/null; bb_e=0;; *) [ -r err ] && exec 5<err || exit 3;; esac
# An offset may lie ahead of what there is: dd would stop at the end.
bb_there() { set -- "$2" $(ls -ln "$1"); [ "$6" -ge "$1" ]; }
bb_out() {
  [ "$bb_o" = 0 ] || { bb_there out "$bb_o" || return 0; bb_skip "$bb_o" <&4; bb_o=0; }
  cat <&4
}
bb_err() {
  [ "$bb_e" = 0 ] || { bb_there err "$bb_e" || return 0; bb_skip "$bb_e" <&5; bb_e=0; }
  cat <&5 >&2
}
bb_alive() {
  bb_p=; bb_t=; bb_u=; read -r bb_p bb_t bb_u <pid || return 0
  if [ "$bb_t" = 0 ]; then kill -0 "$bb_p" 2>/dev/null; return; fi
  read -r bb_s <"/proc/$bb_p/stat" || return 1
  set -- ${bb_s##*) }; [ "$1" != Z ] || return 1
  shift 19; [ "$1" = "$bb_t" ]
} 2>/dev/null
bb_i=0; bb_dead=0
while :; do
  # The status is read before the output: what came before it is then never missed.
  bb_r=-; read -r bb_r <rc || exit 3
  bb_out || exit 1
  bb_err || exit 1
  case $bb_r in '' | -*) ;; *) exit 0;; esac
  bb_i=$((bb_i + 1))
  if [ $bb_i -lt 100 ]; then sleep 0.05 || sleep 1; else sleep 0.2 || sleep 1; fi
  if [ $((bb_i % 10)) = 0 ]; then
    if bb_alive; then bb_dead=0; else bb_dead=$((bb_dead + 1)); [ $bb_dead -lt 3 ] || exit 4; fi
  fi
done
