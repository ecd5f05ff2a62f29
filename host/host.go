package host

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/transport/tcp"
	"github.com/millrace/millrace/wal"
)

// Host is one process of a cluster: a directory, a log, a transport, and the groups that share them. For now
// it has one group.
type Host struct {
	directory *directory
	admission *admission
	log       *wal.Log
	transport Transport
	group     *Group
	stopTicks func()

	closing  atomic.Bool // Close was called
	shutdown shutdown
}

// theGroup is the id of a host's only group. Log and wire already have ids for more groups.
const theGroup uint64 = 1

// Open starts a host on its directory, new or not, and returns without waiting for a leader. The state
// machine gets the entries of the log again, as the host learns that they are committed. Close the host when
// done.
func Open(c Config, machine StateMachine, options ...Option) (_ *Host, err error) {
	e, err := newEnvironment(options)
	undo := []io.Closer{}
	if e.transport != nil {
		undo = append(undo, e.transport)
	}
	defer func() {
		if err != nil {
			for _, opened := range slices.Backward(undo) {
				err = errors.Join(err, opened.Close())
			}
		}
	}()
	if err != nil {
		return nil, err
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if machine == nil {
		return nil, errors.New("millrace: Open needs a StateMachine")
	}
	c = c.withDefaults()
	if e.transport == nil {
		if err := c.validateAddresses(); err != nil {
			return nil, err
		}
	}
	logOptions := wal.Options{
		FS:           e.fs,
		Dir:          logDir(c.Dir),
		Scheduler:    e.env.Scheduler,
		Clock:        e.env.Clock,
		Rand:         e.env.Secrets,
		Owner:        c.ID,
		Mode:         c.Durability,
		SegmentBytes: c.SegmentBytes,
		CacheBytes:   c.LogCacheBytes,
		Logger:       e.logger,
		Events:       func(what wal.Event) { e.events.emit(LogEvent{what}) },
	}
	if err := logOptions.Validate(); err != nil {
		return nil, err // before anything is written
	}
	// directory.go says why the directory is taken in this order.
	directory, err := enterDirectory(e.fs, c)
	if err != nil {
		return nil, err
	}
	undo = append(undo, directory)
	if e.transport == nil {
		if e.transport, err = c.listen(e.logger); err != nil {
			return nil, err
		}
		undo = append(undo, e.transport)
	}
	log, err := directory.openLog(logOptions)
	if err != nil {
		return nil, err
	}
	undo = append(undo, log)
	if log.Fence().Amnesia {
		return nil, fmt.Errorf("%w: %s may lack entries and votes that other hosts rely on, so this host does not start and its group continues without it; \"millrace wal verify %s\" says what is missing and what accepting the loss may cost",
			ErrAmnesia, logOptions.Dir, logOptions.Dir)
	}
	if err := directory.take(log, e.env.Rand); err != nil {
		return nil, err
	}
	self := directory.identity.introduction(log.Fence().Generation, e.env.Rand.Uint64(), c.reachableAddr(e.transport))
	admission, err := newAdmission(e.fs, c.Dir, self, e.logger)
	if err != nil {
		return nil, err
	}
	h := &Host{directory: directory, admission: admission, log: log, transport: e.transport, shutdown: shutdown{done: make(chan struct{})}}
	if h.group, err = newGroup(c, e, log, machine); err != nil {
		return nil, err
	}
	if !e.pipeline.AsyncStorageWrites() {
		e.logger.Warn("millrace: with this pipeline a full disk stops the group for good; pipeline.Async waits for space", "pipeline", e.pipeline.Name())
	}
	h.transport.Start((*inbound)(h))
	g := h.group
	ticks := newMetronome(e.env.Clock.Now, c.tickPeriod())
	h.stopTicks = e.env.Clock.Every(c.tickPeriod(), func() {
		g.inbox.putTicks(ticks.passed())
		g.task.Wake()
		g.append.tick()
	})
	g.task.Wake() // what is committed already can be applied
	return h, nil
}

// listen returns TCP to Peers.
func (c Config) listen(logger *slog.Logger) (Transport, error) {
	t, err := tcp.Listen(tcp.Options{ID: c.ID, Listen: c.Listen, StallTimeout: c.stallTimeout(), Logger: logger})
	if err != nil {
		return nil, err
	}
	for id, addr := range c.Peers {
		if id != c.ID {
			t.SetPeer(id, addr)
		}
	}
	return t, nil
}

// stallTimeout returns how long a connection may make no progress. A firewall that has forgotten a connection
// separates two hosts for as long as stallTimeout, although a new connection would work at once.
func (c Config) stallTimeout() time.Duration { return max(3*c.ElectionTimeout, minStall) }

// minStall lets the kernel repeat a lost packet twice before the connection is given up.
const minStall = time.Second

func newGroup(c Config, e environment, log *wal.Log, machine StateMachine) (*Group, error) {
	t, stored := e.transport, log.Group(theGroup)
	core := raft.Config{
		ID:                        c.ID,
		ElectionTick:              c.electionTicks(),
		HeartbeatTick:             ticksPerHeartbeat,
		Seed:                      e.env.Rand.Uint64(),
		Storage:                   storage{log: stored, conf: c.voters()},
		AsyncStorageWrites:        e.pipeline.AsyncStorageWrites(),
		MaxSizePerMsg:             uint64(c.MaxAppendBytes),
		MaxCommittedSizePerReady:  maxApplyingBytes,
		MaxUncommittedEntriesSize: uint64(c.MaxProposalBytes),
		MaxInflightMsgs:           maxInflightMsgs,
		MaxInflightBytes:          maxInflightBytes,
		EntryOverheadBytes:        raft.EntryOverhead,
		CheckQuorum:               true,
		PreVote:                   true,
		DisableProposalForwarding: true,
	}
	node, err := raft.NewRawNode(&core)
	if err != nil {
		return nil, fmt.Errorf("millrace: start from %s: %w", c.Dir, err)
	}
	g := &Group{
		id:              theGroup,
		self:            c.ID,
		maxCommandBytes: c.MaxCommandBytes,
		maxBatchBytes:   c.MaxAppendBytes,
		maxPendingBytes: c.MaxProposalBytes,
		inbox:           inbox{maxProposalBytes: c.MaxProposalBytes, maxMessageBytes: c.MaxInboxBytes},
		log:             log,
		pipeline:        e.pipeline,
		logger:          e.logger,
		events:          e.events,
		node:            node,
		outgoing:        outgoing{group: theGroup, to: &toPeers{transport: t}, holdEmpty: true},
		hard:            stored.HardState(),
		stated:          stated{hs: stored.HardState()},
		ended:           make(chan struct{}),
		failed:          make(chan struct{}),
		gathering:       gathering{now: e.env.Clock.Now},
	}
	g.append = &appendWorker{
		log:      log,
		self:     c.ID,
		fail:     g.fail,
		hard:     g.hard,
		stated:   g.stated,
		logger:   e.logger,
		events:   e.events,
		outgoing: outgoing{group: theGroup, to: &toPeers{transport: t}},
		toSelf:   outgoing{group: theGroup, to: ownInbox{g}},
	}
	g.forgetAfterTicks = 2 * core.ElectionTick
	g.restart = func(applied uint64) (*raft.RawNode, error) {
		core.Applied = applied
		core.Seed++
		return raft.NewRawNode(&core)
	}
	g.append.forgot = func(o forgetOutcome) {
		g.inbox.putForgot(o)
		g.task.Wake()
	}
	g.append.later = e.env.Clock.Timer(func() { g.append.task.Wake() })
	g.apply = &applyWorker{
		applier: &applier{machine: machine},
		answer:  func(answers []raftpb.Message) { ownInbox{g}.sendMessages(0, 0, answers) },
		fail:    g.fail,
	}
	g.flusher = e.env.Clock.Timer(func() {
		g.inbox.putFlush()
		g.task.Wake()
	})
	g.publish()
	name := fmt.Sprintf("host %d ", c.ID)
	kind := env.Compute
	if !e.pipeline.AsyncStorageWrites() {
		kind = env.Disk | env.StateMachine // it saves and applies in its own turn
	}
	g.task = e.env.Scheduler.Go(name+"group", kind, (*turn)(g))
	g.append.task = e.env.Scheduler.Go(name+"append", env.Disk, g.append)
	g.apply.task = e.env.Scheduler.Go(name+"apply", env.StateMachine, g.apply)
	return g, nil
}

// Group returns the host's group.
func (h *Host) Group() *Group { return h.group }

// Addr returns the address on which the host's transport listens, or "" if the transport has none.
func (h *Host) Addr() string {
	if t, ok := h.transport.(interface{ Addr() string }); ok {
		return t.Addr()
	}
	return ""
}

// TransportStats returns the counts of the host's transport, including the number of connected peers. They
// are zero if the transport does not count.
func (h *Host) TransportStats() transport.Stats {
	if t, ok := h.transport.(interface{ Stats() transport.Stats }); ok {
		return t.Stats()
	}
	return transport.Stats{}
}

// LogStats returns the counts of the host's log.
func (h *Host) LogStats() wal.Stats { return h.log.Stats() }
