package millrace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/millrace/millrace/host"
)

// Config configures a node with a host of its own. ID, Dir and Members must be set. The defaults of the rest
// are safe for production.
type Config struct {
	// ID is this host's id in Members, not 0. An id belongs to one directory forever: a host whose directory
	// is lost has forgotten its votes, and the others refuse it under its old id.
	ID uint64
	// Dir is this host's directory. It is made if missing; a second process on it is refused.
	Dir string
	// Members are the addresses (host:port) of all members, including this one. Give all founding members the
	// same map at their first start. From then on the members are in the log and change by Node.Plan and
	// Node.Execute; Members only says where they are, and may change.
	Members map[uint64]string
	// Joins is set for a node that is no founding member, or has lost the directory of a founding member.
	// It waits until a member adds it, or replaces its directory. Cluster must be the number of the cluster
	// then, and Members must name this node and one that is reached. It is looked at when the directory is new.
	Joins bool
	// Cluster is the number of the cluster, as Node.Cluster returns it on a member, for Joins. Default none.
	Cluster string
	// JoinToken is what NewJoinToken has returned on a member. It takes the place of Joins and Cluster, and
	// nothing needs to be done on a member: the node becomes one by itself. It is looked at until then, and
	// may stay set.
	JoinToken string
	// ClientAddrs are the addresses at which clients reach the members, in a form that you choose. Millrace
	// only passes them on: NotLeaderError and WaitLeader name the leader's. Default none.
	ClientAddrs map[uint64]string
	// Listen is the address to listen on, default Members[ID]. Port 0 is any port, and Node.Addr tells which.
	// Without a host it is every address of the machine, or the loopback address if all Members are on it.
	Listen string
	// Resolve turns the address of another member into the address to connect to, at each attempt. It is
	// for clusters with a registry, whose members may all move at once. It must return when its context
	// ends. Any goroutine calls it. Default: addresses are taken as they are, and a name is looked up at
	// each attempt.
	Resolve func(ctx context.Context, id uint64, addr string) (string, error)
	// TLS encrypts the connections between members, and makes each prove its id with a certificate. Members
	// at addresses that are not on this machine need it, or Insecure. All members need the same of both.
	// "millrace cert" makes certificates; docs/operate/tls.md says how to use and to replace them.
	TLS *TLS
	// Insecure allows addresses that are not on this machine without TLS. Connections are then neither
	// encrypted nor authenticated: any program that reaches the port can read and forge everything. Open
	// warns. On loopback addresses nothing needs to be set.
	Insecure bool

	// Leases makes reads with Lease possible. Each member then promises its leader to elect no other leader
	// for an election timeout. So a leader that dies is missed for that long at least. All members need the
	// same setting, at every start, and an ElectionTimeout not shorter than that of the member that has
	// founded the group.
	Leases bool

	// Zone is where this member is, for Placement.Zones: the name of a rack, a datacenter or a region, at most
	// 64 bytes. The others learn it. Default none.
	Zone string
	// Placement says which members should lead, by priority and by zone. A leader that works hands over to
	// a better member when its log is level, at most four times within an hour. Give all members the same;
	// Node.SetPlacement changes it. By default all members are equal, and a leader that works stays.
	Placement Placement

	// HeartbeatInterval is the time between a leader's heartbeats; default 100 ms, at least 1 ms.
	HeartbeatInterval time.Duration
	// ElectionTimeout is about how long a follower waits for a leader; the actual time is drawn up to twice
	// as long. Default ten heartbeat intervals, at least two, at most a day.
	ElectionTimeout time.Duration
	// StallTimeout is how long the disk or the state machine of a leader may complete nothing before it hands
	// over. Default two election timeouts, at least one, at most a day.
	StallTimeout time.Duration

	// Snapshots says when the node takes snapshots by itself. The zero value is good: after each 64 MiB of
	// log, or four times the last snapshot if that is more.
	Snapshots SnapshotPolicy
	// SnapshotBytesPerSecond bounds what the host sends of snapshots to members that are behind; default 64
	// MiB.
	SnapshotBytesPerSecond int64
	// ObjectBytesPerSecond bounds what the host sends of large objects (Machine.Objects); default 1 GiB, at
	// least 64 KiB. It does not slow down commands, which have connections of their own.
	ObjectBytesPerSecond int64

	// AdminSocket makes a Unix socket, Dir/admin.sock, at which millrace snapshot save makes backups, and
	// millrace members changes the members, while the node runs (package host/admin). Only the owner of Dir can
	// connect. Default: there is none.
	AdminSocket bool
	// SingleEntries makes each command an entry of its own. By default commands that come together share an
	// entry of the log, which costs less processor time: a command is at an index and a place (Receipt.Pos).
	// That begins when all members are of a version that reads such entries, and none has SingleEntries.
	// From then on no member of an earlier version can follow.
	SingleEntries bool
	// FlightRecorder makes the host keep the latest inputs of its group, for a replay after an incident
	// (docs/operate/flight-recorder.md). Default: it keeps none.
	FlightRecorder host.FlightRecorder
	// StageTimes makes the node measure how long commands and reads take, for GroupMetrics.Times. Default: it
	// measures nothing.
	StageTimes bool

	// Logger gets the log lines of the host; default slog.Default(). It may be slow or hang: a goroutine of its
	// own writes to it, and drops lines that it cannot take (HostMetrics.LogLinesDropped).
	Logger *slog.Logger
	// OnEvent is called with each Event of the host, one at a time and in order, by a goroutine of its own. It
	// must not close the node. Node.Events reads the same, from its call onwards. Default: none.
	OnEvent func(Event)

	// MemoryBytes is about the most memory that the host uses for what is under way; all bounds follow from
	// it. Default 256 MiB, at least 64 KiB. The state machine is not counted.
	MemoryBytes int64
	// MaxCommandBytes bounds one encoded command. Default 8 MiB, or what MemoryBytes allows if that is less.
	MaxCommandBytes int
	// MaxLagBytes bounds what the state machine has still to apply while this node leads: the bytes of commands
	// in the log, and 64 more for each. While it is more, commands wait for space, and then get ErrOverloaded.
	// Default MemoryBytes; less than 0: there is no bound.
	MaxLagBytes int64
	// PublicationBytes bounds the publications that this node keeps for subscribers (Node.Subscribe), in memory
	// and in each snapshot, with 48 bytes for each. Default 16 MiB, at most 1 GiB. The oldest are forgotten.
	// They do not count against MemoryBytes.
	PublicationBytes int64
}

// theGroup is the id of the group of a node that has a host of its own.
const theGroup = 1

// TLS says with which certificate a member proves its id, and which CAs it trusts.
//
//	CertFile string                            // its certificate, then the issuers, in PEM; at most 4
//	KeyFile  string                            // its private key in PEM, not encrypted
//	CAFile   string                            // all CAs that may name members, in PEM; at most 64
//	Source   func() (*cert.Credentials, error) // credentials that are in no files; called every few seconds
//	Now      func() time.Time                  // the time for validity; default time.Now
type TLS = host.TLS

// Validate reports the first setting that Open would refuse, in a sentence that says what to change. It
// assumes TCP; WithTransport takes any addresses. It looks at no file; Open checks those of TLS.
func (c Config) Validate() error { return c.validate(true) }

func (c Config) validate(tcp bool) error {
	switch {
	case c.ID == 0:
		return errors.New("millrace: Config.ID is 0; give each member a different id, starting at 1")
	case c.Dir == "":
		return errors.New("millrace: Config.Dir is empty; each host needs a directory of its own")
	case len(c.Members) == 0:
		return errors.New("millrace: Config.Members is empty; list the addresses of all members, this one's included")
	}
	if _, err := c.cluster(); err != nil {
		return err
	}
	if _, ok := c.Members[c.ID]; !ok {
		return fmt.Errorf("millrace: Config.Members has no entry for this host, id %d; it has %v", c.ID, c.ids())
	}
	for _, id := range slices.Sorted(maps.Keys(c.ClientAddrs)) {
		if _, ok := c.Members[id]; !ok {
			return fmt.Errorf("millrace: Config.ClientAddrs has an entry for %d, which Config.Members does not have; it has %v", id, c.ids())
		}
	}
	if c.PublicationBytes < 0 || c.PublicationBytes > host.MaxPublicationBytes {
		return fmt.Errorf("millrace: Config.PublicationBytes is %d, want 1 to %d, or 0 for the default", c.PublicationBytes, host.MaxPublicationBytes)
	}
	if c.MaxCommandBytes < 0 {
		return fmt.Errorf("millrace: Config.MaxCommandBytes is %d, want at least 1, or 0 for the default", c.MaxCommandBytes)
	}
	if c.TLS != nil && c.Insecure {
		return errors.New("millrace: Config.TLS and Config.Insecure are both set; Insecure is for connections without TLS, so leave it out")
	}
	if tcp {
		if err := c.validateAddresses(); err != nil {
			return err
		}
	}
	if err := c.host().Validate(); err != nil {
		return err
	}
	return c.group().Validate(c.host())
}

func (c Config) ids() []uint64 { return slices.Sorted(maps.Keys(c.Members)) }

// validateAddresses reports addresses that TCP cannot use, or that need Insecure.
func (c Config) validateAddresses() error {
	owner := map[string]uint64{}
	for _, id := range c.ids() {
		addr := c.Members[id]
		name, port, err := splitAddr(addr)
		endpoint := net.JoinHostPort(strings.ToLower(name), strconv.Itoa(port))
		other, taken := owner[endpoint]
		switch {
		case err != nil:
			return fmt.Errorf("millrace: Config.Members gives %d the address %.80q: %w", id, addr, err)
		case len(c.Members) > 1 && (name == "" || isUnspecified(name)):
			return fmt.Errorf("millrace: Config.Members gives %d the address %q, which other hosts cannot dial; name a host there, and the address to listen on in Config.Listen", id, addr)
		case len(c.Members) > 1 && port == 0:
			return fmt.Errorf("millrace: Config.Members gives %d the address %q, and other hosts cannot dial port 0; name the port on which it listens", id, addr)
		case taken:
			return fmt.Errorf("millrace: Config.Members gives %d and %d the same address %q; each member needs its own", other, id, addr)
		case !c.mayLeave() && !isLoopback(name):
			return fmt.Errorf("millrace: Config.Members gives %d the address %q, which is not a loopback address; without Config.TLS connections are not encrypted or authenticated; set Config.TLS (millrace cert makes certificates), or set Config.Insecure if every program that reaches the port may read and write the data", id, addr)
		}
		owner[endpoint] = id
	}
	listen := cmp.Or(c.listen(), c.Members[c.ID])
	switch name, _, err := splitAddr(listen); {
	case err != nil:
		return fmt.Errorf("millrace: Config.Listen is %.80q: %w", listen, err)
	case !c.mayLeave() && !isLoopback(name):
		return fmt.Errorf("millrace: Config.Listen is %q, which is not a loopback address; without Config.TLS connections are not encrypted or authenticated; set Config.TLS (millrace cert makes certificates), or set Config.Insecure if every program that reaches the port may read and write the data", listen)
	}
	return nil
}

// mayLeave reports whether addresses may be those of other machines.
func (c Config) mayLeave() bool { return c.Insecure || c.TLS != nil }

// listen returns Listen for the host, where "" is its address in Members: a Listen without a host is on
// loopback if all members are.
func (c Config) listen() string {
	name, port, err := net.SplitHostPort(c.Listen)
	if err != nil || name != "" || c.Insecure {
		return c.Listen
	}
	for _, addr := range c.Members {
		if name, _, err := net.SplitHostPort(addr); err != nil || !isLoopback(name) {
			return c.Listen
		}
	}
	return net.JoinHostPort("127.0.0.1", port)
}

func splitAddr(addr string) (name string, port int, err error) {
	name, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, fmt.Errorf("want host:port: %w", err)
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return "", 0, errors.New("want host:port, where port is a number from 0 to 65535")
	}
	return name, int(n), nil
}

// isLoopback reports whether an address surely stays on this machine. Names are not looked up.
func isLoopback(name string) bool {
	ip, err := netip.ParseAddr(name)
	return strings.EqualFold(name, "localhost") || err == nil && ip.Unmap().IsLoopback()
}

func isUnspecified(name string) bool {
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.IsUnspecified()
}

// host returns the configuration of the node's host.
func (c Config) host() host.Config {
	cluster, _ := c.cluster() // Validate has looked at it
	return host.Config{
		ID:                c.ID,
		Dir:               c.Dir,
		Cluster:           cluster,
		Members:           c.Members,
		Joins:             c.Joins,
		JoinTokens:        c.joinTokens(),
		ClientAddrs:       c.ClientAddrs,
		Listen:            c.listen(),
		Resolve:           c.Resolve,
		TLS:               c.TLS,
		Zone:              c.Zone,
		HeartbeatInterval: c.HeartbeatInterval,
		ElectionTimeout:   c.ElectionTimeout,
		StallTimeout:      c.StallTimeout,
		MemoryBytes:       c.MemoryBytes,

		SnapshotBytesPerSecond: c.SnapshotBytesPerSecond,
		ObjectBytesPerSecond:   c.ObjectBytesPerSecond,
		AdminSocket:            c.AdminSocket,
		SingleEntries:          c.SingleEntries,
		FlightRecorder:         c.FlightRecorder,
		StageTimes:             c.StageTimes,
	}
}

func (c Config) cluster() (uint64, error) {
	if c.Cluster == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(c.Cluster, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("millrace: Config.Cluster is %.40q, want the number that Node.Cluster returns on a member, such as 17684268089083619882", c.Cluster)
	}
	return n, nil
}

func (c Config) joinTokens() []string {
	if c.JoinToken == "" {
		return nil
	}
	return []string{c.JoinToken}
}

// options returns what package host takes as options.
func (c Config) options() (o []host.Option) {
	if c.Logger != nil {
		o = append(o, host.WithLogger(c.Logger))
	}
	if c.OnEvent != nil {
		o = append(o, host.WithEvents(c.OnEvent))
	}
	return o
}

// group returns the configuration of the node's group.
func (c Config) group() GroupConfig {
	return GroupConfig{ID: theGroup, MaxCommandBytes: c.MaxCommandBytes, MaxLagBytes: c.MaxLagBytes, PublicationBytes: c.PublicationBytes, Joins: c.Joins, Leases: c.Leases, Placement: c.Placement, Snapshots: c.Snapshots}
}

// Option gives a node a world of a test: another network, filesystem, log or clock. What a program sets is in
// Config and Machine.
type Option func(*options)

type options struct {
	host      []host.Option
	transport host.Transport // nil: TCP
}

// WithTransport replaces TCP. The transport must know the addresses of the members already; it may be
// encrypted, so Insecure is not asked for. The node closes it, even when Open fails.
func WithTransport(t host.Transport) Option {
	return func(o *options) {
		o.transport = t
		o.host = append(o.host, host.WithTransport(t))
	}
}

// WithHostOptions passes options of package host on: a filesystem, a log, a clock.
func WithHostOptions(h ...host.Option) Option {
	return func(o *options) { o.host = append(o.host, h...) }
}
