// Package ops is what operators and their tools read: health, version, and metrics under etcd's names.
// So probes, dashboards and alerts for etcd work as they are.
package ops
