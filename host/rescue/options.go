package rescue

import (
	"crypto/rand"
	"errors"
	"io"
	"log/slog"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/vfs"
)

// Options are what a rescue and a restore need of the outside. The zero value is the machine's.
type Options struct {
	FS     vfs.FS       // nil: the machine's
	Env    env.Env      // without a Clock, a Rand and a Scheduler: the real ones
	Logger *slog.Logger // nil: slog.Default
	// OpenLog opens a log of your own, as host.WithLog does; nil: one of package wal. A rescue takes no
	// other.
	OpenLog func(host.LogConfig) (host.Log, error)
}

func (o Options) withDefaults() (Options, error) {
	if o.FS == nil {
		o.FS = vfs.OS()
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	switch e := &o.Env; {
	case e.Clock == nil && e.Rand == nil && e.Scheduler == nil:
		secrets := e.Secrets
		o.Env = env.Real()
		o.Env.Secrets = secrets
	case e.Clock == nil || e.Rand == nil || e.Scheduler == nil:
		return o, errors.New("millrace: Options.Env needs a Clock, a Rand and a Scheduler; leave it empty for the real ones")
	}
	return o, nil
}

// secrets is the source of the numbers that must not be guessed.
func (o *Options) secrets() io.Reader {
	if o.Env.Secrets != nil {
		return o.Env.Secrets
	}
	return rand.Reader
}
