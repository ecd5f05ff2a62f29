// Package server is the service: etcd's API, version 3, on a Millrace group. Programs that speak to etcd
// write, read, watch and lease here.
package server
