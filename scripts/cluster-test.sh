#!/usr/bin/env bash
# cluster-test.sh [jest argument...] : the tests on a real cluster (`npm run test:cluster`).
#
# The cluster is the one that CLUSTER_UP brings up (default ../shared/cluster/up, where that exists); else the one that
# KUBECONFIG names (kind, k3d). With neither the tests are left out, which is said. Settings:
#   CLUSTER_UP, CLUSTER_DOWN      commands that bring a cluster up, printing `export` lines, and down
#   CLUSTER_LOAD_IMAGE            command that builds an image and loads it: NAME:TAG DIRECTORY [option of docker build...]
#   CLUSTER_BASE_IMAGE            command that prints the name of the image to build on; unset, that of the Dockerfile
#   CLUSTER_DEPS                  command that brings up what deps.yaml has, in namespace `deps`
#   CLUSTER_IN_NODE               command to run the tests under, where addresses of Services are reached; empty: right here
#   STOWAGE_CLUSTER_VALUES        values of the chart that this cluster wants, as JSON, such as {"persistence":{"storageClass":"nfs"}}
#   STOWAGE_CLUSTER_KEEP=1        leaves the cluster up
#   STOWAGE_CLUSTER_TESTS         a pattern of the files of tests/cluster that run; unset, all of them; - for none
#   STOWAGE_CLUSTER_SHARE         the share of the contract tests that runs, such as 1/3; unset, all of them; - for none
#   STOWAGE_CLUSTER_IMAGE         an image that is loaded already, as NAME, with the tags `test` and `next`
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '%s cluster-test: %s\n' "$(date +%H:%M:%S)" "$*" >&2; }

shared=../shared/cluster
# beside NAME [ARGUMENT]: the command of that name that lies beside CLUSTER_UP; empty where there is none.
beside() {
  local command
  command=$(dirname "${CLUSTER_UP%% *}")/$1
  if [ -x "$command" ]; then echo "$command ${2:-}"; fi
}
image=${STOWAGE_CLUSTER_IMAGE:-localhost/stowage}
in_node=${CLUSTER_IN_NODE:-}
ours=no

if [ -n "${CLUSTER_UP:-}" ] || { [ -z "${KUBECONFIG:-}" ] && [ -x "$shared/up" ]; }; then
  : "${CLUSTER_UP:=$shared/up}"
  : "${CLUSTER_DOWN=$(beside down)}" "${CLUSTER_LOAD_IMAGE=$(beside load-image)}" "${CLUSTER_DEPS=$(beside deps up)}"
  : "${CLUSTER_BASE_IMAGE=$(beside base-image node)}" "${CLUSTER_IN_NODE=$(beside in-node)}"
  # Its processes and firewall rules are root's.
  if [ "$CLUSTER_UP" = "$shared/up" ] && [ "$(id -u)" != 0 ]; then
    say 'the tests on a cluster are left out: it takes root to bring one up'
    [ "${CI:-}" != true ] || exit 1
    exit 0
  fi
  exports=$($CLUSTER_UP)
  eval "$exports"
  ours=yes
  in_node=$CLUSTER_IN_NODE
elif [ -z "${KUBECONFIG:-}" ]; then
  say 'the tests on a cluster are left out: there is no ../shared/cluster, no CLUSTER_UP and no KUBECONFIG'
  exit 0
fi

for tool in kubectl helm; do
  command -v "$tool" >/dev/null || { say "there is no $tool on this machine"; exit 1; }
done

work=$(mktemp -d)
clean_up() {
  local code=$?
  trap - EXIT
  if [ "${STOWAGE_CLUSTER_KEEP:-}" = 1 ]; then
    say 'the cluster is left up'
  else
    kubectl delete namespace -l stowage.dev/test=cluster --wait=false --ignore-not-found >/dev/null 2>&1 || true
    if [ "$ours" = yes ] && [ -n "${CLUSTER_DOWN:-}" ]; then $CLUSTER_DOWN || true; fi
  fi
  rm -rf "$work"
  exit "$code"
}
trap clean_up EXIT
# What a run before this one may have left.
kubectl delete namespace -l stowage.dev/test=cluster --ignore-not-found >/dev/null

if [ -z "${STOWAGE_CLUSTER_IMAGE:-}" ]; then
  if [ -z "${CLUSTER_LOAD_IMAGE:-}" ]; then
    say 'there is no CLUSTER_LOAD_IMAGE to build and load the image by, and no STOWAGE_CLUSTER_IMAGE that is loaded'
    exit 1
  fi
  base=()
  if [ -n "${CLUSTER_BASE_IMAGE:-}" ]; then base=(--build-arg "BASE_IMAGE=$($CLUSTER_BASE_IMAGE | tail -n 1)"); fi
  # The same content twice: an upgrade is to another tag and another image.
  for tag in test next; do
    started=$SECONDS
    $CLUSTER_LOAD_IMAGE "$image:$tag" . -f deploy/Dockerfile "${base[@]}" --label "stowage.dev/build=$tag" \
      >"$work/image.log" 2>&1 || { tail -n 50 "$work/image.log" >&2; exit 1; }
    say "$image:$tag is built and loaded, in $((SECONDS - started)) s"
  done
fi
if [ -n "${CLUSTER_DEPS:-}" ]; then $CLUSTER_DEPS >/dev/null; fi

# In there the API server is not at the address that is forwarded to this machine.
if [ -n "$in_node" ]; then
  server=$(kubectl get endpoints kubernetes -o jsonpath='https://{.subsets[0].addresses[0].ip}:{.subsets[0].ports[0].port}' 2>/dev/null)
  kubectl config view --raw --minify --flatten >"$work/kubeconfig"
  chmod 600 "$work/kubeconfig"
  cluster=$(kubectl --kubeconfig "$work/kubeconfig" config view -o jsonpath='{.clusters[0].name}')
  kubectl --kubeconfig "$work/kubeconfig" config set-cluster "$cluster" --server "$server" >/dev/null
  export KUBECONFIG="$work/kubeconfig"
fi

export STOWAGE_CLUSTER_IMAGE="$image"

# run [jest argument...]
run() {
  local started=$SECONDS
  # shellcheck disable=SC2086 # A command and its arguments.
  $in_node env -C "$PWD" node --disable-warning=ExperimentalWarning --experimental-vm-modules node_modules/jest/bin/jest.js \
    --config jest.cluster.config.mjs --runInBand --forceExit --passWithNoTests "$@" || failed=yes
  say "jest took $((SECONDS - started)) s"
}
failed=no
case " $* " in
  *' --selectProjects'*) run "$@" ;;
  # One after the other: a release for the contract tests would take its share of the machine from what is measured.
  *)
    [ "${STOWAGE_CLUSTER_TESTS:-}" = - ] || run --selectProjects=cluster ${STOWAGE_CLUSTER_TESTS:+"--testPathPatterns=tests/cluster/($STOWAGE_CLUSTER_TESTS)"} "$@"
    [ "${STOWAGE_CLUSTER_SHARE:-}" = - ] || run --selectProjects=cluster-contract ${STOWAGE_CLUSTER_SHARE:+"--shard=$STOWAGE_CLUSTER_SHARE"} "$@"
    ;;
esac
[ "$failed" = no ]
