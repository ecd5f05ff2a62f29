package host

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/batches"
	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
)

// Transport carries messages between hosts. Package transport has its contract, and transport/transporttest
// tests it; transport/tcp and transport/loopback implement it.
type Transport interface {
	// Start begins to deliver to r. It is called once, before anything is sent.
	Start(r transport.Receiver)
	// Send queues the messages of batch, which may belong to many groups, for one host. It never blocks,
	// and keeps no part of batch but the data of its entries, which must not change any more. False means
	// that some or all were dropped.
	Send(to uint64, batch []transport.Envelope) bool
	// SendBytes queues one body of kind Pulse, Control or Bulk, which the transport does not look into. It
	// never blocks. The body is copied. A pulse replaces one that still waits for the same host. False means
	// that the body was dropped.
	SendBytes(to uint64, kind transport.Kind, body []byte) bool
	// Close drops what is queued. When it returns, the receiver is not being called and will not be called
	// again.
	Close() error
}

// Option replaces a part of the host's environment.
type Option func(*environment)

// environment is what a host needs of the outside.
type environment struct {
	env         env.Env
	fs          vfs.FS
	openLog     func(LogConfig) (Log, error) // nil: OpenWAL
	transport   Transport                    // nil: TCP
	noTransport bool                         // WithTransport was given nil
	pipeline    pipeline.Pipeline
	logger      *slog.Logger
	hook        func(event.Event)
	batches     batches.Kind
}

func newEnvironment(options []Option) (e environment, err error) {
	e = environment{env: env.Real(), fs: vfs.OS(), pipeline: pipeline.Async{}, logger: slog.Default()}
	for i, o := range options {
		if o != nil {
			o(&e) // also after one that is nil: a transport that was given is closed
		} else if err == nil {
			err = fmt.Errorf("millrace: option %d of Open is nil; leave it out", i)
		}
	}
	switch {
	case err != nil:
		return e, err
	case e.env.Clock == nil || e.env.Rand == nil || e.env.Scheduler == nil:
		return e, errors.New("millrace: WithEnv needs a Clock, a Rand and a Scheduler; leave the option out for the real ones")
	case e.fs == nil:
		return e, errors.New("millrace: WithFS needs a filesystem; leave the option out for the machine's")
	case e.noTransport:
		return e, errors.New("millrace: WithTransport needs a transport; leave the option out for TCP")
	case e.pipeline == nil:
		return e, errors.New("millrace: WithPipeline needs a pipeline; leave the option out for pipeline.Async")
	case e.logger == nil:
		return e, errors.New("millrace: WithLogger needs a logger; leave the option out for slog.Default, or pass one with slog.DiscardHandler")
	}
	return e, nil
}

// WithEnv replaces clock, random source and scheduler.
func WithEnv(v env.Env) Option { return func(e *environment) { e.env = v } }

// WithBatches says when a leader begins its next batch. It is for experiments: batches.Automatic, the
// default, finds the better one of the other two by itself.
func WithBatches(k batches.Kind) Option { return func(e *environment) { e.batches = k } }

// WithFS replaces the file system.
func WithFS(fs vfs.FS) Option { return func(e *environment) { e.fs = fs } }

// WithTransport replaces TCP. The transport must already know the peers' addresses. The host closes it, even
// when Open fails.
func WithTransport(t Transport) Option {
	return func(e *environment) { e.transport, e.noTransport = t, t == nil }
}

// WithLog replaces the log of package wal. open is called once, in Open, when the directory is locked. A log
// is checked with package host/logtest. Its ID is the incarnation of the directory: one that comes with
// another ID than before is refused.
func WithLog(open func(LogConfig) (Log, error)) Option {
	return func(e *environment) { e.openLog = open }
}

// WithPipeline replaces pipeline.Async. The synchronous pipelines, pipeline.Basic and pipeline.Parallel,
// are for comparison. A full disk stops their group for good, where pipeline.Async waits for space and
// continues to vote. Their members install no snapshots of other members. Open warns about them.
func WithPipeline(p pipeline.Pipeline) Option { return func(e *environment) { e.pipeline = p } }

// WithLogger replaces slog.Default.
func WithLogger(l *slog.Logger) Option { return func(e *environment) { e.logger = l } }

func (e *environment) secrets() io.Reader {
	if s := e.env.Secrets; s != nil {
		return s
	}
	return rand.Reader
}
