{{/* Names and labels. */}}

{{- define "stowage.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/*
Short enough that what is put behind it still fits into 63 characters: 40, of which the last are a hash where a longer name was cut, so that
no two releases share their objects.
*/}}
{{- define "stowage.fullname" -}}
{{- $name := include "stowage.name" . -}}
{{- $full := .Values.fullnameOverride | default (ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name)) -}}
{{- if gt (len $full) 40 -}}
{{- printf "%s-%s" ($full | trunc 31 | trimSuffix "-") ($full | sha256sum | trunc 8) -}}
{{- else -}}
{{- $full -}}
{{- end -}}
{{- end -}}

{{/* What all pods of the six services and of the chart's Jobs have in common; never changes between versions. */}}
{{- define "stowage.commonSelector" -}}
app.kubernetes.io/name: {{ include "stowage.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* Takes { root, component }. */}}
{{- define "stowage.selector" -}}
{{ include "stowage.commonSelector" .root }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Takes { root, component, labels? }: labels of an object. */}}
{{- define "stowage.labels" -}}
{{ include "stowage.selector" . }}
app.kubernetes.io/part-of: stowage
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with merge (dict) (.labels | default dict) .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Takes { root, name, component, labels?, annotations? }: the metadata of an object. */}}
{{- define "stowage.metadata" -}}
name: {{ .name }}
namespace: {{ .root.Release.Namespace | quote }}
labels:
  {{- include "stowage.labels" . | nindent 2 }}
{{- with merge (dict) (.annotations | default dict) .root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "stowage.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{/* The origin that clients use; empty where nothing tells. */}}
{{- define "stowage.publicUrl" -}}
{{- if .Values.publicUrl -}}
{{ .Values.publicUrl | trimSuffix "/" }}
{{- else if .Values.ingress.enabled -}}
{{ ternary "https" "http" .Values.ingress.tls.enabled }}://{{ .Values.ingress.host }}
{{- else if .Values.httpRoute.enabled -}}
{{ .Values.httpRoute.scheme }}://{{ .Values.httpRoute.host }}
{{- end -}}
{{- end -}}

{{/* Where the gateway is reached from within the cluster. */}}
{{- define "stowage.gatewayUrl" -}}
http://{{ include "stowage.fullname" . }}-gateway.{{ .Release.Namespace }}.svc:{{ .Values.gatewayService.port }}
{{- end -}}

{{/* The domain of the services' certificates. */}}
{{- define "stowage.tlsDomain" -}}
{{ .Release.Name }}.{{ .Release.Namespace }}.stowage.internal
{{- end -}}

{{/* Names of the Secrets that backends may refer to, as JSON: those listed, and those that declared backends refer to. */}}
{{- define "stowage.secretRefs" -}}
{{- $names := .Values.secretRefs -}}
{{- range .Values.backends -}}
{{- range $value := .config -}}
{{- if kindIs "map" $value -}}
{{- with $value.secret_ref -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ $names | uniq | sortAlpha | toJson }}
{{- end -}}

{{/* "true" where the Job that applies declared backends and policies is needed. */}}
{{- define "stowage.declares" -}}
{{- if or .Values.backends .Values.policies .Values.declaredConfigMap.name -}}true{{- end -}}
{{- end -}}

{{/*
Takes { root, service }: the Secret with a service's certificate. Its name tells who made it, as neither Helm nor cert-manager takes over
what the other one left.
*/}}
{{- define "stowage.tlsSecret" -}}
{{ include "stowage.fullname" .root }}-{{ .service }}-{{ ternary "tls" "cert" (eq .root.Values.tls.mode "chart") }}
{{- end -}}
