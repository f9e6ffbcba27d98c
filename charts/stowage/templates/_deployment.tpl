{{/* Takes { root, service }: the Deployment of one service. */}}
{{- define "stowage.deployment" -}}
{{- $root := .root -}}
{{- $values := $root.Values -}}
{{- $service := .service -}}
{{- $fullname := include "stowage.fullname" $root -}}
{{- $facts := index (include "stowage.facts" $root | fromYaml) $service -}}
{{- $pods := include "stowage.pods" . | fromJson -}}
{{- $scope := dict "root" $root "service" $service "component" $service "name" (printf "%s-%s" $fullname $service) -}}
{{- $tls := ne $values.tls.mode "off" -}}
{{- $registry := eq $service "backend-registry" -}}
{{- $token := and $registry (gt (len (include "stowage.secretRefs" $root | fromJsonArray)) 0) -}}
{{- if $token -}}
{{- $_ := set $scope "annotations" (dict "checkov.io/skip1" "CKV_K8S_38=It reads the Secrets that backends refer to, and may read no others.") -}}
{{- end -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  {{- include "stowage.metadata" $scope | nindent 2 }}
spec:
  {{- if not $pods.autoscaling.enabled }}
  replicas: {{ $pods.replicas }}
  {{- else }}
  {{- /* Left out, an upgrade that turns autoscaling on would take all pods but one away until it has measured. */}}
  {{- with (lookup "apps/v1" "Deployment" $root.Release.Namespace $scope.name).spec }}
  replicas: {{ .replicas }}
  {{- end }}
  {{- end }}
  revisionHistoryLimit: 5
  strategy:
    {{- if and $registry $values.persistence.enabled (ne $values.persistence.accessMode "ReadWriteMany") }}
    # A second pod could not mount the volume.
    type: Recreate
    {{- else }}
    type: RollingUpdate
    rollingUpdate: { maxUnavailable: 0, maxSurge: 1 }
    {{- end }}
  selector:
    matchLabels:
      {{- include "stowage.selector" $scope | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "stowage.selector" $scope | nindent 8 }}
        app.kubernetes.io/part-of: stowage
        {{- with merge (dict) $pods.labels $values.commonLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      annotations:
        kubectl.kubernetes.io/default-container: {{ $service }}
        {{- if or $values.database.url $values.nats.url }}
        # What is read at the start only: new addresses mean new pods. Generated passwords and certificates are not in it.
        checksum/addresses: {{ printf "%s %s" $values.database.url $values.nats.url | sha256sum | trunc 32 }}
        {{- end }}
        {{- with merge (dict) $pods.annotations $values.commonAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
    spec:
      serviceAccountName: {{ $fullname }}{{ if $token }}-backend-registry{{ end }}
      automountServiceAccountToken: {{ $token }}
      enableServiceLinks: false
      {{- with $values.imagePullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pods.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      {{- with $pods.runtimeClassName }}
      runtimeClassName: {{ . }}
      {{- end }}
      terminationGracePeriodSeconds: {{ $pods.terminationGracePeriodSeconds | default (add $values.drain.delaySeconds $values.drain.timeoutSeconds 10) }}
      securityContext:
        {{- toYaml $pods.podSecurityContext | nindent 8 }}
      {{- with $pods.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pods.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pods.affinity }}
      affinity:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $pods.topologySpread }}
      {{- if .enabled }}
      {{- $spread := . }}
      topologySpreadConstraints:
        {{- range .topologyKeys }}
        - topologyKey: {{ . }}
          maxSkew: {{ $spread.maxSkew }}
          whenUnsatisfiable: {{ $spread.whenUnsatisfiable }}
          labelSelector:
            matchLabels:
              {{- include "stowage.selector" $scope | nindent 14 }}
          # Each version is spread by itself, or the old pods would decide where the new ones go.
          matchLabelKeys: [pod-template-hash]
        {{- end }}
      {{- end }}
      {{- end }}
      containers:
        - name: {{ $service }}
          image: {{ include "stowage.image" $root | quote }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args: [{{ $service }}]
          env:
            {{- include "stowage.env" $scope | trim | nindent 12 }}
            {{- with $pods.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            {{- if eq $service "gateway" }}
            - { name: http, containerPort: 8080 }
            {{- else }}
            - { name: grpc, containerPort: 9000 }
            {{- end }}
            {{- if $facts.bytes }}
            - { name: bytes, containerPort: 9001 }
            {{- end }}
            - { name: management, containerPort: 9090 }
          startupProbe:
            httpGet: { path: /api/system/health, port: management }
            {{- toYaml $pods.startupProbe | nindent 12 }}
          livenessProbe:
            httpGet: { path: /api/system/health, port: management }
            {{- toYaml $pods.livenessProbe | nindent 12 }}
          readinessProbe:
            httpGet: { path: /api/system/ready, port: management }
            {{- toYaml $pods.readinessProbe | nindent 12 }}
          resources:
            {{- toYaml $pods.resources | nindent 12 }}
          securityContext:
            {{- toYaml $pods.securityContext | nindent 12 }}
          volumeMounts:
            - { name: tmp, mountPath: /tmp }
            - { name: secrets, mountPath: /etc/stowage/secrets, readOnly: true }
            {{- if $tls }}
            - { name: tls, mountPath: /etc/stowage/tls, readOnly: true }
            {{- end }}
            {{- if include "stowage.hasExtraCA" $root }}
            - { name: extra-ca, mountPath: /etc/stowage/extra-ca, readOnly: true }
            {{- end }}
            {{- if $registry }}
            - { name: data, mountPath: /data }
            {{- end }}
            {{- with $pods.extraVolumeMounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - name: tmp
          emptyDir: { sizeLimit: {{ $pods.tmpSizeLimit }} }
        - name: secrets
          projected:
            defaultMode: 0440
            sources:
              {{- include "stowage.secretSources" $scope | nindent 14 }}
        {{- if $tls }}
        - name: tls
          secret:
            secretName: {{ include "stowage.tlsSecret" $scope }}
            defaultMode: 0440
        {{- end }}
        {{- if include "stowage.hasExtraCA" $root }}
        {{- include "stowage.extraCAVolume" $root | nindent 8 }}
        {{- end }}
        {{- if $registry }}
        - name: data
          {{- if $values.persistence.enabled }}
          persistentVolumeClaim:
            claimName: {{ $values.persistence.existingClaim | default (printf "%s-data" $fullname) }}
          {{- else }}
          emptyDir: { sizeLimit: 1Gi }
          {{- end }}
        {{- end }}
        {{- with $pods.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- end -}}
