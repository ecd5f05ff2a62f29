// Package api serves etcd's RPCs: it checks requests in etcd's order, proposes commands, reads the
// state, and fills in headers. What is checked before a command is proposed costs no other member anything;
// what depends on the state is checked by the state machine (package kv).
//
// The errors are etcd's: codes and texts come from rpctypes. An outcome that is not known is
// "etcdserver: request timed out" with the code Unavailable, as etcd says it. Nothing is repeated here
// after such an outcome.
//
// backend.go is where to begin: how a command is proposed and how a read is made linearizable.
package api
