#!/bin/sh
# Writes proto/gen anew from the .proto files.
set -eu
cd "$(dirname -- "$0")/.."
PATH="$PWD/node_modules/.bin:$PATH"
export PATH
exec buf generate proto --template proto/buf.gen.yaml
