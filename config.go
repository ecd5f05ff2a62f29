package millrace

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/millrace/millrace/env"
	"github.com/millrace/millrace/pipeline"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/wal"

	pb "github.com/millrace/millrace/raft/raftpb"
)

// Config configures a host. Only ID, Dir and Peers must be set; the rest is safe as it is.
type Config struct {
	// ID is this host's id among Peers, not 0. An id belongs to one directory for ever: a host whose directory is lost
	// must not come back under its old id, since it has forgotten its votes.
	ID uint64
	// Cluster tells clusters apart, so that a wrong address does no harm.
	Cluster uint64
	// Dir is the host's own directory; made if missing. Another process on it is refused.
	Dir string
	// Peers are the addresses (host:port) of all voters, this host's included. Membership changes are a later step;
	// until then the ids must be the same on every host and on every start.
	Peers map[uint64]string
	// Listen is the address to listen on; default Peers[ID].
	Listen string

	// HeartbeatInterval is the time between a leader's heartbeats; default 100 ms.
	HeartbeatInterval time.Duration
	// ElectionTimeout is about how long a follower waits for a leader, up to twice as long by chance; in whole
	// heartbeats. Default ten of them, at least two.
	ElectionTimeout time.Duration

	// Durability is what the log means by written; default wal.ModeGroup.
	Durability wal.Mode
	// SegmentBytes and LogCacheBytes size the log's segments and the memory of its recent entries; 0 means the log's
	// defaults, 64 MiB and 32 MiB.
	SegmentBytes, LogCacheBytes int64

	// MaxAppendBytes is the soft size of one append to a follower; default 1 MiB: large enough to fill a disk's write,
	// small enough that a heartbeat behind it is not late (thesis §10.2.2).
	MaxAppendBytes int
	// MaxCommandBytes bounds one command; default 8 MiB. Larger ones get ErrTooLarge.
	MaxCommandBytes int
	// MaxProposalBytes bounds the commands waiting for their turn, and again those proposed and not yet applied,
	// each with some 200 bytes for what it takes besides; default 256 MiB. Beyond it Propose answers ErrOverloaded.
	MaxProposalBytes int64
	// MaxInboxBytes bounds what peers have sent and the group has not yet taken; default 256 MiB. Beyond it messages
	// are dropped, as a network would.
	MaxInboxBytes int64
}

func (c Config) withDefaults() Config {
	setDefault(&c.Listen, c.Peers[c.ID])
	setDefault(&c.HeartbeatInterval, 100*time.Millisecond)
	setDefault(&c.ElectionTimeout, 10*c.HeartbeatInterval)
	setDefault(&c.MaxAppendBytes, 1<<20)
	setDefault(&c.MaxCommandBytes, 8<<20)
	setDefault(&c.MaxProposalBytes, 256<<20)
	setDefault(&c.MaxInboxBytes, 256<<20)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate reports the first setting that makes no sense, in a sentence. Defaults count as set.
func (c Config) Validate() error {
	c = c.withDefaults()
	switch {
	case c.ID == raft.None || c.ID == raft.LocalAppendThread || c.ID == raft.LocalApplyThread:
		return fmt.Errorf("millrace: Config.ID %d is reserved; give each host an id of its own, from 1 on", c.ID)
	case c.Dir == "":
		return errors.New("millrace: Config.Dir is empty; a host needs a directory of its own")
	case len(c.Peers) == 0:
		return errors.New("millrace: Config.Peers is empty; list the addresses of all voters, this host's included")
	case !has(c.Peers, c.ID):
		return fmt.Errorf("millrace: Config.Peers has no entry for this host's own id %d", c.ID)
	case c.HeartbeatInterval <= 0:
		return fmt.Errorf("millrace: Config.HeartbeatInterval is %v, want more than 0", c.HeartbeatInterval)
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
	return nil
}

func has(m map[uint64]string, id uint64) bool { _, ok := m[id]; return ok }

const (
	// What one follower may have under way, and the state machine.
	maxInflightMsgs  = 256
	maxInflightBytes = 32 << 20
	maxApplyingBytes = 32 << 20
	// maxCommandBytes leaves room in a frame for the append around a command.
	maxCommandBytes = transport.DefaultFrameBytes - 1<<10
)

func (c Config) voters() pb.ConfState {
	return pb.ConfState{Voters: sortedIDs(c.Peers)}
}

// Transport carries messages between hosts. package transport says what it owes its user; transport/tcp and
// transport/loopback are two.
type Transport interface {
	Start(transport.Receiver)
	Send(to, group uint64, messages []pb.Message) bool
	Close() error
}

// Option replaces a part of the world a host lives in.
type Option func(*world)

type world struct {
	env       env.Env
	fs        vfs.FS
	transport Transport
	pipeline  pipeline.Pipeline
	logger    *slog.Logger
}

// WithEnv replaces clock, random source and scheduler.
func WithEnv(e env.Env) Option { return func(w *world) { w.env = e } }

// WithFS replaces the file system.
func WithFS(fs vfs.FS) Option { return func(w *world) { w.fs = fs } }

// WithTransport replaces TCP. The transport must know the peers' addresses already. The host closes it, also when Open fails.
func WithTransport(t Transport) Option { return func(w *world) { w.transport = t } }

// WithPipeline replaces pipeline.Async.
func WithPipeline(p pipeline.Pipeline) Option { return func(w *world) { w.pipeline = p } }

// WithLogger replaces slog.Default.
func WithLogger(l *slog.Logger) Option { return func(w *world) { w.logger = l } }
