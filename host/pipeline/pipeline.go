// Package pipeline holds the three ways to carry a proposal from the core to the disk, the peers and the state machine.
//
// They are three schedules of the same few steps, one file each, to be laid side by side:
//
//	basic     P1   save ─► send ─► apply ─► acknowledge                       everything in line
//	parallel  P2   acknowledge ─► send appends ─► save ─► send the rest ─► apply
//	async     P3   acknowledge ─► send ─► hand to the append worker ─► hand to the apply worker
//
// In P1 the leader's disk, then the network and the followers' disks are passed one after the other (thesis figure
// 10.1). In P2 the leader's disk works while its appends travel (thesis §10.2.1), and clients are answered at commit. In
// P3 the consensus loop waits for no disk and no state machine at all: while one write is being synced the next is
// gathered, which is what batches it (thesis §10.2.2).
//
// All three answer a client no sooner than a quorum holds its command durably. P1 answers after the leader has applied
// it, P2 and P3 as soon as it is committed.
//
// A disk that fails stops the group in all three. A full disk stops it for good in P1 and P2, whose Save returns the log's
// error; restart the host when there is room. In P3 the append worker keeps what was refused and tries again.
package pipeline

import (
	"fmt"
	"strings"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// Pipeline decides what becomes of each Ready. It keeps no state: one value serves any number of groups.
type Pipeline interface {
	// Name is what flags and reports call it.
	Name() string
	// AsyncStorageWrites is the mode of the core that Handle expects.
	AsyncStorageWrites() bool
	// Handle carries out one Ready. An error is final for the group.
	Handle(rd raft.Ready, s Steps) error
}

// Steps is what a schedule is made of. The runtime provides it; calls come from one goroutine.
type Steps interface {
	// Save makes entries and hard state durable before it returns, if sync is set.
	Save(hs raftpb.HardState, entries []raftpb.Entry, sync bool) error
	// Send hands messages to the transport and returns at once; it may lose them.
	Send(messages []raftpb.Message)
	// Acknowledge answers the clients whose commands these committed entries are.
	Acknowledge(committed []raftpb.Entry)
	// AcknowledgeEarly answers also those of a leader's own commands that are committed and not yet handed out, as its
	// own disk is behind the quorum's.
	AcknowledgeEarly(committed []raftpb.Entry)
	// Apply takes committed entries to the state machine and returns when it has them.
	Apply(committed []raftpb.Entry) error
	// Advance tells the core that a synchronous Ready is done.
	Advance(rd raft.Ready)
	// QueueAppend and QueueApply hand work to the append worker and to the apply worker, which answer by themselves.
	QueueAppend(m raftpb.Message)
	QueueApply(m raftpb.Message)
}

// All lists the pipelines, from the plainest on.
var All = []Pipeline{Basic{}, Parallel{}, Async{}}

// ByName finds a pipeline.
func ByName(name string) (Pipeline, error) {
	names := make([]string, len(All))
	for i, p := range All {
		if p.Name() == name {
			return p, nil
		}
		names[i] = p.Name()
	}
	return nil, fmt.Errorf("pipeline %q is not known; choose one of %s", name, strings.Join(names, ", "))
}
