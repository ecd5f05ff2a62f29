// Package compat has no code: its tests send the same requests to etcd and to this service, and compare
// the answers byte for byte. Differences have a name and a reason (differences_test.go).
//
// MILLRACE_TEST_ETCD names the binary of etcd 3.7, MILLRACE_TEST_ETCDCTL that of etcdctl. Without them
// the tests are skipped, except TestBadInput: testdata/inputs.txt has what etcd answers to bad requests.
package compat
