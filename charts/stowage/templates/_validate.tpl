{{/*
What the values ask for and can't work, each as a sentence; all are told at once. values.schema.json has refused unknown keys and wrong types
before.
*/}}
{{- define "stowage.validate" -}}
{{- $faults := concat
    (include "stowage.faultsOfDatabases" . | fromJsonArray)
    (include "stowage.faultsOfReach" . | fromJsonArray)
    (include "stowage.faultsOfWatching" . | fromJsonArray)
    (include "stowage.faultsOfPods" . | fromJsonArray)
    (include "stowage.faultsOfStorage" . | fromJsonArray)
    (include "stowage.faultsOfDeclared" . | fromJsonArray)
-}}
{{- with $faults -}}
{{- fail (printf "\n\nThese values can't work:\n  - %s\n" (join "\n  - " .)) -}}
{{- end -}}
{{- end -}}

{{- define "stowage.faultsOfDatabases" -}}
{{- $faults := list -}}
{{- with .Values -}}
{{- $databases := compact (list .database.url .database.existingSecret.name (ternary "bundled" "" .bundled.postgresql.enabled)) | len -}}
{{- if eq $databases 0 -}}
{{- $faults = append $faults "No database is given: set database.existingSecret.name or database.url, or bundled.postgresql.enabled=true to try it out." -}}
{{- else if gt $databases 1 -}}
{{- $faults = append $faults "More than one database is given: leave one of database.url, database.existingSecret.name and bundled.postgresql.enabled." -}}
{{- end -}}
{{- $buses := compact (list .nats.url .nats.existingSecret.name (ternary "bundled" "" .bundled.nats.enabled)) | len -}}
{{- if gt $buses 1 -}}
{{- $faults = append $faults "More than one NATS is given: leave one of nats.url, nats.existingSecret.name and bundled.nats.enabled." -}}
{{- else if and (eq $buses 0) (or .nats.credentials.secretName .nats.ca.secretName) -}}
{{- $faults = append $faults "nats.credentials and nats.ca need a NATS: set nats.url or nats.existingSecret.name." -}}
{{- end -}}
{{- end -}}
{{ toJson $faults }}
{{- end -}}

{{- define "stowage.faultsOfWatching" -}}
{{- $faults := list -}}
{{- with .Values -}}
{{- if and (or .serviceMonitor.enabled .prometheusRule.enabled) (not .telemetry.metrics) -}}
{{- $faults = append $faults "serviceMonitor and prometheusRule need metrics: set telemetry.metrics=true." -}}
{{- end -}}
{{- end -}}
{{ toJson $faults }}
{{- end -}}

{{- define "stowage.faultsOfReach" -}}
{{- $faults := list -}}
{{- if contains "." (include "stowage.fullname" .) -}}
{{- $faults = append $faults (printf "Services can't have a dot in their name: set fullnameOverride, as %q has one." (include "stowage.fullname" .)) -}}
{{- end -}}
{{- with .Values -}}
{{- if and .ingress.enabled (not .ingress.host) -}}
{{- $faults = append $faults "The ingress has no host: set ingress.host." -}}
{{- end -}}
{{- if and .httpRoute.enabled (not .httpRoute.host) -}}
{{- $faults = append $faults "The route has no host: set httpRoute.host." -}}
{{- end -}}
{{- if and .httpRoute.enabled (not .httpRoute.parentRefs) -}}
{{- $faults = append $faults "The route is attached to no Gateway: set httpRoute.parentRefs." -}}
{{- end -}}
{{- if and (eq .tls.mode "cert-manager") (not .tls.certManager.issuerRef.name) -}}
{{- $faults = append $faults "cert-manager needs an issuer: set tls.certManager.issuerRef.name, or tls.mode=chart." -}}
{{- end -}}
{{- if and .extraCA.configMap .extraCA.secret -}}
{{- $faults = append $faults "extraCA takes a ConfigMap or a Secret, not both." -}}
{{- end -}}
{{- end -}}
{{ toJson $faults }}
{{- end -}}

{{- define "stowage.faultsOfPods" -}}
{{- $faults := list -}}
{{- $root := . -}}
{{- $secrets := list "STOWAGE_DATABASE_URL" "STOWAGE_NATS_URL" "STOWAGE_NATS_CREDS" "STOWAGE_NATS_CA" "STOWAGE_SECRET_KEYS" "STOWAGE_ADMIN_PASSWORD" -}}
{{- range $service, $facts := include "stowage.facts" . | fromYaml -}}
{{- $pods := include "stowage.pods" (dict "root" $root "service" $service) | fromJson -}}
{{- with $pods.autoscaling -}}
{{- if and .enabled (gt (int .minReplicas) (int .maxReplicas)) -}}
{{- $faults = append $faults (printf "The autoscaling of %s has minReplicas %d above maxReplicas %d." $service (int .minReplicas) (int .maxReplicas)) -}}
{{- end -}}
{{- if and .enabled (not .targetCPUUtilization) (not .targetMemoryUtilization) -}}
{{- $faults = append $faults (printf "The autoscaling of %s has no target: set targetCPUUtilization or targetMemoryUtilization." $service) -}}
{{- end -}}
{{- end -}}
{{- range $pods.extraEnv -}}
{{- if has .name $secrets -}}
{{- $faults = append $faults (printf "%s is a secret, which never goes into the environment of %s: name a Secret (database, nats, sealKeys, admin)." .name $service) -}}
{{- end -}}
{{- end -}}
{{- $needed := add $root.Values.drain.delaySeconds $root.Values.drain.timeoutSeconds -}}
{{- with $pods.terminationGracePeriodSeconds -}}
{{- if lt (int .) (int $needed) -}}
{{- $faults = append $faults (printf "The terminationGracePeriodSeconds of %s, %d, ends before drain.delaySeconds and drain.timeoutSeconds, %d." $service (int .) (int $needed)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toJson $faults }}
{{- end -}}

{{- define "stowage.faultsOfStorage" -}}
{{- $faults := list -}}
{{- $pods := include "stowage.pods" (dict "root" . "service" "backend-registry") | fromJson -}}
{{- $most := ternary (int $pods.autoscaling.maxReplicas) (int $pods.replicas) $pods.autoscaling.enabled -}}
{{- with .Values -}}
{{- if and (gt $most 1) .persistence.enabled (ne .persistence.accessMode "ReadWriteMany") -}}
{{- $faults = append $faults (printf "%d replicas of backend-registry can't share a %s volume: set persistence.accessMode=ReadWriteMany, or let uploads land on S3 (defaultBackend=none, persistence.enabled=false and a backend with default: true), or have one replica without autoscaling." $most .persistence.accessMode) -}}
{{- end -}}
{{- if and (eq .defaultBackend "local") (not .persistence.enabled) -}}
{{- $faults = append $faults "The default local backend needs a volume, or content would be gone with the pod: set persistence.enabled=true, or defaultBackend=none and a backend with default: true." -}}
{{- end -}}
{{- if and .persistence.existingClaim (not .persistence.enabled) -}}
{{- $faults = append $faults "persistence.existingClaim is set, but persistence.enabled is false." -}}
{{- end -}}
{{- $folders := false -}}
{{- range .backends -}}{{- if eq .type "local_directory" -}}{{- $folders = true -}}{{- end -}}{{- end -}}
{{- if and $folders (not .persistence.enabled) (not $pods.extraVolumeMounts) -}}
{{- $faults = append $faults "A backend of type local_directory needs a volume: set persistence.enabled=true, or mount one by services.backend-registry.extraVolumes and extraVolumeMounts and allow it by settings.STOWAGE_LOCAL_ROOTS." -}}
{{- end -}}
{{- end -}}
{{ toJson $faults }}
{{- end -}}

{{- define "stowage.faultsOfDeclared" -}}
{{- $faults := list -}}
{{- $secrets := list "access_key_id" "secret_access_key" "session_token" "password" -}}
{{- with .Values -}}
{{- if and .declaredConfigMap.name (or .backends .policies) -}}
{{- $faults = append $faults "Backends and policies are declared twice: by declaredConfigMap, and by backends or policies." -}}
{{- end -}}
{{- $names := list -}}
{{- $defaults := list -}}
{{- range $backend := .backends -}}
{{- if has .name $names -}}
{{- $faults = append $faults (printf "The backend %q is declared twice." .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- if .default -}}{{- $defaults = append $defaults .name -}}{{- end -}}
{{- if and .default (eq .type "webdav") -}}
{{- $faults = append $faults (printf "The backend %q can't have default: true: uploads can't grow on a WebDAV server." .name) -}}
{{- end -}}
{{- range $key, $value := .config -}}
{{- if and (has $key $secrets) (not (kindIs "map" $value)) -}}
{{- $faults = append $faults (printf "The %s of the backend %q is a secret, which must not stand in values: write { secret_ref: { name: <Secret>, key: <key> } }." $key $backend.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if gt (len $defaults) 1 -}}
{{- $faults = append $faults (printf "Only one backend can have default: true, not %s." (join " and " $defaults)) -}}
{{- end -}}
{{- if and $defaults (eq .defaultBackend "local") -}}
{{- $faults = append $faults (printf "The backend %q has default: true, but defaultBackend is local: set defaultBackend=none." (first $defaults)) -}}
{{- end -}}
{{- if and (eq .defaultBackend "none") (not $defaults) (not .declaredConfigMap.name) -}}
{{- $faults = append $faults "With defaultBackend=none uploads have nowhere to land: declare one of backends with default: true." -}}
{{- end -}}
{{- $classes := list -}}
{{- range .policies -}}
{{- if has .file_class $classes -}}
{{- $faults = append $faults (printf "The policy of the file class %q is declared twice." .file_class) -}}
{{- end -}}
{{- $classes = append $classes .file_class -}}
{{- end -}}
{{- end -}}
{{ toJson $faults }}
{{- end -}}
