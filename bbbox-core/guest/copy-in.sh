# Takes files into the box; verify.sh comes before it, and before that:
#   bb_target = the target, bb_dir and bb_last = its parent and its last part, bb_name = the source's name,
#   bb_stage = a name that nobody guesses, bb_kind = file or dir
# It says `ready UID GID STAGE` and then takes, a line each:
#   tar   a tar stream follows: d is what is copied, m the list that checks and places it
#   go    it was unpacked into STAGE by other means; `absent` answers that it is not there
# Until everything is checked nothing but STAGE is touched, and however this ends STAGE is gone: the end of stdin
# is all it takes.
# shellcheck shell=sh disable=SC1091,SC2012,SC2015,SC2034,SC2046,SC2086,SC2154
umask 077
bb_where=
if [ $bb_kind = file ]; then
  if [ -d "$bb_target" ]; then bb_dir=$bb_target; bb_last=$bb_name
  elif [ -z "$bb_last" ]; then bb_fail 3 "$bb_target is no directory in the box"; fi
  bb_base=$bb_dir
elif [ -d "$bb_target" ]; then bb_base=$bb_target; bb_where=merge
elif [ -e "$bb_target" ] || [ -L "$bb_target" ]; then bb_fail 4 "$bb_target is in the box already and is no directory"
else bb_base=$bb_dir; fi
[ -d "$bb_base" ] || bb_fail 3 "there is no directory $bb_base in the box"
CDPATH='' cd -- "$bb_base" || exit 4
bb_base=$(pwd -P; printf x); bb_base=${bb_base%??}; bb_base=${bb_base%/}
bb_stage=$bb_base/$bb_stage
mkdir "$bb_stage" || exit 4
trap 'cd /; rm -rf -- "$bb_stage"' 0
trap 'exit 1' HUP INT TERM PIPE
cd "$bb_stage" || exit 1
printf 'ready %s %s %s\n' "$(id -u)" "$(id -g)" "$bb_stage"
while :; do
  read -r bb_x || {
    # Other means may still be at work when this side learns that the copy is off. Were STAGE gone they would make it
    # anew, and not as this user's, who then could not remove it: it stays, empty, until they have had their time.
    rm -rf d m; sleep 1; exit 1
  }
  case $bb_x in
  tar) tar -xpof - || bb_fail 6 'tar could not unpack what was sent'; break;;
  go) [ ! -f m ] || break; echo absent;;
  esac
done
bb_all=; bb_place() { :; }
[ -f m ] || bb_fail 6 'what was sent is not complete'
. ./m
[ "$bb_all" = yes ] || bb_fail 6 'what was sent is not complete'

# Called by the list: bb_sub MODE DIR [LAST] for each directory, parents first; bb_put DIR NAME.. for what lies in
# one. LAST is the mode of a directory that its owner may not write: it comes last, or nothing could be put there.
bb_sub_check() {
  [ ! -L "$bb_base/$2" ] || bb_fail 4 "$bb_base/$2 is a symbolic link, and a copy does not follow it"
  [ ! -e "$bb_base/$2" ] || [ -d "$bb_base/$2" ] || bb_fail 4 "$bb_base/$2 is no directory"
}
bb_put_check() {
  bb_d=$1; shift
  for bb_f; do
    if [ -d "$bb_base/$bb_d$bb_f" ] && [ ! -L "$bb_base/$bb_d$bb_f" ]; then
      bb_fail 4 "$bb_base/$bb_d$bb_f is a directory"
    fi
  done
}
bb_put_move() {
  bb_d=$1; shift
  for bb_f; do set -- "$@" "d/$bb_d$bb_f"; shift; done
  mv -f -- "$@" "$bb_base/$bb_d" || bb_fail 7 'some of it was put in place, and this was not'
}
bb_sub_make() { [ -d "$bb_base/$2" ] || { mkdir -m "$1" "$bb_base/$2" && bb_new="$bb_new $bb_i"; } || exit 7; }
bb_sub_mode() { [ -z "$3" ] || chmod "$3" "$bb_base/$2" || exit 7; }
bb_walk() {
  case $1 in
  check) bb_sub() { bb_sub_check "$@"; }; bb_put() { bb_put_check "$@"; };;
  make) bb_sub() { bb_i=$((bb_i + 1)); bb_sub_make "$@"; }; bb_put() { :; };;
  move) bb_sub() { :; }; bb_put() { bb_put_move "$@"; };;
  mode) bb_sub() { bb_i=$((bb_i + 1)); case "$bb_new " in *" $bb_i "*) bb_sub_mode "$@";; esac; }; bb_put() { :; };;
  modes) bb_sub() { bb_sub_mode "$@"; }; bb_put() { :; };;
  esac
  bb_i=0; bb_place
}
if [ $bb_kind = file ]; then
  [ ! -d "$bb_base/$bb_last" ] || bb_fail 4 "$bb_base/$bb_last is a directory"
  chmod "$bb_top" d && mv -f -- d "$bb_base/$bb_last" || exit 7
elif [ -n "$bb_where" ]; then
  bb_new=; bb_walk check; bb_walk make; bb_walk move; bb_walk mode
else
  [ ! -e "$bb_base/$bb_last" ] || bb_fail 4 "$bb_base/$bb_last came into being meanwhile"
  mv -- d "$bb_base/$bb_last" || exit 7
  bb_base=$bb_base/$bb_last; bb_walk modes; chmod "$bb_top" "$bb_base" || exit 7
fi
echo 'done'
