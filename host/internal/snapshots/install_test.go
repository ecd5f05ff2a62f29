package snapshots

import (
	"errors"
	"slices"
	"testing"

	"github.com/millrace/millrace/host/event"
	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/transport"
)

// What an owner is as it receives.

func (o *scriptOwner) Bulk() bulk.Group                { return (*scriptMember)(o) }
func (o *scriptOwner) FirstIndex() uint64              { return 1 }
func (o *scriptOwner) Leader() uint64                  { return o.leader }
func (o *scriptOwner) Others() []uint64                { return []uint64{2, 3} }
func (o *scriptOwner) NeedsSnapshot(index uint64) bool { return index > o.committed }
func (o *scriptOwner) WantInstall()                    { o.wants++ }
func (o *scriptOwner) SkipsPast(*Published) bool       { return o.passes }
func (o *scriptOwner) Refused(error)                   { o.refused++ }

func (o *scriptOwner) RejectManifest(m *snapshot.Manifest) error {
	if m.Cluster != 3 {
		return errors.New("of another cluster")
	}
	return nil
}

// scriptMember is an owner as transfers see it.
type scriptMember scriptOwner

func (m *scriptMember) ID() uint64                               { return 7 }
func (m *scriptMember) Leads() bool                              { return true }
func (m *scriptMember) Content(hash [32]byte) bulk.SentContent   { return m.snapshots.Content(hash) }
func (m *scriptMember) SnapshotSent(uint64, raft.SnapshotStatus) {}

// scriptHost is the host of an owner, for transfers.
type scriptHost scriptOwner

func (h *scriptHost) Now() int64                 { return h.ticks }
func (h *scriptHost) Hasten()                    {}
func (h *scriptHost) Emit(e event.Event)         { h.events = append(h.events, e) }
func (h *scriptHost) Warn(text string, _ ...any) { h.warned = append(h.warned, text) }
func (h *scriptHost) Number() uint64             { return 1 }

func (h *scriptHost) Send(_ uint64, _ transport.Kind, body []byte) bool {
	h.sent = append(h.sent, body)
	return true
}

func (h *scriptHost) Work(_ bulk.Group, doing string, piece func() bool) (enqueue func()) {
	w := &Work{Seat: &h.snapshots.Seat, Doing: doing, Piece: piece}
	return func() { h.lanes.Enqueue(w) }
}

// ends returns how the transfers have ended that this host has told since the last time.
func (o *scriptOwner) ends(t *testing.T) (ends []bulk.Why) {
	t.Helper()
	for _, body := range o.sent {
		if body[0] != control.SnapshotEnd {
			continue
		}
		e, err := bulk.DecodeEnd(body)
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, e.Why)
	}
	o.sent = nil
	return ends
}

// scriptCore is a core that takes a snapshot, or does not.
type scriptCore struct {
	status  raft.BasicStatus
	has     uint64 // the term of the entry that it has there; 0: none
	err     error
	ignores bool
	steps   []raftpb.Message
}

func (c *scriptCore) BasicStatus() raft.BasicStatus   { return c.status }
func (c *scriptCore) EntryTerm(uint64) (uint64, bool) { return c.has, c.has > 0 }
func (c *scriptCore) Step(m raftpb.Message) error {
	c.steps = append(c.steps, m)
	if c.err == nil && !c.ignores {
		c.status.Commit = m.Snapshot.Metadata.Index
	}
	return c.err
}

func coreOf(lead, commit uint64) *scriptCore {
	c := &scriptCore{}
	c.status.Lead, c.status.Commit, c.status.Term = lead, commit, 4
	return c
}

// A snapshot that was received is stepped as the present leader's; one of no use is dropped.
func TestStepReceived(t *testing.T) {
	for _, c := range []struct {
		what         string
		core         *scriptCore
		set          func(*scriptOwner)
		steps        int
		waits, taken bool
		refused      int
	}{
		{what: "it is needed", core: coreOf(2, 5), steps: 1, taken: true},
		{what: "there is no leader", core: coreOf(raft.None, 5), waits: true},
		{what: "this member leads", core: coreOf(1, 5), waits: true},
		{what: "another one is being installed", core: coreOf(2, 5), set: func(o *scriptOwner) { o.snapshots.Installing.Store(true) }, waits: true},
		{what: "the log has caught up", core: coreOf(2, 20)},
		{what: "only the machine needs it", core: coreOf(2, 20), set: func(o *scriptOwner) { o.passes = true }},
		{what: "the core refuses it", core: &scriptCore{status: coreOf(2, 5).status, err: errors.New("no")}, steps: 1, taken: true, refused: 1},
		{what: "the core does not take it yet", core: &scriptCore{status: coreOf(2, 5).status, ignores: true}, steps: 1, taken: true, waits: true},
		{what: "the core has its last entry", core: &scriptCore{status: coreOf(2, 5).status, has: 1}, steps: 1, taken: true},
	} {
		o := newOwner(Policy{})
		p := NewPublished(snapshot.Manifest{Index: 20, Term: 1, Conf: raftpb.ConfState{Voters: []uint64{1, 2, 3}}}, 0)
		o.snapshots.Received.Store(p)
		if c.set != nil {
			c.set(o)
		}
		if waits := o.snapshots.StepReceived(c.core); waits != c.waits || len(c.core.steps) != c.steps || o.refused != c.refused {
			t.Errorf("%s: waits %t, %d steps, %d refused", c.what, waits, len(c.core.steps), o.refused)
		}
		if taken := o.snapshots.Installed.Load() == p; taken != c.taken {
			t.Errorf("%s: the core has got it: %t", c.what, taken)
		}
		for _, m := range c.core.steps {
			if m.Type != raftpb.MsgSnap || m.From != 2 || m.To != 1 || m.Term != 4 || m.Snapshot.Metadata.Index != 20 || !slices.Equal(m.Snapshot.Metadata.ConfState.Voters, []uint64{1, 2, 3}) {
				t.Errorf("%s: %+v", c.what, m)
			}
		}
	}
	if o := newOwner(Policy{}); o.snapshots.StepReceived(coreOf(2, 5)) {
		t.Error("nothing was received, and something waits")
	}
}

// Only a member that needs a snapshot takes an offer, and only from the leader that it knows.
func TestOffers(t *testing.T) {
	offer := bulk.Offer{Group: 7, Index: 20, Term: 1, FirstIndex: 15, ManifestBytes: 100, Hash: [32]byte{1}}
	for _, c := range []struct {
		what  string
		set   func(*scriptOwner)
		takes bool
		ends  []bulk.Why
	}{
		{what: "it is needed", set: func(*scriptOwner) {}, takes: true},
		{what: "another member leads", set: func(o *scriptOwner) { o.leader = 3 }},
		{what: "it is not needed", set: func(o *scriptOwner) { o.committed = 20 }, ends: []bulk.Why{bulk.Done}},
		{what: "the machine takes none", set: func(o *scriptOwner) { o.snapshots.Machine = nil }, ends: []bulk.Why{bulk.Refused}},
		{what: "the pipeline installs none", set: func(o *scriptOwner) { o.snapshots.Installs = false }, ends: []bulk.Why{bulk.Refused}},
		{what: "there is no slot", set: func(o *scriptOwner) { o.snapshots.Settings.Class = o.transfers.NewClass(1, 0, 1<<30, true) }, ends: []bulk.Why{bulk.Busy}},
	} {
		o := newOwner(Policy{})
		o.leader = 2
		c.set(o)
		o.snapshots.Offer(2, offer)
		o.run()
		if ends := o.ends(t); !slices.Equal(ends, c.ends) {
			t.Errorf("%s: ends %v, want %v", c.what, ends, c.ends)
		}
		if says := len(o.warned) > 0; says != slices.Contains(c.ends, bulk.Refused) {
			t.Errorf("%s: its log says %q, and the sender heard %v", c.what, o.warned, c.ends)
		}
		lines := len(o.warned)
		if o.snapshots.Offer(2, offer); len(o.warned) != lines {
			t.Errorf("%s: offered again at once, its log says %q", c.what, o.warned[lines:])
		}
		o.run()
		o.ends(t)
		o.transfers.Do(func() {
			if r, was := o.snapshots.Incoming(); (r != nil) != c.takes || c.takes && was != offer {
				t.Errorf("%s: it is received: %t, %+v", c.what, r != nil, was)
			}
		})
		o.snapshots.EndTransfer(&Published{ID: snapshot.ID{Index: 20}})
		if ends := o.ends(t); c.takes != slices.Equal(ends, []bulk.Why{bulk.Done}) {
			t.Errorf("%s: when the log has caught up: %v", c.what, ends)
		}
	}
}

// What is sent is the latest snapshot, and a manifest that is not what was offered is refused.
func TestContents(t *testing.T) {
	o := newOwner(Policy{})
	if c := o.snapshots.Content([32]byte{}); c != nil {
		t.Errorf("%v is sent of nothing", c)
	}
	o.snapshots.Applied(o.position.Index, 100)
	p := o.take().p
	c := o.snapshots.Content(p.Hash)
	if c == nil || !c.Renew() || c.Hash() != p.Hash || c.RejectGoingOn() != "" {
		t.Fatalf("%v", c)
	}
	release := c.Begins()
	if through := o.snapshots.Growth.Compactable(p.ID.Index, 0); through > p.ID.Index {
		t.Errorf("the log is compacted through %d", through)
	}
	o.snapshots.Growth.Add(bulk.MinPinnedLog + 1)
	if c.RejectGoingOn() == "" {
		t.Error("the log that is kept for it may grow for ever")
	}
	release()
	m := p.Manifest
	m.Conf.Voters = []uint64{1}
	in := o.snapshots.Offered(bulk.Offer{Group: 7, Index: m.Index, Term: m.Term})
	if err := in.RejectManifest(&m); err == nil {
		t.Error("a snapshot that tells no founding is received")
	}
	for what, spoil := range map[string]func(m *snapshot.Manifest){
		"another entry":    func(m *snapshot.Manifest) { m.Index++ },
		"no voters":        func(m *snapshot.Manifest) { m.Conf.Voters = nil },
		"another cluster":  func(m *snapshot.Manifest) { m.Cluster = 9 },
		"a block of noise": func(m *snapshot.Manifest) { m.Host = []byte("noise") },
	} {
		other := m
		if spoil(&other); in.RejectManifest(&other) == nil {
			t.Errorf("%s is received", what)
		}
	}
}
