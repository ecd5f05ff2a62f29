// Package programs pins etcd's programs: go build in this directory makes them from the module proxy.
package programs
