# Checks files by their CRC and size, as POSIX cksum has them; a part of the copy scripts.
# shellcheck shell=sh disable=SC2034,SC2086,SC2154
bb_fail() { bb_code=$1; shift; printf '%s\n' "$*" >&2; exit $bb_code; }
bb_sum() { cksum "$@" | cut -d' ' -f1,2; }
# $1 = CRC and SIZE, $2 = the file.
bb_one() { bb_got=$(bb_sum <"$2"); [ "$bb_got" = "$1" ] || bb_fail 5 "$2 is not what was sent"; }
# bb_w = CRC and SIZE of each file, with blanks between. A name with a newline or a backslash comes to bb_one: what the
# tools print for it differs.
bb_many() {
  bb_got=$(bb_sum "$@" | tr '\n' ' ')
  [ "$bb_got" != "$bb_w " ] || return 0
  for bb_f; do
    bb_got=${bb_w#* }
    bb_one "${bb_w%% *} ${bb_got%% *}" "$bb_f"; bb_w=${bb_got#* }
  done
}
