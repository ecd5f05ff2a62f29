// Package etcdctl34 pins etcdctl 3.4, which Debian 12 and 13 have. Its module has no tag of that name: the commit
// is that of v3.4.13.
package etcdctl34
