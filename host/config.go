package host

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/host/pipeline"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"

	"github.com/millrace/millrace/raft/raftpb"
)

// Config configures a host. Only ID, Dir and Peers must be set; the defaults of the rest are safe.
type Config struct {
	// ID is this host's id in Peers, not 0. An id belongs to one directory forever: a host whose directory is
	// lost has forgotten its votes and must not come back under its old id. Peers that knew the lost
	// directory refuse it.
	ID uint64
	// Cluster distinguishes clusters, so that a wrong address does no harm: hosts of different clusters
	// refuse each other. By default it is derived from Peers, ids and addresses, at the first start of each
	// host, and kept in Dir; then the first starts of all hosts must be given exactly the same Peers. If
	// hosts spell addresses differently, set Cluster to the same number on all hosts before their first
	// start; then only the ids are compared.
	Cluster uint64
	// Dir is this host's directory. It is made if missing; a second process on it is refused.
	Dir string
	// Peers are the addresses (host:port) of all voters, including this host. Membership changes do not exist
	// yet, so the ids must be the same on every host and at every start. An address may change after the
	// first start.
	Peers map[uint64]string
	// Listen is the address to listen on; default Peers[ID]. Its host may be empty (every address of the
	// machine), and its port 0 (any port; Host.Addr tells which).
	Listen string

	// HeartbeatInterval is the time between a leader's heartbeats; default 100 ms, at least 1 ms.
	HeartbeatInterval time.Duration
	// ElectionTimeout is about how long a follower waits for a leader; the actual time is drawn up to twice
	// as long. It is rounded up to quarters of a heartbeat interval. Default ten intervals, at least two, at
	// most a day.
	ElectionTimeout time.Duration

	// Durability says when a write counts as durable; default wal.ModeGroup.
	Durability wal.Mode
	// SegmentBytes and LogCacheBytes size the log's segments and the memory for its recent entries; 0 means
	// the log's defaults, 64 MiB and 32 MiB.
	SegmentBytes, LogCacheBytes int64

	// MaxAppendBytes is the soft size of one append to a follower; default 1 MiB. That is large enough for
	// efficient disk writes, and small enough not to delay a heartbeat behind it (thesis §10.2.2).
	MaxAppendBytes int
	// MaxCommandBytes bounds one command; default 8 MiB. Larger ones get ErrTooLarge.
	MaxCommandBytes int
	// MaxProposalBytes bounds the commands that wait for their turn, and separately those proposed and not
	// yet applied. Each counts some 200 bytes of overhead. Default 256 MiB. Beyond it Propose returns
	// ErrOverloaded.
	MaxProposalBytes int64
	// MaxInboxBytes bounds what peers have sent and the group has not taken yet; default 256 MiB. Beyond it
	// messages are dropped, as a network would.
	MaxInboxBytes int64
}

func (c Config) withDefaults() Config {
	c.Listen = cmp.Or(c.Listen, c.Peers[c.ID])
	c.HeartbeatInterval = cmp.Or(c.HeartbeatInterval, 100*time.Millisecond)
	c.ElectionTimeout = cmp.Or(c.ElectionTimeout, 10*c.HeartbeatInterval)
	c.MaxAppendBytes = cmp.Or(c.MaxAppendBytes, 1<<20)
	c.MaxCommandBytes = cmp.Or(c.MaxCommandBytes, 8<<20)
	c.MaxProposalBytes = cmp.Or(c.MaxProposalBytes, 256<<20)
	c.MaxInboxBytes = cmp.Or(c.MaxInboxBytes, 256<<20)
	return c
}

// Validate reports the first invalid setting, in a sentence. Defaults count as set. The transport decides
// which addresses are valid: Open checks those that it gives to TCP, and WithTransport takes any.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case c.ID == raft.None || c.ID == raft.LocalAppendThread || c.ID == raft.LocalApplyThread:
		return fmt.Errorf("millrace: Config.ID %d is reserved; give each host a different id, starting at 1", c.ID)
	case c.Dir == "":
		return errors.New("millrace: Config.Dir is empty; each host needs its own directory")
	case len(c.Peers) == 0:
		return errors.New("millrace: Config.Peers is empty; list the addresses of all voters, this host's included")
	case !has(c.Peers, c.ID):
		return fmt.Errorf("millrace: Config.Peers has no entry for this host, id %d", c.ID)
	case c.HeartbeatInterval < minHeartbeat:
		return fmt.Errorf("millrace: Config.HeartbeatInterval is %v, want at least %v", c.HeartbeatInterval, minHeartbeat)
	case c.HeartbeatInterval > maxElection:
		return fmt.Errorf("millrace: Config.HeartbeatInterval is %v, want at most %v", c.HeartbeatInterval, maxElection)
	case c.ElectionTimeout > maxElection:
		return fmt.Errorf("millrace: Config.ElectionTimeout is %v, want at most %v", c.ElectionTimeout, maxElection)
	case c.ElectionTimeout < 2*c.HeartbeatInterval:
		return fmt.Errorf("millrace: Config.ElectionTimeout is %v, want at least two heartbeat intervals (%v)", c.ElectionTimeout, 2*c.HeartbeatInterval)
	case c.MaxAppendBytes < 1 || c.MaxAppendBytes > maxInflightBytes:
		return fmt.Errorf("millrace: Config.MaxAppendBytes is %d, want 1 to %d", c.MaxAppendBytes, maxInflightBytes)
	case c.MaxCommandBytes < 1 || c.MaxCommandBytes > maxCommandBytes:
		return fmt.Errorf("millrace: Config.MaxCommandBytes is %d, want 1 to %d: a command must fit into one frame between hosts", c.MaxCommandBytes, maxCommandBytes)
	case c.MaxProposalBytes < int64(c.MaxCommandBytes):
		return fmt.Errorf("millrace: Config.MaxProposalBytes is %d, want at least MaxCommandBytes (%d)", c.MaxProposalBytes, c.MaxCommandBytes)
	case c.MaxInboxBytes < int64(c.MaxCommandBytes):
		return fmt.Errorf("millrace: Config.MaxInboxBytes is %d, want at least MaxCommandBytes (%d)", c.MaxInboxBytes, c.MaxCommandBytes)
	}
	for id := range c.Peers {
		if id == raft.None || id == raft.LocalAppendThread || id == raft.LocalApplyThread {
			return fmt.Errorf("millrace: Config.Peers names host %d, which is a reserved id", id)
		}
	}
	if err := c.founding().introduction(0, 0, strings.Repeat("x", maxAddrBytes)).Validate(); err != nil {
		return fmt.Errorf("millrace: other hosts would refuse Config.Peers: %w", err)
	}
	return nil
}

// maxAddrBytes is the longest address of a host: a domain name of 253 bytes, and a port.
const maxAddrBytes = 260

// validateAddresses reports an address that TCP cannot use, in a sentence that names the setting.
func (c Config) validateAddresses() error {
	c = c.withDefaults()
	owner := map[string]uint64{}
	for _, id := range sortedIDs(c.Peers) {
		addr := c.Peers[id]
		host, port, err := splitAddr(addr)
		endpoint := fmt.Sprintf("%s %d", strings.ToLower(host), port)
		switch other, taken := owner[endpoint]; {
		case err != nil:
			return fmt.Errorf("millrace: Config.Peers gives host %d the address %.80q: %w", id, addr, err)
		case len(c.Peers) == 1: // no host dials it
		case host == "" || net.ParseIP(host).IsUnspecified():
			return fmt.Errorf("millrace: Config.Peers gives host %d the address %q, which other hosts cannot dial; name a host in Config.Peers, and the address to listen on in Config.Listen", id, addr)
		case port == 0:
			return fmt.Errorf("millrace: Config.Peers gives host %d the address %q, and other hosts cannot dial port 0; name the port on which it listens", id, addr)
		case taken:
			return fmt.Errorf("millrace: Config.Peers gives hosts %d and %d the same address %q; each host needs its own", other, id, addr)
		}
		owner[endpoint] = id
	}
	if _, _, err := splitAddr(c.Listen); err != nil {
		return fmt.Errorf("millrace: Config.Listen is %.80q: %w", c.Listen, err)
	}
	return nil
}

func splitAddr(addr string) (host string, port uint16, err error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("want host:port: %w", err)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("want host:port, where port is a number from 0 to 65535")
	}
	if len(addr) > maxAddrBytes {
		return "", 0, fmt.Errorf("it has %d bytes, want at most %d", len(addr), maxAddrBytes)
	}
	return host, uint16(n), nil
}

func has(m map[uint64]string, id uint64) bool { _, ok := m[id]; return ok }

const (
	// minHeartbeat keeps a tick, a quarter of it, longer than the usual lateness of a timer.
	minHeartbeat = time.Millisecond
	// maxElection keeps multiples of a timeout, and its ticks, far below overflow.
	maxElection = 24 * time.Hour
	// The bounds on what is under way to one follower, and to the state machine.
	maxInflightMsgs  = 256
	maxInflightBytes = 32 << 20
	maxApplyingBytes = 32 << 20
	// maxCommandBytes leaves space in a frame for the append around a command.
	maxCommandBytes = transport.DefaultFrameBytes - 1<<10
)

func (c Config) voters() raftpb.ConfState {
	return raftpb.ConfState{Voters: sortedIDs(c.Peers)}
}

// Transport carries messages between hosts. Package transport has its contract, and transport/transporttest
// tests it; transport/tcp and transport/loopback implement it.
type Transport interface {
	// Start begins to deliver to r. It is called once, before anything is sent.
	Start(r transport.Receiver)
	// Send queues the messages of batch, which may belong to many groups, for one host. It never blocks, and
	// keeps no part of batch. False means that some or all were dropped.
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
	transport   Transport // nil: TCP
	noTransport bool      // WithTransport was given nil
	pipeline    pipeline.Pipeline
	logger      *slog.Logger
	events      eventHook
}

func newEnvironment(options []Option) (e environment, err error) {
	e = environment{env: env.Real(), fs: vfs.OS(), pipeline: pipeline.Async{}, logger: slog.Default()}
	for i, o := range options {
		if o == nil {
			return e, fmt.Errorf("millrace: option %d of Open is nil; leave it out", i)
		}
		o(&e)
	}
	switch {
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

// WithFS replaces the file system.
func WithFS(fs vfs.FS) Option { return func(e *environment) { e.fs = fs } }

// WithTransport replaces TCP. The transport must already know the peers' addresses. The host closes it, even
// when Open fails.
func WithTransport(t Transport) Option {
	return func(e *environment) { e.transport, e.noTransport = t, t == nil }
}

// WithPipeline replaces pipeline.Async. The synchronous pipelines, pipeline.Basic and pipeline.Parallel, are
// for comparison: a full disk stops their group for good, where pipeline.Async waits for space and continues
// to vote. Open warns about them.
func WithPipeline(p pipeline.Pipeline) Option { return func(e *environment) { e.pipeline = p } }

// WithLogger replaces slog.Default.
func WithLogger(l *slog.Logger) Option { return func(e *environment) { e.logger = l } }
