// Package deps keeps the modules of the service in go.mod until its packages import them.
package deps

import (
	_ "github.com/anishathalye/porcupine"
	_ "github.com/cockroachdb/pebble/v2"
	_ "github.com/cockroachdb/pebble/v2/cockroachkvs"
	_ "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	_ "github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/spf13/cobra"
	_ "github.com/tmc/grpc-websocket-proxy/wsproxy"
	_ "go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	_ "go.etcd.io/etcd/client/pkg/v3/types"
	_ "go.etcd.io/etcd/client/v3"
	_ "go.etcd.io/etcd/client/v3/concurrency"
	_ "go.etcd.io/etcd/pkg/v3/adt"
	_ "go.etcd.io/etcd/server/v3/etcdserver/api/v3election"
	_ "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb/gw"
	_ "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock"
	_ "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb/gw"
	_ "go.yaml.in/yaml/v3"
	_ "google.golang.org/grpc"
)
