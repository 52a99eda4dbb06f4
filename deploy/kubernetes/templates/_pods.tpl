{{- /*
SPDX-License-Identifier: Apache-2.0
*/ -}}
{{- /*
Fills in what the values say of a workload of base/, in place: namespace, image, where its pods may run, what they may
take. As its ConfigMap keeps its name, an annotation makes a changed file a change of the pods.
*/ -}}
{{- define "gradlane.pods" -}}
{{- $root := .root -}}
{{- $values := get $root.Values .part -}}
{{- $_ := set .it.metadata "namespace" $root.Release.Namespace -}}
{{- $template := .it.spec.template -}}
{{- $_ := set $template.metadata.annotations "checksum/config" (toJson .files | sha256sum) -}}
{{- $pod := $template.spec -}}
{{- $container := first $pod.containers -}}
{{- $image := printf "gradlane-%s:%s" .part (default $root.Chart.AppVersion $root.Values.image.tag) -}}
{{- with $root.Values.image.registry }}{{ $image = printf "%s/%s" . $image }}{{ end -}}
{{- $_ := set $container "image" $image -}}
{{- with $root.Values.image.pullPolicy }}{{ $_ := set $container "imagePullPolicy" . }}{{ end -}}
{{- with $root.Values.image.pullSecrets -}}
{{- $secrets := list -}}
{{- range . }}{{ $secrets = append $secrets (dict "name" .) }}{{ end -}}
{{- $_ := set $pod "imagePullSecrets" $secrets -}}
{{- end -}}
{{- with $values.nodeSelector }}{{ $_ := set $pod "nodeSelector" (merge (default dict $pod.nodeSelector) .) }}{{ end -}}
{{- with $values.tolerations }}{{ $_ := set $pod "tolerations" (concat (default list $pod.tolerations) .) }}{{ end -}}
{{- with $values.resources }}{{ $_ := set $container "resources" . }}{{ end -}}
{{- end -}}

{{- /* Adds the variables, mounts and volumes of a component's patch, in place. */ -}}
{{- define "gradlane.patch" -}}
{{- $pod := .it.spec.template.spec -}}
{{- $more := (.root.Files.Get .file | fromYaml).spec.template.spec -}}
{{- $container := first $pod.containers -}}
{{- range $key, $added := pick (first $more.containers) "env" "volumeMounts" -}}
{{- $_ := set $container $key (concat (default list (get $container $key)) $added) -}}
{{- end -}}
{{- with $more.volumes }}{{ $_ := set $pod "volumes" (concat $pod.volumes .) }}{{ end -}}
{{- end -}}

{{- /* A ConfigMap of these files. */ -}}
{{- define "gradlane.files" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
data:
  {{- toYaml .files | nindent 2 }}
{{- end -}}
