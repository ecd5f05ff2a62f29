package host

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/admin"
	"github.com/millrace/millrace/host/internal/apply"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/examination"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/members"
	"github.com/millrace/millrace/host/internal/objects"
	"github.com/millrace/millrace/host/internal/peers"
	"github.com/millrace/millrace/host/internal/plans"
	"github.com/millrace/millrace/host/internal/pulse"
	"github.com/millrace/millrace/host/internal/sched"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/transport"
	"github.com/millrace/millrace/wal"
)

// Host is one process of a cluster: a directory, a log, a transport, and the groups that share them. Its
// methods may be called from any goroutine.
type Host struct {
	config  Config
	env     environment
	trust   hostTrust   // which directory this is, and whom it admits
	memory  hostMemory  // what may wait
	storage hostStorage // the log of all groups

	network  hostNetwork    // to other hosts
	shards   []*sched.Shard // where turns run
	appliers *apply.Lanes   // where state machines run
	bulk     hostBulk       // snapshots and objects, made and sent
	groups   groupTable
	changes  memberChanges // how members and leaders are to change
	reports  hostReports   // what others see of it
	clock    hostClock
	shutdown hostShutdown
}

// incarnation returns the incarnation of this host's directory.
func (h *Host) incarnation() transport.Incarnation { return h.trust.directory.Identity().Incarnation }

// nextFrame returns a frame number that no life of this host has used.
func (h *Host) nextFrame() uint64 {
	return h.storage.log.Fence().Generation<<40 + h.network.frames.Add(1)
}

const (
	maxShards     = 16
	minApplyLanes = 2 // one of them is for machines that are quick
	maxApplyLanes = 64
)

// stallTimeout returns how long a connection may make no progress. A firewall that has forgotten a connection
// separates two hosts for as long as stallTimeout, although a new connection would work at once.
func (c Config) stallTimeout() time.Duration { return max(3*c.ElectionTimeout, minStall) }

// minStall lets the kernel repeat a lost packet twice before the connection is given up.
const minStall = time.Second

// Addr returns the address on which the host's transport listens, or "" if the transport has none.
func (h *Host) Addr() string {
	if t, ok := h.network.transport.(interface{ Addr() string }); ok {
		return t.Addr()
	}
	return ""
}

// TransportStats returns the counts of the host's transport, including the number of connected peers. They
// are zero if the transport does not count.
func (h *Host) TransportStats() transport.Stats {
	if t, ok := h.network.transport.(interface{ Stats() transport.Stats }); ok {
		return t.Stats()
	}
	return transport.Stats{}
}

// LogStats returns the counts of the host's log.
func (h *Host) LogStats() wal.Stats { return h.storage.log.Stats() }

// memberChanges is how members and leaders are to change, as this host was asked or has decided.
type memberChanges struct {
	plans      adminPlans // that were made over the admin socket
	applicants plans.Applicants
	executing  atomic.Int64 // plans that callers here wait for (execute.go)
	placer     placer       // hand-overs for placement
}

// transfers are those of a host, of its two kinds of content. A snapshot is not removed while it is sent,
// and the log behind it is kept, since the receiver needs it next. If that becomes too much
// (bulk.MinPinnedLog), the transfer ends with an event, and the log goes.
type transfers struct {
	bulk.Transfers
	snapshots *bulk.Class
	objects   objects.Fetches
}

// hostReports is what others see of a host.
type hostReports struct {
	events    *events
	logWriter *logWriter
	hook      *hook         // nil: there is none
	admin     *admin.Server // the same
	watch     examination.Watch
	flight    *flightRecorder // nil: there is none
}

// hostTrust says which directory this is, whom it admits, and with which key.
type hostTrust struct {
	directory *identity.Directory
	admission *identity.Admission
	authority authority
	keys      members.Keys
	tokens    plans.Tokens // that this host was given
}

// hostNetwork is the way to other hosts.
type hostNetwork struct {
	transport  Transport
	ownTCP     bool // the transport is not WithTransport's
	peers      peers.Book
	handshakes peers.Handshakes
	pulses     *pulse.Sender
	heard      *pulse.Receiver
	asked      []pulse.Question // scratch memory of answerLeaders

	strays      atomic.Uint64 // messages for groups that are not open here
	frames      atomic.Uint64 // of forwarded commands, so far
	readNumbers atomic.Uint64 // of questions about reads, so far, in all groups (read.go)
}

// inbound is the host as its transport sees it: transport.Receiver. It is a type of its own so that a user's
// Host does not export what only the transport may call.
type inbound Host

// shutdown is the end of a host. All waiting clients are answered before it begins, because a client must not
// hang when a disk does. The parts that may be in the middle of work are asked to stop. When all have
// stopped, and so nothing can write to the log any more, the log is closed.
//
// A disk or a state machine may hang forever, and no call can end that. So each caller of Close waits only as
// long as its context allows. A part that hangs is left behind and keeps the directory locked; if it ever
// returns, the shutdown continues.
type shutdown struct {
	done chan struct{} // closed when everything has stopped

	mu      sync.Mutex
	running []*part // were asked to stop and have not
	errs    []error
}

// part is something that can be asked to stop, and returns when it has. Its doing says what it may be in
// the middle of. It is asked when a caller of Close gives up.
type part struct {
	doing func() string
	stop  func() error
}

func joined(stop func()) func() error {
	return func() error { stop(); return nil }
}

func fixed(text string) func() string { return func() string { return text } }

// hostShutdown is how a host ends.
type hostShutdown struct {
	shutdown
	closing atomic.Bool // Close was called
}

// hostBulk is what is long: snapshots and objects, made, installed and sent.
type hostBulk struct {
	snapshotLanes snapshots.Lanes
	transfers     transfers
	uninstalled   map[uint64]error // why received snapshots of groups could not be installed; it is not changed after Open
}
