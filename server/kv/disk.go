package kv

import (
	"context"
	"errors"
	"io"

	"github.com/millrace/millrace"
	"github.com/millrace/millrace/server/command"
	"github.com/millrace/millrace/server/engine"
)

// disk is the directory of an engine on the disk.
type disk struct{}

func openDisk(Options) (*disk, engine.Engine, error) {
	return nil, nil, errors.New("kv: the engine on the disk comes with the next commit: use memory")
}

func (m *Machine) closeEngine(e engine.Engine) error { return e.Close() }

// durable is a machine whose engine is on the disk: millrace.DurableStateMachine.
type durable struct{ m *Machine }

func (d durable) Apply(batch []millrace.Command[[]byte], results []command.Result) error {
	return d.m.Apply(batch, results)
}
func (d durable) Close() error                             { return d.m.Close() }
func (d durable) Snapshot() (millrace.Snapshot, error)     { return nil, errors.ErrUnsupported }
func (d durable) Restore(context.Context, io.Reader) error { return errors.ErrUnsupported }
func (d durable) Applied() (uint64, error)                 { return d.m.Applied(), nil }
func (d durable) Sync() error                              { return nil }
