// Package app checks deploy/app without a cluster. Manifests are decoded strictly into the types of those who
// read them, and what they would run is run here. Alerts are shown to fire, by making their causes.
package app
