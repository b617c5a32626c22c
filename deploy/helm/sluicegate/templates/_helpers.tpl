{{/* The name of everything that belongs to this release. */}}
{{- define "sluicegate.name" -}}
{{- if contains "sluicegate" .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-sluicegate" (.Release.Name | trunc 41 | trimSuffix "-") -}}
{{- end -}}
{{- end -}}

{{- define "sluicegate.serviceName" -}}
{{- .Values.service.name | default (include "sluicegate.name" .) -}}
{{- end -}}

{{/* What pods are found by. It never changes. */}}
{{- define "sluicegate.selector" -}}
app.kubernetes.io/name: sluicegate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "sluicegate.labels" -}}
{{ include "sluicegate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{/* The secret with the admin token: the one that was named, or ours. */}}
{{- define "sluicegate.tokenSecret" -}}
{{- .Values.admin.existingSecret.name | default (printf "%s-admin" (include "sluicegate.name" .)) -}}
{{- end -}}

{{- define "sluicegate.tokenKey" -}}
{{- if .Values.admin.existingSecret.name -}}{{ .Values.admin.existingSecret.key }}{{- else -}}token{{- end -}}
{{- end -}}

{{/* The store's URL, unless a secret has it. What would be ignored, or be read by everybody who may see pods, is refused. */}}
{{- define "sluicegate.storeUrl" -}}
{{- if hasKey .Values.config "store" -}}
{{- fail "config.store would be ignored, because the pods are told their store by store.url; set store.url, or store.existingSecret if it has a password" -}}
{{- end -}}
{{- if contains "@" .Values.store.url -}}
{{- fail "store.url has a user or a password, which everybody could read who may see pods; put the URL into a secret and name that by store.existingSecret" -}}
{{- end -}}
{{- .Values.store.url -}}
{{- end -}}

{{/* Whether there can be more than one pod. */}}
{{- define "sluicegate.isFleet" -}}
{{- if or .Values.autoscaling.enabled (gt (int .Values.replicas) 1) -}}yes{{- end -}}
{{- end -}}
