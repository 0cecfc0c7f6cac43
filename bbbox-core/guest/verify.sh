# Checks SHA-256 sums; a part of the copy scripts. Each prints the sums of its files, one a line, or of its stdin.
# shellcheck shell=sh disable=SC2034,SC2086,SC2119,SC2120,SC2154
if command -v sha256sum >/dev/null 2>&1; then bb_sum() { sha256sum "$@"; }
elif command -v shasum >/dev/null 2>&1; then bb_sum() { shasum -a 256 "$@"; }
else bb_sum() { openssl dgst -sha256 -r "$@"; }; fi
# Several times as fast where the processor has instructions for it, and slower to start.
if openssl dgst -sha256 -r </dev/null >/dev/null 2>&1; then bb_fast() { openssl dgst -sha256 -r "$@"; }
else bb_fast() { bb_sum "$@"; }; fi
bb_fail() { bb_code=$1; shift; printf '%s\n' "$*" >&2; exit $bb_code; }
bb_wrong() { bb_fail 5 "$1 is not what was sent"; }
# bb_w = the sums of the files, with blanks between. A name with a newline or a backslash comes to bb_one: what the
# tools print for it differs.
bb_many() {
  bb_got=$(bb_sum "$@" | cut -c1-64 | tr '\n' ' ')
  [ "$bb_got" != "$bb_w " ] || return 0
  for bb_f; do bb_one "${bb_w%% *}" "$bb_f"; bb_w=${bb_w#* }; done
}
bb_one() { bb_got=$(bb_sum <"$2" | cut -c1-64); [ "$bb_got" = "$1" ] || bb_wrong "$2"; }
bb_large() { bb_got=$(bb_fast <"$2" | cut -c1-64); [ "$bb_got" = "$1" ] || bb_wrong "$2"; }
