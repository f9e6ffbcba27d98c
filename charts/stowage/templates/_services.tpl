{{/*
What the six services are: the services that each one calls, and whether it has a byte port beside gRPC. Deployments, Services,
certificates and network policies are made from this.
*/}}
{{- define "stowage.facts" -}}
gateway:
  calls: [catalog, upload, backend-registry, placement, export]
  bytes: false
catalog:
  calls: []
  bytes: false
upload:
  calls: [catalog, backend-registry, placement]
  bytes: true
backend-registry:
  calls: [catalog]
  bytes: true
placement:
  calls: [catalog, backend-registry]
  bytes: false
export:
  calls: [backend-registry]
  bytes: true
{{- end -}}

{{/* Takes { root, service }: the values of one service's pods, as JSON. */}}
{{- define "stowage.pods" -}}
{{- $own := index .root.Values.services .service | default dict -}}
{{- mergeOverwrite (deepCopy .root.Values.pods) (deepCopy $own) | toJson -}}
{{- end -}}

{{/* Takes { root, service }: where the service's pods read their secrets, as sources of a projected volume. */}}
{{- define "stowage.secretSources" -}}
{{- $values := .root.Values -}}
{{- $fullname := include "stowage.fullname" .root -}}
{{- include "stowage.databaseSource" .root }}
{{- if eq .service "gateway" }}
{{ include "stowage.adminSource" .root }}
{{- end }}
{{- if eq .service "backend-registry" }}
- secret:
    name: {{ $values.sealKeys.existingSecret.name | default (printf "%s-seal-keys" $fullname) }}
    items: [{ key: {{ ternary $values.sealKeys.existingSecret.key "keys" (ne $values.sealKeys.existingSecret.name "") }}, path: seal-keys }]
{{- end }}
{{- if and (eq .service "placement") (include "stowage.hasNats" .root) }}
- secret:
    name: {{ $values.nats.existingSecret.name | default (printf "%s-nats" $fullname) }}
    items: [{ key: {{ ternary $values.nats.existingSecret.key "url" (ne $values.nats.existingSecret.name "") }}, path: nats-url }]
{{- with $values.nats.credentials }}
{{- if .secretName }}
- secret:
    name: {{ .secretName }}
    items: [{ key: {{ .key }}, path: nats-creds }]
{{- end }}
{{- end }}
{{- with $values.nats.ca }}
{{- if .secretName }}
- secret:
    name: {{ .secretName }}
    items: [{ key: {{ .key }}, path: nats-ca }]
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "stowage.databaseSource" -}}
{{- $existing := .Values.database.existingSecret -}}
- secret:
    name: {{ $existing.name | default (printf "%s-database" (include "stowage.fullname" .)) }}
    items: [{ key: {{ ternary $existing.key "url" (ne $existing.name "") }}, path: database-url }]
{{- end -}}

{{- define "stowage.adminSource" -}}
{{- $existing := .Values.admin.existingSecret -}}
- secret:
    name: {{ $existing.name | default (printf "%s-admin" (include "stowage.fullname" .)) }}
    items: [{ key: {{ ternary $existing.key "password" (ne $existing.name "") }}, path: admin-password }]
{{- end -}}

{{- define "stowage.hasNats" -}}
{{- if or .Values.nats.url .Values.nats.existingSecret.name .Values.bundled.nats.enabled -}}true{{- end -}}
{{- end -}}

{{/* Takes { root, service }: the environment of a service, all of it without secrets. */}}
{{- define "stowage.env" -}}
{{- $values := .root.Values -}}
{{- $tls := ne $values.tls.mode "off" -}}
{{- $scheme := ternary "https" "http" $tls -}}
{{- $facts := include "stowage.facts" .root | fromYaml -}}
{{- $suffix := printf "%s.svc" .root.Release.Namespace -}}
{{- $fullname := include "stowage.fullname" .root -}}
{{- $env := dict
    "STOWAGE_LISTEN_HOST" "0.0.0.0"
    "STOWAGE_MANAGEMENT_PORT" "9090"
    "STOWAGE_RPC_PORT" "9000"
    "STOWAGE_BYTES_PORT" "9001"
    "STOWAGE_DATABASE_URL_FILE" "/etc/stowage/secrets/database-url"
    "STOWAGE_DATABASE_CONNECTIONS" (toString $values.database.connections)
    "STOWAGE_DRAIN_DELAY" (printf "%ds" (int $values.drain.delaySeconds))
    "STOWAGE_DRAIN_TIMEOUT" (printf "%ds" (int $values.drain.timeoutSeconds))
-}}
{{- range $callee := (index $facts .service).calls -}}
{{- $variable := $callee | upper | replace "-" "_" -}}
{{- $host := printf "%s-%s.%s" $fullname $callee $suffix -}}
{{- $_ := set $env (printf "STOWAGE_%s_RPC" $variable) (printf "dns:///%s:9000" $host) -}}
{{- if (index $facts $callee).bytes -}}
{{- $_ := set $env (printf "STOWAGE_%s_BYTES" $variable) (printf "%s://%s:9001" $scheme $host) -}}
{{- end -}}
{{- end -}}
{{- if eq .service "gateway" -}}
{{- $_ := set $env "STOWAGE_HOST" "0.0.0.0" -}}
{{- $_ := set $env "STOWAGE_PORT" "8080" -}}
{{- $_ := set $env "STOWAGE_ADMIN_USERNAME" $values.admin.username -}}
{{- $_ := set $env "STOWAGE_ADMIN_PASSWORD_FILE" "/etc/stowage/secrets/admin-password" -}}
{{- with include "stowage.publicUrl" .root -}}{{- $_ := set $env "STOWAGE_PUBLIC_URL" . -}}{{- end -}}
{{- with $values.trustedProxies -}}{{- $_ := set $env "STOWAGE_TRUSTED_PROXIES" (join "," .) -}}{{- end -}}
{{- else if eq .service "backend-registry" -}}
{{- $_ := set $env "STOWAGE_DATA_DIR" "/data" -}}
{{- $_ := set $env "STOWAGE_SECRET_KEYS_FILE" "/etc/stowage/secrets/seal-keys" -}}
{{- $_ := set $env "STOWAGE_DEFAULT_BACKEND" $values.defaultBackend -}}
{{- with include "stowage.secretRefs" .root | fromJsonArray -}}{{- $_ := set $env "STOWAGE_SECRET_REFS" (join "," .) -}}{{- end -}}
{{- else if and (eq .service "placement") (include "stowage.hasNats" .root) -}}
{{- $_ := set $env "STOWAGE_NATS_URL_FILE" "/etc/stowage/secrets/nats-url" -}}
{{- if $values.nats.credentials.secretName -}}{{- $_ := set $env "STOWAGE_NATS_CREDS_FILE" "/etc/stowage/secrets/nats-creds" -}}{{- end -}}
{{- if $values.nats.ca.secretName -}}{{- $_ := set $env "STOWAGE_NATS_CA_FILE" "/etc/stowage/secrets/nats-ca" -}}{{- end -}}
{{- end -}}
{{- if $tls -}}
{{- $_ := set $env "STOWAGE_TLS_CERT" "/etc/stowage/tls/tls.crt" -}}
{{- $_ := set $env "STOWAGE_TLS_KEY" "/etc/stowage/tls/tls.key" -}}
{{- $_ := set $env "STOWAGE_TLS_CA" "/etc/stowage/tls/ca.crt" -}}
{{- $_ := set $env "STOWAGE_TLS_DOMAIN" (include "stowage.tlsDomain" .root) -}}
{{- end -}}
{{- if include "stowage.hasExtraCA" .root -}}{{- $_ := set $env "NODE_EXTRA_CA_CERTS" "/etc/stowage/extra-ca/ca.crt" -}}{{- end -}}
{{- if $values.telemetry.metrics -}}{{- $_ := set $env "STOWAGE_METRICS" "true" -}}{{- end -}}
{{- with $values.telemetry.otlpEndpoint -}}{{- $_ := set $env "OTEL_EXPORTER_OTLP_ENDPOINT" . -}}{{- end -}}
{{- range $name, $value := merge (dict) $values.telemetry.otel $values.settings -}}
{{- $_ := set $env $name (include "stowage.plain" $value) -}}
{{- end -}}
{{- range $name, $value := $env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{/* A value of YAML as the text of a variable: no number as 1e+06. */}}
{{- define "stowage.plain" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{ int64 . }}{{- else -}}{{ . }}{{- end -}}
{{- end -}}

{{- define "stowage.hasExtraCA" -}}
{{- if or .Values.extraCA.configMap .Values.extraCA.secret -}}true{{- end -}}
{{- end -}}

{{- define "stowage.extraCAVolume" -}}
- name: extra-ca
  {{- if .Values.extraCA.configMap }}
  configMap:
    name: {{ .Values.extraCA.configMap }}
  {{- else }}
  secret:
    secretName: {{ .Values.extraCA.secret }}
    defaultMode: 0440
  {{- end }}
    items: [{ key: {{ .Values.extraCA.key }}, path: ca.crt }]
{{- end -}}
