// Package pipeline holds the three ways to carry a proposal from the core to the disk, the peers and the
// state machine.
//
// They are three schedules of the same few steps, one file each, to be read side by side:
//
//	basic     P1   save ─► send ─► apply ─► acknowledge                       everything in line
//	parallel  P2   acknowledge ─► send appends ─► save ─► send the rest ─► apply
//	async     P3   acknowledge ─► send ─► hand to the append worker ─► hand to the apply worker
//
// In P1 a proposal passes the leader's disk, then the network and the followers' disks, one after the other
// (thesis figure 10.1). In P2 the leader's disk works while its appends travel (thesis §10.2.1), and clients
// are answered at commit. In P3 the consensus loop waits for no disk and no state machine. While one write
// is being synced the next is gathered, which makes batches (thesis §10.2.2).
//
// All three answer a client only after a quorum holds its command durably. P1 answers after the leader has
// applied it, P2 and P3 as soon as it is committed.
//
// A disk that fails stops the group in all three. A full disk stops it for good in P1 and P2, whose Save
// returns the log's error; restart the host when there is space. In P3 the append worker keeps the refused
// writes and tries again.
//
// P1 and P2 install no snapshots: a member that needs one stays behind. So keep as much log as a member may
// lag (host.SnapshotPolicy), and use a safe mode. After a power cut in an unsafe one, or a repair of its
// log, a host may have a snapshot in place of entries that another member lacks.
package pipeline

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Pipeline decides how each Ready is carried out. It has no state: one value serves any number of groups.
type Pipeline interface {
	// Name is its name in flags and reports.
	Name() string
	// AsyncStorageWrites is the mode of the core that Handle expects.
	AsyncStorageWrites() bool
	// Handle carries out one Ready. An error is final for the group.
	Handle(rd raft.Ready, s Steps) error
}

// Steps are the steps of a schedule. The runtime implements them. All calls come from one goroutine.
type Steps interface {
	// Save makes entries and hard state durable before it returns, if sync is set.
	Save(hs raftpb.HardState, entries []raftpb.Entry, sync bool) error
	// Send passes messages to the transport and returns at once. The transport may lose them.
	Send(messages []raftpb.Message)
	// Acknowledge answers the clients of these committed entries.
	Acknowledge(committed []raftpb.Entry)
	// AcknowledgeEarly also answers the clients of a leader's own commands that are committed but not handed
	// out yet because its own disk is behind the quorum's.
	AcknowledgeEarly(committed []raftpb.Entry)
	// Apply passes committed entries to the state machine and returns when it has applied them.
	Apply(committed []raftpb.Entry) error
	// Advance tells the core that a synchronous Ready is done.
	Advance(rd raft.Ready)
	// QueueAppend and QueueApply queue work for the append worker and the apply worker, which answer by
	// themselves.
	QueueAppend(m raftpb.Message)
	QueueApply(m raftpb.Message)
}

// All lists the pipelines, the simplest first.
var All = []Pipeline{Basic{}, Parallel{}, Async{}}

// ByName returns the pipeline of a name.
func ByName(name string) (Pipeline, error) {
	names := make([]string, len(All))
	for i, p := range All {
		if p.Name() == name {
			return p, nil
		}
		names[i] = p.Name()
	}
	return nil, fmt.Errorf("unknown pipeline %q; choose one of %s", name, strings.Join(names, ", "))
}
