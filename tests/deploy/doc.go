// Package deploy checks the manifests of deploy/ without a cluster: each document is decoded strictly into
// the types of the Kubernetes API, and what a pod would run is run here, as a process, with small numbers.
package deploy
