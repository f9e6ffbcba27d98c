#!/usr/bin/env bash
# chart-checks.sh: checkov and kube-score on what the chart makes of its example values (`npm run check:chart`).
#
# Fails on every finding that is not named below, with the reason why it is kept. What concerns one object only stands as
# an annotation at that object.
set -euo pipefail
cd "$(dirname "$0")/.."

helm=$(command -v helm || echo "${CLUSTER_CACHE:-$HOME/.cache/test-cluster}/bin/helm")
checkov=$(scripts/python-tool.sh checkov 3.3.30)/checkov
kube_score_version=v1.20.0
kube_score=${XDG_CACHE_HOME:-$HOME/.cache}/stowage/kube-score-$kube_score_version/kube-score
[ -x "$kube_score" ] ||
  CGO_ENABLED=0 GOTOOLCHAIN=local GOBIN=$(dirname "$kube_score") go install "github.com/zegl/kube-score/cmd/kube-score@$kube_score_version"

checkov_kept=(
  # CPU limits: a pod at its limit stands still in the middle of requests while its node idles. Requests share out what there is.
  CKV_K8S_11
  # Pull always: a tag of a release is never moved, and a node that has the image starts pods while the registry is down.
  CKV_K8S_15
  # A digest: `image.digest` takes one, and production.yaml says so; the examples can't know it.
  CKV_K8S_43
)
kube_score_kept=(
  # As CKV_K8S_15.
  container-image-pull-policy
  # Pods are spread by topologySpreadConstraints, over nodes and zones.
  deployment-has-host-podantiaffinity
)

# What development.yaml is for: one pod of each, replaced at once, beside servers of which the images set the user.
checkov_kept_development=(
  # No liveness of bundled servers: a PostgreSQL that recovers is not to be killed. Its image's user is 999.
  CKV_K8S_8 CKV_K8S_40
)
kube_score_kept_development=(
  deployment-replicas deployment-strategy
  # As CKV_K8S_40.
  container-security-context-user-group-id
  # What they write lies on their volumes; the Service is one with an address, so that it can be named before it has a pod.
  container-ephemeral-storage-request-and-limit statefulset-has-servicename
)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=no

# check VALUES: checks what the chart makes of them, without what is named in $skipped and $ignored.
check() {
  local objects="$work/$1.yaml"
  "$helm" template stowage charts/stowage --namespace stowage --kube-version 1.33.0 -f "deploy/values/$1.yaml" >"$objects"
  "$checkov" --file "$objects" --framework kubernetes --compact --quiet --skip-download \
    --skip-check "$(IFS=,; echo "${skipped[*]}")" || failed=yes
  # As CKV_K8S_11.
  "$kube_score" score --kubernetes-version v1.33 --output-format ci --ignore-container-cpu-limit --exit-one-on-warning \
    "${ignored[@]/#/--ignore-test=}" "$objects" >"$work/scores" || failed=yes
  grep -vE '^\[(OK|SKIPPED)\]' "$work/scores" || true
}
skipped=("${checkov_kept[@]}") ignored=("${kube_score_kept[@]}")
check production
skipped+=("${checkov_kept_development[@]}") ignored+=("${kube_score_kept_development[@]}")
check development
[ "$failed" = no ]
