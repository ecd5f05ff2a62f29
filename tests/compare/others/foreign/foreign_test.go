package main

import (
	"testing"
	"time"

	"github.com/millrace/millrace/cmd/lab/component"
	"github.com/millrace/millrace/cmd/lab/component/componenttest"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/tests/compare/others/foreign/etcdlog"
)

// each is every component, with one of its neighbours.
var each = map[string]func(*componenttest.Setup){
	"grpc":             func(s *componenttest.Setup) { s.Transport = "grpc" },
	"grpc, far":        func(s *componenttest.Setup) { s.Transport, s.Log, s.NetworkDelay = "grpc", "etcd", 2*time.Millisecond },
	"etcd":             func(s *componenttest.Setup) { s.Log = "etcd" },
	"etcd, P1":         func(s *componenttest.Setup) { s.Log, s.Pipeline = "etcd", pipeline.Basic{} },
	"etcd, groups":     func(s *componenttest.Setup) { s.Log, s.Groups, s.FsyncDelay = "etcd", 4, time.Millisecond },
	"pebble":           func(s *componenttest.Setup) { s.Log = "pebble" },
	"pebble, P2":       func(s *componenttest.Setup) { s.Log, s.Pipeline = "pebble", pipeline.Parallel{} },
	"pebble on pebble": func(s *componenttest.Setup) { s.Log, s.Engine, s.Groups = "pebble", "pebble", 4 },
}

// Every component carries writes, also of a cluster that was closed.
func TestAClusterComesBack(t *testing.T) {
	for name, change := range each {
		t.Run(name, func(t *testing.T) { componenttest.ComesBack(t, components(), change) })
	}
}

func TestJob(t *testing.T) { componenttest.Measures(t, components(), "etcd", "pebble", "grpc") }

func TestTheBoundOfALogEndsTheRun(t *testing.T) {
	small := func(c host.LogConfig, d component.Disk) (host.Log, error) { return etcdlog.OpenBounded(c, d, 1<<20) }
	componenttest.EndsAtBound(t, small, "append beyond 1048576 bytes of entries in memory")
}

func TestUnknownComponents(t *testing.T) { componenttest.RefusesUnknown(t, components()) }
