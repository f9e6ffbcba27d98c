{{/*
Takes { root, component (migrate, apply or test), command? (unless it is the component), job (its values), sources (of its secrets), env,
volumes?, mounts? }: the spec of a Job that
runs one command of the image.
*/}}
{{- define "stowage.jobSpec" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
backoffLimit: {{ .job.backoffLimit }}
activeDeadlineSeconds: {{ .job.timeoutSeconds }}
template:
  metadata:
    labels:
      {{- include "stowage.selector" . | nindent 6 }}
      {{- with $values.commonLabels }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with $values.commonAnnotations }}
    annotations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
  spec:
    restartPolicy: Never
    automountServiceAccountToken: false
    enableServiceLinks: false
    {{- with $values.imagePullSecrets }}
    imagePullSecrets:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $values.pods.priorityClassName }}
    priorityClassName: {{ . }}
    {{- end }}
    securityContext:
      {{- toYaml $values.pods.podSecurityContext | nindent 6 }}
    {{- with $values.pods.nodeSelector }}
    nodeSelector:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $values.pods.tolerations }}
    tolerations:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    containers:
      - name: {{ .component }}
        image: {{ include "stowage.image" $root | quote }}
        imagePullPolicy: {{ $values.image.pullPolicy }}
        args: [{{ .command | default .component }}]
        env:
          {{- range $name, $value := .env }}
          - name: {{ $name }}
            value: {{ $value | quote }}
          {{- end }}
          {{- with $values.settings.STOWAGE_LOG_LEVEL }}
          - name: STOWAGE_LOG_LEVEL
            value: {{ . | quote }}
          {{- end }}
          {{- if include "stowage.hasExtraCA" $root }}
          - name: NODE_EXTRA_CA_CERTS
            value: /etc/stowage/extra-ca/ca.crt
          {{- end }}
          {{- with $values.pods.extraEnv }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
        resources:
          {{- toYaml .job.resources | nindent 10 }}
        securityContext:
          {{- toYaml $values.pods.securityContext | nindent 10 }}
        volumeMounts:
          - { name: tmp, mountPath: /tmp }
          - { name: secrets, mountPath: /etc/stowage/secrets, readOnly: true }
          {{- if include "stowage.hasExtraCA" $root }}
          - { name: extra-ca, mountPath: /etc/stowage/extra-ca, readOnly: true }
          {{- end }}
          {{- with .mounts }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
          {{- with $values.pods.extraVolumeMounts }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
    volumes:
      - name: tmp
        emptyDir: { sizeLimit: {{ $values.pods.tmpSizeLimit }} }
      - name: secrets
        projected:
          defaultMode: 0440
          sources:
            {{- .sources | nindent 12 }}
      {{- if include "stowage.hasExtraCA" $root }}
      {{- include "stowage.extraCAVolume" $root | nindent 6 }}
      {{- end }}
      {{- with .volumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
      {{- with $values.pods.extraVolumes }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
{{- end -}}

{{/* Takes { events, weight }: annotations of a hook whose objects go when all of its event went well. */}}
{{- define "stowage.hook" -}}
helm.sh/hook: {{ .events }}
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}
