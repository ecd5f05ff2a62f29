module github.com/millrace/millrace/tests/conformance/etcdraft37

go 1.26.0

require (
	go.etcd.io/raft/v3 v3.7.0
	google.golang.org/protobuf v1.36.11
)
