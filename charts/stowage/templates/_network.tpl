{{/* What network policies are made of. */}}

{{/* Takes { root, to }: the peers given, or without any all addresses but those of `except`. */}}
{{- define "stowage.peers" -}}
{{- if .to -}}
{{ toYaml .to }}
{{- else -}}
{{- with .root.Values.networkPolicy -}}
- ipBlock: { cidr: 0.0.0.0/0, except: {{ toJson .except }} }
- ipBlock: { cidr: '::/0', except: {{ toJson .exceptV6 }} }
# Some network plugins do not count pods to any block of addresses.
- namespaceSelector: {}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Takes a list of ports. */}}
{{- define "stowage.tcp" -}}
{{- range . }}
- { protocol: TCP, port: {{ . | int }} }
{{- end }}
{{- end -}}

{{/* Takes { root, to, ports }: a rule of egress. */}}
{{- define "stowage.egressTo" -}}
- to:
    {{- include "stowage.peers" . | nindent 4 }}
  ports:
    {{- include "stowage.tcp" .ports | trim | nindent 4 }}
{{- end -}}

{{/* Takes { root, component }: the pods of one component, as a list of peers. */}}
{{- define "stowage.podPeer" -}}
- podSelector:
    matchLabels:
      {{- include "stowage.selector" . | nindent 6 }}
{{- end -}}

{{- define "stowage.egressDns" -}}
- ports:
    {{- range .Values.networkPolicy.dns.ports }}
    - { protocol: UDP, port: {{ . }} }
    - { protocol: TCP, port: {{ . }} }
    {{- end }}
  {{- with .Values.networkPolicy.dns.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "stowage.egressDatabase" -}}
{{- if .Values.bundled.postgresql.enabled -}}
- to:
    {{- include "stowage.podPeer" (dict "root" . "component" "postgresql") | nindent 4 }}
  ports:
    - { protocol: TCP, port: 5432 }
{{- else -}}
{{- $ports := .Values.networkPolicy.database.ports | default (include "stowage.urlPorts" (dict "url" .Values.database.url "fallback" 5432) | fromJsonArray) -}}
{{ include "stowage.egressTo" (dict "root" . "to" .Values.networkPolicy.database.to "ports" $ports) }}
{{- end -}}
{{- end -}}

{{- define "stowage.egressNats" -}}
{{- if .Values.bundled.nats.enabled -}}
- to:
    {{- include "stowage.podPeer" (dict "root" . "component" "nats") | nindent 4 }}
  ports:
    - { protocol: TCP, port: 4222 }
{{- else -}}
{{- $ports := .Values.networkPolicy.nats.ports | default (include "stowage.urlPorts" (dict "url" .Values.nats.url "fallback" 4222) | fromJsonArray) -}}
{{ include "stowage.egressTo" (dict "root" . "to" .Values.networkPolicy.nats.to "ports" $ports) }}
{{- end -}}
{{- end -}}

{{- define "stowage.egressOtlp" -}}
{{- $ports := .Values.networkPolicy.otlp.ports | default (include "stowage.urlPorts" (dict "url" .Values.telemetry.otlpEndpoint "fallback" 4318) | fromJsonArray) -}}
{{ include "stowage.egressTo" (dict "root" . "to" .Values.networkPolicy.otlp.to "ports" $ports) }}
{{- end -}}

{{/* To S3 and WebDAV: the ports of the values, and those that declared backends name. */}}
{{- define "stowage.egressStorage" -}}
{{- $ports := .Values.networkPolicy.storage.ports -}}
{{- range .Values.backends -}}
{{- with .config.endpoint | default .config.url -}}
{{- $ports = concat $ports (include "stowage.urlPorts" (dict "url" . "fallback" 443) | fromJsonArray) -}}
{{- end -}}
{{- end -}}
{{- $whole := list -}}
{{- range $ports }}{{ $whole = append $whole (int .) }}{{ end -}}
{{ include "stowage.egressTo" (dict "root" . "to" .Values.networkPolicy.storage.to "ports" ($whole | uniq)) }}
{{- end -}}

{{/* Takes { url, fallback }: the ports that addresses name (PostgreSQL takes several hosts, NATS several URLs), as JSON. */}}
{{- define "stowage.urlPorts" -}}
{{- $hosts := regexFind "^[^/?]*" (regexReplaceAll "(^|,)[a-z]+://([^@/]*@)?" .url "${1}") -}}
{{- $ports := list -}}
{{- range regexFindAll ":[0-9]+(,|$)" $hosts -1 -}}
{{- $ports = append $ports (trimAll ":," . | int) -}}
{{- end -}}
{{- if $ports -}}
{{ $ports | uniq | toJson }}
{{- else if hasPrefix "http://" .url -}}
[80]
{{- else if hasPrefix "https://" .url -}}
[443]
{{- else -}}
[{{ .fallback }}]
{{- end -}}
{{- end -}}

{{/* "true" where the metrics may be read by somebody. */}}
{{- define "stowage.metricsRule" -}}
{{- with .Values.networkPolicy -}}
{{- if or .metricsFrom $.Values.serviceMonitor.enabled -}}
- from:
    {{- if .metricsFrom }}
    {{- toYaml .metricsFrom | nindent 4 }}
    {{- else }}
    - namespaceSelector: {}
    {{- end }}
  ports:
    - { protocol: TCP, port: 9090 }
{{- end -}}
{{- end -}}
{{- end -}}
