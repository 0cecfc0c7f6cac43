# Gives files from the box; verify.sh comes before it, and before that bb_source = what to give.
# It says `ready KIND SIZE PATH`, KIND one of file, dir and link, and then takes, a line each:
#   tar   a tar stream goes to stdout
#   sum   for a file: its sum goes to stderr, as `bb_sum CRC SIZE`
#   list  up to the end of stdin comes a list that checks what arrived against the files here
# shellcheck shell=sh disable=SC2034,SC2046,SC2086,SC2154,SC2209
[ -e "$bb_source" ] || [ -L "$bb_source" ] || bb_fail 3 "there is no $bb_source in the box"
if [ -d "$bb_source" ]; then
  CDPATH='' cd -- "$bb_source" || exit 4
  bb_kind=dir; bb_size=0; bb_path=$(pwd -P; printf x); bb_path=${bb_path%??}
elif [ -f "$bb_source" ]; then
  bb_kind=file; [ ! -L "$bb_source" ] || bb_kind=link
  [ -r "$bb_source" ] || bb_fail 4 "$bb_source cannot be read"
  case $bb_source in */*) CDPATH='' cd -- "${bb_source%/*}/" || exit 4;; esac
  bb_source=${bb_source##*/}
  set -- $(ls -lnL -- "./$bb_source"); bb_size=$5
  bb_path=$(pwd -P; printf x); bb_path=${bb_path%??}; bb_path=${bb_path%/}/$bb_source
else bb_fail 4 "$bb_source is neither a file nor a directory"; fi
printf 'ready %s %s %s\n' $bb_kind "$bb_size" "$bb_path"
while read -r bb_x; do
  case $bb_x in
  # Beside the stream, which a large file takes long for.
  sum) { bb_x=$(bb_sum <"./$bb_source"); printf 'bb_sum %s\n' "$bb_x" >&2; } </dev/null >/dev/null &;;
  tar)
    case $bb_kind in
    dir) tar -cf - . </dev/null;;
    *) tar -chf - "./$bb_source" </dev/null;;
    esac || bb_fail 6 'tar could not pack all of it';;
  list) bb_all=; bb_list=$(cat); eval "$bb_list"; [ "$bb_all" = yes ] || exit 6;;
  esac
done
wait
