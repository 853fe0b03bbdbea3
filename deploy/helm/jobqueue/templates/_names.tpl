{{- /* The name of the service. Resources of one release, and the pods that its labels select, are not those of another. */}}
{{- define "jobqueue.name" -}}
{{- (contains .Chart.Name .Release.Name | ternary .Release.Name (print .Release.Name "-" .Chart.Name)) | trunc 48 | trimSuffix "-" -}}
{{- end }}

{{- define "jobqueue.image" -}}
{{- .Values.image.repository }}:{{ .Values.image.tag | default (print .Chart.AppVersion (ternary "-embedded" "" .Values.single.enabled)) -}}
{{- end }}
