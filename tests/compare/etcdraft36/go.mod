module github.com/millrace/millrace/tests/compare/etcdraft36

go 1.26.0

require (
	github.com/millrace/millrace/tests/compare v0.0.0
	go.etcd.io/raft/v3 v3.6.0
)

require (
	github.com/gogo/protobuf v1.3.2 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
)

replace github.com/millrace/millrace/tests/compare => ../

replace github.com/millrace/millrace => ../../../
