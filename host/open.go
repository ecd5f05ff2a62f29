package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/host/internal/reports"
	"github.com/millrace/millrace/internal/arena"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/transport/tcp"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"
)

// Open starts a host on its directory, new or not. It opens no group: OpenGroup does. ctx bounds the
// opening only. A log that was closed in good order opens in a moment. A log of 10 GiB that was not takes
// seconds. Close the host when done.
func Open(ctx context.Context, c Config, options ...Option) (_ *Host, err error) {
	e, err := newEnvironment(options)
	undo := []io.Closer{}
	var h *Host
	if e.transport != nil {
		undo = append(undo, e.transport)
	}
	complete := false
	defer func() {
		if !complete { // also if a function of the user ends this goroutine
			for _, opened := range slices.Backward(undo) {
				err = errors.Join(err, opened.Close())
			}
		}
	}()
	if err != nil {
		return nil, err
	}
	given := c
	tokens, err := c.parseJoinTokens()
	if err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	listens := c.Listen != ""
	c = c.withDefaults()
	if c, err = c.absolute(e.fs); err != nil {
		return nil, err
	}
	if c.AdminSocket && e.fs != vfs.OS() {
		return nil, errors.New("millrace: Config.AdminSocket makes a socket in Config.Dir, and WithFS has replaced the machine's filesystem; leave one of them out")
	}
	events, writer := new(reports.Events), reports.StartLogWriter(e.logger, e.env.Scheduler)
	undo = append(undo, writer)
	e.logger = writer.Logger()
	var hook *reports.Hook
	if e.hook != nil {
		hook = reports.StartHook(events, e.env.Scheduler, e.logger, e.hook)
		undo = append(undo, hook)
	}
	switch {
	case e.transport == nil:
		if err := c.validateAddresses(); err != nil {
			return nil, err
		}
		if err := c.validateTLS(); err != nil {
			return nil, err
		}
		if rejected := c.rejectTokens(tokens); rejected != nil {
			if c, err = c.dropSpent(given, e.fs, rejected); err != nil {
				return nil, err
			}
			tokens = nil
		}
	case c.TLS != nil:
		return nil, errors.New("millrace: Config.TLS is for TCP, and WithTransport replaces it; leave one of them out")
	case c.Resolve != nil:
		return nil, errors.New("millrace: Config.Resolve is for TCP, and WithTransport replaces it; leave one of them out")
	}
	logConfig := LogConfig{
		FS:           e.fs,
		Dir:          identity.LogDir(c.Dir),
		Scheduler:    e.env.Scheduler,
		Clock:        e.env.Clock,
		Secrets:      e.env.Secrets,
		Owner:        c.ID,
		Mode:         c.Durability,
		SegmentBytes: c.SegmentBytes,
		CacheBytes:   c.LogCacheBytes,
		Logger:       e.logger,
		Events:       func(what wal.Event) { events.Emit(event.LogEvent{Event: what}) },
	}
	if e.openLog == nil {
		if err := logConfig.options().Validate(); err != nil {
			return nil, err // before anything is written
		}
	}
	ownTCP := e.transport == nil
	// identity.Directory says why the directory is taken in this order.
	directory, err := identity.Enter(e.fs, c.directory(e.openLog != nil))
	if err != nil {
		return nil, err
	}
	undo = append(undo, directory)
	e.fs = directory.FS() // from here on; the log has a lock, and a view, of its own
	if e.transport == nil {
		if e.transport, err = c.listen(listens, e.logger, func(v tcp.TLSEvent) { h.tlsEvent(v) }); err != nil {
			return nil, err
		}
		undo = append(undo, e.transport)
	}
	openLog := e.openLog
	if openLog == nil {
		openLog = OpenWAL
	}
	var log Log
	if err := directory.OpenLog(logConfig.Dir, func() (err error) { log, err = openLog(logConfig); return err }); err != nil {
		return nil, err
	}
	undo = append(undo, log)
	if err := directory.Claim(log.ID(), func() bool { return isUsed(log) }); err != nil {
		return nil, err
	}
	self := directory.Identity().Introduction(log.Fence().Generation, e.env.Rand.Uint64(), c.reachableAddr(e.transport))
	if self.Past, err = directory.EnterLife(self.Generation, self.Life, e.logger); err != nil {
		return nil, err
	}
	self.FitPast()
	review := func(uint64) {}
	if t, ok := e.transport.(transport.Reviewer); ok {
		review = t.Review
	}
	admission, err := identity.NewAdmission(e.fs, c.Dir, self, review, e.logger)
	if err != nil {
		return nil, err
	}
	if ctx.Err() != nil {
		return nil, fmt.Errorf("millrace: Open of host %d in %s: %w", c.ID, c.Dir, context.Cause(ctx))
	}
	h = &Host{
		config: c, env: e,
		trust:    hostTrust{directory: directory, admission: admission, tokens: tokens},
		storage:  hostStorage{log: log},
		network:  hostNetwork{transport: e.transport, ownTCP: ownTCP},
		reports:  hostReports{events: events, logWriter: writer, hook: hook},
		shutdown: hostShutdown{shutdown: shutdown{done: make(chan struct{})}},
	}
	h.memory.init(c)
	h.memory.blocks = arena.New(c.blocks(e.env.Blocks))
	h.groups.init(h.storage.log.Deleted())
	h.network.peers.Init(c.ID, c.Members, h.bookWiring())
	h.openPlacer()
	h.trust.authority.Init(h.storage.log)
	h.network.handshakes.Init(h.others())
	if err := h.finishInstalls(ctx); err != nil {
		return nil, err
	}
	if err := h.startAdmin(); err != nil {
		return nil, err
	}
	h.startLanes()
	h.network.pulses = pulse.New(h.config.ID, self.Life, h.others(), pulseShards(h.shards))
	h.network.receiver = pulse.NewReceiver(h.followPulse)
	h.clock.init(h)
	h.recallAddrs()
	h.network.transport.Start((*inbound)(h))
	h.clock.start(h)
	if !e.pipeline.AsyncStorageWrites() {
		e.logger.Warn("millrace: this pipeline is for the lab: it serves one group of fixed members, installs no snapshots, and a full disk stops it for good; use pipeline.Async", "pipeline", e.pipeline.Name())
	}
	complete = true
	return h, nil
}
