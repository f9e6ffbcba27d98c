#!/bin/sh
# with-dependencies.sh <production|all> <command> [args...]
#
# Installs the npm dependencies if they are missing or out of date, then runs the command in the root of the
# repository with node_modules/.bin first in PATH. Plain POSIX sh: `npm start` may be run by any host.
set -eu

required_major=24
required_minor=15
lock_wait_seconds=900

say() { printf '%s\n' "stowage: $*" >&2; }
fail() { say "$*"; exit 1; }

case "${1-}" in
  production | all) mode=$1 ;;
  *) fail 'usage: with-dependencies.sh <production|all> <command> [args...]' ;;
esac
shift
[ $# -gt 0 ] || fail 'usage: with-dependencies.sh <production|all> <command> [args...]'

cd "$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)"
root=$PWD
marker=node_modules/.stowage-install
lock=.stowage-install.lock

# --- what is installed -------------------------------------------------------------------------------------

lock_file_sum() {
  if command -v sha256sum >/dev/null 2>&1; then sha256sum <package-lock.json
  elif command -v shasum >/dev/null 2>&1; then shasum -a 256 <package-lock.json
  else cksum <package-lock.json
  fi | tr -s ' \t-' '___'
}

installed() {
  [ -r "$marker" ] || return 1
  found=$(cat "$marker")
  # An image carries a finished tree, perhaps read-only and without a lock file.
  [ "$found" = image ] && return 0
  sum=$(lock_file_sum)
  [ "$found" = "all $sum" ] || [ "$found" = "$mode $sum" ]
}

# --- one installation at a time ----------------------------------------------------------------------------

# kill -0 also fails for another user's process, so ask /proc as well.
alive() { kill -0 "$1" 2>/dev/null || [ -d "/proc/$1" ]; }

# The lock names the script and the npm it runs: npm goes on by itself when only the script was killed.
lock_is_stale() {
  holders=$(cat "$lock/pid" "$lock/npm" 2>/dev/null) || true
  if [ -z "$holders" ]; then return 1; fi
  for holder in $holders; do
    if alive "$holder"; then return 1; fi
  done
}

# Only one waiter may break a lock, else the second one would remove the first one's new lock.
break_stale_lock() {
  mkdir "$lock.break" 2>/dev/null || return 0
  if lock_is_stale; then rm -rf "$lock"; fi
  rmdir "$lock.break"
}

take_lock() {
  waited=0
  empty=0
  while ! mkdir "$lock" 2>/dev/null; do
    [ -d "$lock" ] || [ -w . ] || fail "cannot install the dependencies: $root is not writable."
    if [ "$waited" -eq 1 ]; then say 'waiting for another installation of the dependencies in this folder...'; fi
    if [ "$waited" -ge "$lock_wait_seconds" ] || [ "$empty" -ge 30 ]; then
      fail "another installation seems to hang. If none is running, remove $root/$lock and $root/$lock.break."
    fi
    if [ -s "$lock/pid" ]; then empty=0; else empty=$((empty + 1)); fi
    if lock_is_stale; then break_stale_lock; fi
    sleep 1
    waited=$((waited + 1))
  done
  printf '%s\n' "$$" >"$lock/pid"
}

release_lock() { rm -rf "$lock"; }

# --- installing --------------------------------------------------------------------------------------------

# npm must not run on the node inside the tree which it is about to replace.
path_without_bins() {
  saved_ifs=$IFS
  IFS=:
  set -f
  kept=
  for entry in $PATH; do
    case $entry in
      */node_modules/.bin) ;;
      *) kept=${kept:+$kept:}$entry ;;
    esac
  done
  set +f
  IFS=$saved_ifs
  printf '%s' "$kept"
}

# Starts npm in the background, so that a signal sent to this script reaches it at once; its id is in $npm.
start_npm() {
  if [ "$mode" = all ]; then set -- --include=dev --include=optional --include=peer
  else set -- --omit=dev --include=optional --include=peer
  fi
  (
    PATH=$(path_without_bins)
    unset NODE_ENV npm_config_omit npm_config_include npm_config_only npm_config_also npm_config_production \
      npm_config_optional npm_config_dev NPM_CONFIG_OMIT NPM_CONFIG_INCLUDE NPM_CONFIG_ONLY NPM_CONFIG_ALSO \
      NPM_CONFIG_PRODUCTION NPM_CONFIG_OPTIONAL NPM_CONFIG_DEV
    exec npm ci "$@"
  ) >&2 &
  npm=$!
  printf '%s\n' "$npm" >"$lock/npm"
}

interrupted() {
  trap '' HUP INT TERM
  if [ -n "$npm" ]; then
    kill -TERM "$npm" 2>/dev/null || true
    wait "$npm" || true
  fi
  say 'the installation of the dependencies was interrupted.'
  exit "$1"
}

install_dependencies() {
  command -v npm >/dev/null 2>&1 || fail 'the dependencies are not installed, and there is no npm to install them.'
  npm=
  trap 'release_lock' EXIT
  trap 'interrupted 129' HUP
  trap 'interrupted 130' INT
  trap 'interrupted 143' TERM
  say "installing the dependencies ($mode; this takes a minute or two)..."
  rm -f "$marker"
  start_npm
  if ! wait "$npm"; then
    fail 'the dependencies could not be installed: see the messages of npm above. Is the npm registry reachable?'
  fi
  printf '%s\n' "$mode $(lock_file_sum)" >"$marker.new"
  mv "$marker.new" "$marker"
  trap - EXIT HUP INT TERM
  release_lock
}

if ! installed; then
  take_lock
  if installed; then release_lock; else install_dependencies; fi
fi

# --- the right node ----------------------------------------------------------------------------------------

node_suffices() {
  version=$("$1" --version 2>/dev/null) || return 1
  version=${version#v}
  major=${version%%.*}
  minor=${version#*.}
  minor=${minor%%.*}
  case "$major$minor" in '' | *[!0-9]*) return 1 ;; esac
  [ "$major" -gt "$required_major" ] || { [ "$major" -eq "$required_major" ] && [ "$minor" -ge "$required_minor" ]; }
}

bin=$root/node_modules/.bin
if node_suffices "$bin/node"; then
  PATH=$bin:$PATH
else
  host_node=$(PATH=$(path_without_bins); command -v node) || host_node=
  if [ -z "$host_node" ] || ! node_suffices "$host_node"; then
    fail "Node.js $required_major.$required_minor or newer is needed, and npm has no build of it for this machine:" \
      'install it from https://nodejs.org and run this again.'
  fi
  # In front of .bin as well, which may hold a node that does not run here.
  PATH=$(dirname -- "$host_node"):$bin:$PATH
fi
export PATH
# What Node compiled at the last start: it halves the time to ready. Goes with the tree that it was made from.
if [ "$mode" = production ]; then
  NODE_COMPILE_CACHE=${NODE_COMPILE_CACHE-$root/node_modules/.compile-cache}
  export NODE_COMPILE_CACHE
fi
exec "$@"
