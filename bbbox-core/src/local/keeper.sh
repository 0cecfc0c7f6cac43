# A box's first process. Arguments: the box's folder, its host name, how it is kept apart. Its stdin is the
# box's lock, which it holds for as long as it lives. Prints what went wrong, or becomes what $KEEP says, which has
# the keeper's record open as 7 and the file that takes a shutdown's word as 8.
set -eu
trap '' PIPE
box=$1 name=$2 mode=$3
cd "$box"

# Who it is, on the machine: written before anything else, so that even a keeper that is still setting up is found.
read -r stat </proc/self/stat
read -r boot </proc/sys/kernel/random/boot_id
set -- $stat
pid=$1
shift 21
: >keeper
exec 7>>keeper 8>ended
echo "$pid $1 $boot" >&7

if [ "$mode" = none ]; then
  rm -rf tmp
  mkdir -m 700 tmp
  cd home
else
  # A root of its own in memory: this machine's programs read-only, and the box's home.
  mount -t tmpfs -o mode=755 bbbox root
  cd root
  mkdir -p dev/pts dev/shm home/box proc root run tmp var/tmp .old
  chmod 1777 tmp var/tmp dev/shm
  ln -s /run var/run
  links= table=
  for dir in usr etc opt nix bin sbin lib lib32 lib64 libx32; do
    if [ -L "/$dir" ]; then
      links="$links /$dir"
    elif [ -d "/$dir" ]; then
      mkdir "$dir"
      table="$table/$dir ./$dir none rbind,ro
"
    fi
  done
  [ -z "$links" ] || cp -P $links .
  for node in null zero full random urandom tty; do
    : >"dev/$node"
    table="$table/dev/$node ./dev/$node none bind
"
  done
  # One call for all: a call each would cost most of the time that a box takes to start.
  cat >.table <<TABLE
${table}../home ./home/box none bind
../home ./root none bind
devpts ./dev/pts devpts newinstance,ptmxmode=0666,mode=620
proc ./proc proc defaults
TABLE
  mount -a -T .table
  rm .table
  ln -s pts/ptmx dev/ptmx
  ln -s /proc/self/fd dev/fd
  ln -s fd/0 dev/stdin
  ln -s fd/1 dev/stdout
  ln -s fd/2 dev/stderr
  # Where name servers are listed outside /etc, the list comes along; the sockets beside it do not.
  servers=$(readlink -f /etc/resolv.conf || :)
  case $servers in
    '' | /etc/*) ;;
    *) mkdir -p ".${servers%/*}" && cat "$servers" >".$servers" ;;
  esac
  pivot_root . .old
  cd /
  umount -l .old
  rmdir .old
  # A read-only mount does not cover what is mounted below it.
  while read -r _ _ _ _ point _; do
    case $point in
      /usr/* | /etc/* | /opt/* | /nix/*) mount -o remount,bind,ro "$(printf "$point")" ;;
    esac
  done </proc/self/mountinfo
  hostname "$name"
  cd /home/box
fi

set -- env -i "PATH=$PATH" "BOOT=$boot" "BBBOX_BOX=${box##*/}" sh -c "$KEEP" bbbox-keeper
[ "$mode" = none ] || set -- setpriv --bounding-set "$CAPS" -- "$@"
exec "$@"
