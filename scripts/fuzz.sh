#!/bin/sh
# Lets Schemathesis make requests from our OpenAPI description, all checks and the stateful phase included, against a
# Stowage of its own: 1,000 or more, with STOWAGE_FAULTS=full 10,000 or more. What it is given beyond that are arguments
# of `schemathesis run`.
set -eu

seed=${STOWAGE_TEST_SEED:-20261121}
examples=5
if [ "${STOWAGE_FAULTS:-}" = full ]; then examples=220; fi

root=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
chmod 755 "$work"
launcher=
clean_up() {
  if [ -n "$launcher" ]; then kill "$launcher" 2>/dev/null && wait "$launcher" || true; fi
  rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

tools=$("$root/scripts/python-tool.sh" schemathesis 4.32.5)

port=$(node -e "const s = require('net').createServer().listen(0, '127.0.0.1', () => { console.log(s.address().port); s.close() })")
url=http://127.0.0.1:$port
password='correct horse battery staple'
STOWAGE_PORT=$port STOWAGE_DATA_DIR=$work/data STOWAGE_ADMIN_PASSWORD=$password STOWAGE_LOG_LEVEL=error \
  STOWAGE_LOGIN_FAILURES_PER_USER=1000 STOWAGE_LOGIN_FAILURES_PER_ADDRESS=100000 \
  node "$root/launcher/src/standalone.ts" >"$work/log" 2>&1 &
launcher=$!
tries=0
until curl -sf "$url/api/system/ready" >/dev/null; do
  tries=$((tries + 1))
  if [ $tries -gt 300 ]; then cat "$work/log" >&2; exit 1; fi
  sleep 0.2
done

log_in() {
  curl -sf "$url/api/auth/login" -H 'Content-Type: application/json' \
    -d "{\"username\": \"admin\", \"password\": \"$password\"}" | sed 's/.*"access_token":"\([^"]*\)".*/\1/'
}

# It keeps what it learns in the folder that it runs in.
cd "$work"
token=$(log_in)
directory=$(curl -sf "$url/api/directories" -H "Authorization: Bearer $token" -H 'Content-Type: application/json' \
  -d '{"name": "fuzz"}' | sed 's/.*"id":"\([^"]*\)".*/\1/')
metadata="filename $(printf fuzz.txt | base64),directory_id $(printf %s "$directory" | base64)"
upload() {
  curl -sf -D - -o /dev/null "$url/files" -H "Authorization: Bearer $token" -H 'Tus-Resumable: 1.0.0' \
    -H "Upload-Length: $1" -H 'Content-Type: application/offset+octet-stream' -H "Upload-Metadata: $metadata" \
    --data-binary 'content of a file' | tr -d '\r' | sed -n 's#^location: .*/files/##Ip'
}
whole=$(upload 17)
file=$(curl -sf -X POST "$url/api/uploads/$whole/finalize" -H "Authorization: Bearer $token" | sed 's/.*"id":"\([^"]*\)".*/\1/')
unfinished=$(upload 1000)

cp "$root/scripts/fuzz.toml" "$work/fuzz.toml"
fuzz() {
  fresh=$(log_in)
  test -n "$fresh"
  SCHEMATHESIS_HOOKS=$root/scripts/fuzz_hooks.py "$tools/schemathesis" --config-file "$work/fuzz.toml" run "$url/api/openapi.json" \
    --header "Authorization: Bearer $fresh" --checks all --max-response-time 5 --request-timeout 10 \
    --max-examples "$examples" --seed "$seed" --no-shrink --generation-database none --continue-on-failure --no-color "$@"
}

# What would close the service or end the session for the rest of a run has a run of its own.
status=0
fuzz --exclude-path /api/auth/logout --exclude-path /api/system/mode \
  --exclude-path-regex '^/api/(users|jobs/(run-pending|enqueue-))' "$@" || status=$?
# As a GET they are jobs of these names, which there are not: 404, no 405.
fuzz --include-path-regex '^/api/jobs/(run-pending|enqueue-)' --exclude-checks unsupported_method "$@" || status=$?
fuzz --include-path /api/system/mode "$@" || status=$?
curl -sf -o /dev/null -X PUT "$url/api/system/mode" -H "Authorization: Bearer $token" \
  -H 'Content-Type: application/json' -d '{"mode": "normal"}'

# Once more what takes an id, with ids of things that are there.
cat >>"$work/fuzz.toml" <<END

[parameters]
"path.file_id" = "$file"
"path.directory_id" = "$directory"
"path.upload_id" = "$unfinished"
END
fuzz --include-path-regex '_id}' --exclude-path-regex '^/api/(jobs|users|backends)/' --phases coverage,fuzzing "$@" || status=$?
fuzz --include-path /api/auth/logout "$@" || status=$?
# The last one: it may change the admin's password.
fuzz --include-path-regex '^/api/users' "$@" || status=$?

if ! kill -0 "$launcher" 2>/dev/null; then
  echo 'Stowage ended during the run:' >&2
  cat "$work/log" >&2
  status=1
fi
echo "Repeat it with STOWAGE_TEST_SEED=$seed." >&2
exit $status
