package host

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/millrace/millrace/host/flight"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/transport/cert"
	"github.com/millrace/millrace/wal"
)

// Config configures a host. Only ID, Dir and Members must be set; the defaults of the rest are safe. What
// concerns one group is in GroupConfig.
type Config struct {
	// ID is this host's id in Members, not 0. An id belongs to one directory forever: a host whose
	// directory is lost has forgotten its votes and must not come back under its old id. Peers that knew
	// the lost directory refuse it.
	ID uint64
	// Cluster distinguishes clusters, so that a wrong address does no harm: hosts of different clusters
	// refuse each other. By default it is derived from Members, ids and addresses, at the first start of
	// each host, and kept in Dir. Then the first starts of all hosts must be given exactly the same
	// Members. If hosts spell addresses differently, set Cluster to the same number on all hosts before
	// their first start; then only the ids are compared.
	Cluster uint64
	// Dir is this host's directory. It is made if missing; a second process on it is refused.
	Dir string
	// Members are the addresses (host:port) of the hosts of the cluster, including this one. At the first
	// start they are the founding list, which must be the same on every host, unless Joins is set. The list
	// counts until the log of this host has a term or an entry. Until then the others refuse this host if it
	// starts with another list, and hear it again when it has the first one. Later Members say where hosts
	// are: they may change, and hosts that they do not name are learned of by the rosters of the groups and
	// by SetPeer.
	Members map[uint64]string
	// Joins says that this host comes to a cluster that was founded without it. Cluster must be the number
	// of that cluster (Host.Cluster). Members must name this host and a host that can be reached. Joins is
	// looked at when the directory is new.
	Joins bool
	// JoinTokens are what Group.NewJoinToken has returned on a member, one for each group that this host will
	// join, at most 8. They set Joins, Cluster, and GroupConfig.Joins of these groups, and are looked at as
	// long as a group has not added this host. With them nothing needs to be done on a member.
	JoinTokens []string
	// ClientAddrs are the addresses at which hosts serve clients, in whatever form the program uses, for
	// instance a URL. They are optional, and only handed out: with a leader (Group.WaitLeader) and in a
	// NotLeaderError. The ids must be in Members. An address has at most 1,024 bytes. They may differ between
	// starts.
	ClientAddrs map[uint64]string
	// Listen is the address to listen on; default Members[ID]. Its host may be empty (every address of the
	// machine), and its port 0 (any port; Host.Addr tells which).
	Listen string
	// Resolve turns the address of another host into the one to connect to, at each attempt. It is for
	// clusters whose hosts are found by a registry and may all move at once. It must return when its
	// context ends, which is two seconds after the attempt has begun. Any goroutine calls it. Default:
	// addresses are taken as they are, and a name is looked up at each attempt.
	Resolve func(ctx context.Context, id uint64, addr string) (string, error)
	// TLS encrypts the connections between hosts, and makes each host prove its id. Set it on all hosts.
	// Without it, every program that reaches the port of a host can read and forge everything; Open warns if
	// an address is not a loopback address.
	TLS *TLS

	// HeartbeatInterval is the time between a leader's heartbeats; default 100 ms, at least 1 ms. It should
	// be the same on all members: Group.Explain names members that differ (settings.go).
	HeartbeatInterval time.Duration
	// ElectionTimeout is about how long a follower waits for a leader; the actual time is drawn up to twice
	// as long. It is rounded up to quarters of a heartbeat interval. It should be the same on all members:
	// a member whose timeout is shorter than its leader's heartbeat interval disturbs every leader. Default
	// ten intervals, at least two, at most a day.
	ElectionTimeout time.Duration

	// StallTimeout is how long a leader tolerates a disk or a state machine that makes no progress while
	// work is waiting. Then it transfers leadership to a member with a working disk, if a quorum has
	// working disks, or to a member that has applied more. Default two election timeouts, at least one.
	StallTimeout time.Duration

	// Zone is where this host is, for Placement.Zones: the name of a rack, a datacenter or a region, at
	// most 64 bytes. Other hosts learn it from this one. Default none. It may differ between starts.
	Zone string
	// Balance spreads leaders evenly. A host that leads at least two groups more than another transfers
	// leadership to it, among members that GroupConfig.Placement ranks equal. Set it on all hosts with many
	// groups. By default a leader that works stays: nothing but a failure, a caller or a Placement moves
	// it. Host.SetBalance changes it.
	Balance bool

	// Durability says when a write counts as durable; default wal.ModeGroup.
	Durability wal.Mode
	// SegmentBytes is the size of a segment of the log; default 64 MiB.
	SegmentBytes int64

	// SingleEntries makes each command an entry of its own, so that a member of a version without
	// raftpb.EntryBatch can follow. By default the commands of a turn are one entry, in the groups that lead
	// here. A command is then at an index and a place (Receipt.Pos), and a machine that keeps it keeps its
	// neighbours in memory. That begins when each member has said that it reads such entries. A host with
	// SingleEntries does not say so. So a rolling upgrade can be undone until the last host is upgraded, or
	// until the last one has SingleEntries no more. A command about large objects, or of 64 KiB and more,
	// stays alone.
	SingleEntries bool

	// MemoryBytes is about the most memory that this host uses for what is under way in all its groups,
	// with overhead. That is recent entries of the log, commands, and messages from and to peers. Default
	// 256 MiB, at least 64 KiB. Each use has its share (memory.go), and what does not fit is refused or
	// dropped, as the use demands. State machines are not counted.
	MemoryBytes int64
	// LogCacheBytes is the share of recent entries, if it is not 0. Less than 0 means that none are kept.
	// Default an eighth of MemoryBytes.
	LogCacheBytes int64
	// SnapshotBytesPerSecond bounds what this host sends of snapshots, over all groups and members; default
	// 64 MiB. A member that is far behind needs a whole snapshot and then the log that was written
	// meanwhile. So the bound must be more than what the host's groups write.
	SnapshotBytesPerSecond int64
	// ObjectBytesPerSecond bounds what this host sends of large objects, over all groups and members,
	// beside what it sends of snapshots; default 1 GiB. Objects go over connections of their own class, so
	// they delay no entry of the log, whatever this bound is. It leaves a part of the network and of the
	// disk to others.
	ObjectBytesPerSecond int64
	// MaxGroups bounds the groups that are open at a time; default 100,000.
	MaxGroups int
	// AdminSocket makes a Unix socket, Dir/admin.sock. There a program of the same user can ask for the
	// state of the groups, for snapshots, backups and changes of members. Package admin has the protocol;
	// millrace snapshot save and millrace members use it. Only the owner of Dir can connect. Its path may
	// have 103 bytes. Default: there is none.
	AdminSocket bool
	// FlightRecorder makes this host keep the latest inputs of its groups, for a replay after an incident
	// (docs/operate/flight-recorder.md). Default: it keeps none.
	FlightRecorder FlightRecorder
	// StageTimes makes each group measure how long commands and reads take: GroupMetrics.Times. It costs about
	// 2 KiB for each group, and a read of the clock for each read. Default: nothing is measured.
	StageTimes bool
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
	if len(addr) > identity.MaxAddrBytes {
		return "", 0, fmt.Errorf("it has %d bytes, want at most %d", len(addr), identity.MaxAddrBytes)
	}
	return host, uint16(n), nil
}

func has(m map[uint64]string, id uint64) bool { _, ok := m[id]; return ok }

const (
	// minHeartbeat keeps a tick, a quarter of it, longer than the usual lateness of a timer.
	minHeartbeat = time.Millisecond
	// maxElection keeps multiples of a timeout, and its ticks, far below overflow.
	maxElection = 24 * time.Hour
)

func sortedIDs(m map[uint64]string) []uint64 { return slices.Sorted(maps.Keys(m)) }

// directory returns what the configuration says about the host's directory. isBrought says that the log is
// not of package wal.
func (c Config) directory(isBrought bool) identity.Settings {
	return identity.Settings{
		Dir: c.Dir, Cluster: c.Cluster, ID: c.ID, Members: c.Members, Joins: c.Joins,
		InMemory: c.Durability.Kind == wal.KindMemory, Brought: isBrought,
	}
}

// FlightRecorder configures the flight recorder. The recorder keeps the latest inputs of each group's core
// in memory. With them millrace sim replay can explain afterwards, step by step, why a group did what it
// did. A file is written when a group stops by itself, and when it is asked for (Host.DumpFlight, millrace
// flight).
type FlightRecorder struct {
	// Bytes is about the most memory that the recordings of all groups take, beside Config.MemoryBytes: at
	// least 64 KiB. 0, the default, records nothing. With very many groups it may be 8 KiB for each group.
	Bytes int64
	// Data is what is recorded of users' commands. By default (flight.Lengths) that is only their lengths,
	// all that a replay needs. With flight.Hashes it adds a CRC-32C of each. By those, the recordings of
	// several members can be compared. flight.Payloads records the commands. What the core reads itself is
	// always recorded: ids of hosts, terms, indexes, changes of members.
	Data flight.Data
}

// TLS says with which certificate a host proves its id to other hosts, and which CAs it trusts. The files
// are PEM. They may be replaced while the host runs, one by one. The host looks at them every few seconds,
// and keeps what it has if the new ones are not valid. docs/operate/tls.md says what is checked, and how to
// replace them.
type TLS struct {
	// CertFile has the certificate that names this host's id (transport/cert says how; millrace cert makes
	// it), and then those between it and the CA, at most 4 together. It must allow clientAuth and serverAuth.
	CertFile string
	// KeyFile has the private key, not encrypted.
	KeyFile string
	// CAFile has the certificates of all CAs that may name members, at most 64. Two are enough while one
	// replaces the other.
	CAFile string

	// Source returns the credentials if they are not in files, which must not be named then. It is called in
	// Open, and then every few seconds on one goroutine.
	Source func() (*cert.Credentials, error)
	// Now is the time with which certificates are compared; default time.Now.
	Now func() time.Time
}
