module github.com/millrace/millrace/tests/conformance

go 1.26.0

require (
	github.com/cockroachdb/datadriven v1.0.3
	github.com/millrace/millrace v0.0.0
	go.etcd.io/raft/v3 v3.6.0
)

require (
	github.com/davecgh/go-spew v1.1.1 // indirect
	github.com/gogo/protobuf v1.3.2 // indirect
	github.com/golang/protobuf v1.5.4 // indirect
	github.com/pmezard/go-difflib v1.0.0 // indirect
	github.com/stretchr/testify v1.11.1 // indirect
	google.golang.org/protobuf v1.33.0 // indirect
	gopkg.in/yaml.v3 v3.0.1 // indirect
)

// Nobody installs this module; it judges the tree that it lies in.
replace github.com/millrace/millrace => ../../
