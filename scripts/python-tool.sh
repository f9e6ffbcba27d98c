#!/bin/sh
# python-tool.sh <package> <version>
#
# Installs a tool of PyPI into a folder of its own below ~/.cache/stowage, once, and prints the folder of its programs.
set -eu

package=$1
version=$2
folder=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/stowage/$package-$version

if [ ! -x "$folder/bin/$package" ]; then
  echo "Installing $package $version into $folder." >&2
  if ! { python3 -m venv "$folder" && "$folder/bin/pip" install --quiet --disable-pip-version-check "$package==$version"; } >&2; then
    rm -rf "$folder"
    echo "$package $version can't be installed: it needs Python 3.10 with venv, and PyPI." >&2
    exit 1
  fi
fi
echo "$folder/bin"
