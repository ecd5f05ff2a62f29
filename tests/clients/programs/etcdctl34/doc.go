// Package etcdctl34 pins etcdctl 3.4, which Debian has. Its module has no tag of that name. The commit is
// that of v3.4.13.
package etcdctl34
