package raft

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"testing"

	"github.com/millrace/millrace/raft/raftpb"
)

// FuzzStep lets peers, members or not, send anything that the types allow, while the node's own workers do
// their work correctly, one step at a time and in either mode. Whatever the peers send, the node does not
// panic, its cursors keep their order, committed entries stay, and refused input changes neither log nor
// vote. Run it with -fuzzminimizetime 20x: interesting inputs are long, and minimizing them would take most
// of the time.
func FuzzStep(f *testing.F) {
	f.Add([]byte{0})
	for seed := range byte(8) { // a few that get somewhere: campaign, win, propose, receive answers; then noise
		script := slices.Clone(elected)
		script[0] = seed
		for i := range byte(200) {
			script = append(script, i*seed*31+i*i*7+seed)
		}
		f.Add(script)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) <= 2000 {
			besiege(t, script)
		}
	})
}

// The same with noise, so that every run of the tests tries a few hundred new inputs of some length. In every
// second input the first bytes win an election: noise alone seldom does.
func TestStepNoise(t *testing.T) {
	chance := rand.New(rand.NewPCG(rand.Uint64(), 0))
	for range 300 {
		var script []byte
		if chance.IntN(2) == 0 {
			script = slices.Clone(elected)
		}
		for range 1500 {
			script = append(script, byte(chance.Uint32()))
		}
		if len(script) > 0 {
			script[0] = byte(chance.Uint32())
		}
		t.Run("", func(t *testing.T) {
			defer func() {
				if p := recover(); p != nil || t.Failed() {
					t.Errorf("%v\nscript: %#v\n%s", p, script, debug.Stack())
				}
			}()
			besiege(t, script)
		})
	}
}

func besiege(t *testing.T, script []byte) {
	b := besieged{script: script}
	b.start(t)
	for len(b.script) > 0 {
		b.step(t)
		b.check(t)
	}
}

// elected is a script that campaigns, wins the pre-vote if there is one, wins, proposes and commits. Its
// first byte chooses the mode.
var elected = []byte{0, opCampaign, opReady, opAppend, opAnswer, opAnswer,
	opMessage, byte(raftpb.MsgPreVoteResp), 0, 5, 4, 4, 4, 4, 0, opReady, opAppend, opAnswer, opAnswer,
	opMessage, byte(raftpb.MsgVoteResp), 0, 4, 4, 4, 4, 4, 0, opPropose, 3, opReady, opAppend, opAnswer, opAnswer,
	opMessage, byte(raftpb.MsgAppResp), 0, 4, 4, 4, 4, 4, 0, opReady, opApply, opAnswer}

const (
	opMessage = iota
	opReady
	opAppend
	opAnswer
	opApply
	opTick
	opCampaign
	opPropose
	opTransfer
	opForget
	opRead
	opChange
	opReport
	opCompact
	ops
)

// besieged is a node whose peers send anything.
type besieged struct {
	script []byte
	node   *RawNode
	disk   *MemoryStorage

	appends, applies, answers []raftpb.Message
	taken                     *Ready

	term, committed uint64
	kept            map[uint64]raftpb.EntryID // what was committed
	applied         uint64                    // by the state machine
}

// next reads one number of the script. After its end it reads zeros.
func (b *besieged) next() uint64 {
	if len(b.script) == 0 {
		return 0
	}
	n := b.script[0]
	b.script = b.script[1:]
	return uint64(n)
}

func (b *besieged) start(t *testing.T) {
	flags := b.next()
	b.kept = map[uint64]raftpb.EntryID{}
	b.disk = NewMemoryStorage()
	b.disk.SetConfState(raftpb.ConfState{Voters: []uint64{1, 2, 3}, Learners: []uint64{4}})
	save(t, b.disk, raftpb.HardState{Term: 2, Vote: 1, Commit: 1}, logOfTerms(1, 1, 2))
	b.node = newTestNodeOn(t, 1, b.disk, func(c *Config) {
		c.AsyncStorageWrites = flags&1 == 0
		c.PreVote, c.CheckQuorum = flags&2 != 0, flags&4 != 0
		c.CheckAppends = flags&4 != 0 && flags&16 != 0
		c.ApplyUnstable, c.ApplyRanges = c.AsyncStorageWrites && flags&32 != 0, c.AsyncStorageWrites && flags&64 != 0
		if flags&12 == 12 {
			c.ReadOnlyOption = ReadOnlyLeaseBased
			if flags&128 != 0 {
				c.ReadOnlyOption = ReadOnlyPromises
			}
		}
		c.MaxInflightMsgs, c.MaxSizePerMsg = 2, 10
		c.MaxUncommittedEntriesSize = 8
		c.MaxCommittedSizePerReady = 12
		c.ElectionTick = 3
	})
}

func (b *besieged) step(t *testing.T) {
	switch b.next() % ops {
	case opMessage:
		b.hear(t, b.message())
	case opReady:
		b.ready()
	case opAppend:
		b.work(t)
	case opAnswer:
		if len(b.answers) > 0 {
			m := b.answers[0]
			b.answers = b.answers[1:]
			if err := b.node.Step(m); err != nil {
				t.Fatalf("refuses its own worker's %s: %v", describe(m), err)
			}
		}
	case opApply:
		b.apply()
	case opTick:
		b.node.Tick()
	case opCampaign:
		if err := b.node.Campaign(); err != nil && !errors.Is(err, ErrPromised) {
			t.Fatal(err)
		}
	case opTransfer:
		_ = b.node.TransferLeader(b.next() % 6)
	case opForget:
		_ = b.node.ForgetLeader()
	case opRead:
		_ = b.node.ReadIndex(make([]byte, b.next()%10))
	case opChange:
		_ = b.node.ProposeConfChange(b.change())
	case opReport:
		b.node.ReportSnapshot(b.next()%6, SnapshotStatus(1+b.next()%2))
	case opCompact:
		b.compact()
	case opPropose:
		_ = b.node.Propose(make([]byte, b.next()%10))
	}
}

// change returns a change that is usually valid.
func (b *besieged) change() raftpb.ConfChangeV2 {
	c := raftpb.ConfChangeV2{Transition: raftpb.ConfChangeTransition(b.next() % 4)}
	for range b.next() % 3 {
		c.Changes = append(c.Changes, raftpb.ConfChangeSingle{Type: raftpb.ConfChangeType(b.next() % 5), NodeID: b.next() % 6})
	}
	return c
}

// apply is the apply worker. It handles one message at a time.
func (b *besieged) apply() {
	if len(b.applies) == 0 {
		return
	}
	entries := b.applies[0].Entries
	if m := b.applies[0]; len(entries) == 0 {
		var err error
		if entries, err = b.disk.Entries(m.Index+1, m.Commit+1, noLimit); err != nil {
			panic(fmt.Sprintf("range (%d,%d] is not in storage: %v", m.Index, m.Commit, err))
		}
	}
	b.applyEntries(entries)
	b.answers = append(b.answers, b.applies[0].Responses...)
	b.applies = b.applies[1:]
}

func (b *besieged) applyEntries(entries []raftpb.Entry) {
	for i := range entries {
		if c, err := readConfChange(&entries[i]); err == nil && entries[i].Type != raftpb.EntryNormal {
			b.node.ApplyConfChange(c)
		}
		b.applied = entries[i].Index
	}
}

// compact makes a snapshot and drops the log behind it. An entry that lying peers had committed as a
// membership change may not be one.
func (b *besieged) compact() {
	conf := b.node.raft.conf.ConfState()
	if _, err := b.disk.CreateSnapshot(min(b.applied, b.node.raft.log.applied), &conf, nil); err == nil {
		_ = b.disk.Compact(b.disk.snapshot.Metadata.Index)
	}
}

// message returns any message that a peer's codec could produce, valid or far from it.
func (b *besieged) message() raftpb.Message {
	m := raftpb.Message{
		Type:       raftpb.MessageType(b.next() % 26),
		From:       b.sender(),
		To:         1,
		Term:       b.near(b.node.raft.term),
		LogTerm:    b.near(b.node.raft.term),
		Index:      b.near(b.node.raft.log.lastIndex()),
		Commit:     b.near(b.node.raft.log.committed),
		RejectHint: b.near(b.node.raft.log.committed),
	}
	flags := b.next()
	m.Reject = flags&1 != 0
	if flags&2 != 0 {
		m.Context = make([]byte, b.next()%10)
		if len(m.Context) > 0 {
			m.Context[0] = byte(b.next() % 4) // of 8 bytes, a read position
		}
	}
	if flags&4 != 0 {
		m.Snapshot = &raftpb.Snapshot{Metadata: raftpb.SnapshotMetadata{Index: m.Index, Term: m.LogTerm}}
		if flags&8 != 0 {
			m.Term = b.node.raft.term
			m.Snapshot.Metadata.Term = m.Term
			m.Snapshot.Metadata.ConfState = raftpb.ConfState{Voters: []uint64{1, 2, 3 + b.next()%3}}
		}
	}
	if (m.Type == raftpb.MsgProp || m.Type == raftpb.MsgReadIndex) && flags&8 != 0 {
		m.Term = 0
	}
	if m.Type == raftpb.MsgApp && flags&8 != 0 {
		b.fit(&m)
	}
	for i := range flags >> 5 {
		e := raftpb.Entry{Term: m.LogTerm + flags&1, Index: m.Index + 1 + i}
		if flags&16 != 0 {
			e.Term, e.Index = b.near(m.Term), b.near(e.Index)
			if e.Type = raftpb.EntryType(b.next() % 4); e.Type != raftpb.EntryNormal {
				_, e.Data, _ = raftpb.MarshalConfChange(b.change())
			}
		}
		m.Entries = append(m.Entries, e)
	}
	return m
}

// fit makes an append follow an entry that the node has, in a term that the node accepts.
func (b *besieged) fit(m *raftpb.Message) {
	r := b.node.raft
	first := r.log.firstIndex() - 1
	m.Index = first + b.next()%(r.log.lastIndex()-first+1)
	m.Term = r.term + b.next()%2
	m.LogTerm, _ = r.log.term(m.Index)
}

func (b *besieged) sender() uint64 {
	ids := []uint64{2, 3, 2, 3, 1, 4, 9, None, math.MaxUint64 - 2}
	return ids[b.next()%uint64(len(ids))]
}

// near returns a number around n, or a distant one.
func (b *besieged) near(n uint64) uint64 {
	switch d := b.next() % 16; d {
	case 15:
		return math.MaxUint64
	case 14:
		return math.MaxUint64 >> 1
	case 13:
		return 0
	case 12:
		return b.next()
	default:
		return n + d%9 - 4
	}
}

func (b *besieged) hear(t *testing.T, m raftpb.Message) {
	before, log := b.node.BasicStatus(), allEntries(b.node)
	err := b.node.Step(m)
	var refused *PeerError
	switch {
	case err == nil, errors.Is(err, ErrProposalDropped):
		return
	case errors.As(err, &refused), errors.Is(err, ErrTransferRefused), errors.Is(err, ErrConfChangeRefused), errors.Is(err, ErrStepLocalMsg), errors.Is(err, ErrStepPeerNotFound):
		after := b.node.BasicStatus()
		voted := after.Term == before.Term && after.Vote != before.Vote
		if voted || after.Commit != before.Commit || !slices.EqualFunc(log, allEntries(b.node), sameEntry) {
			t.Fatalf("%s is refused (%v) and yet changes %+v to %+v", describe(m), err, before, after)
		}
	default:
		t.Fatalf("%s: %v", describe(m), err)
	}
}

func (b *besieged) ready() {
	if b.taken != nil || !b.node.HasReady() {
		return
	}
	rd := b.node.Ready()
	if !b.node.async {
		b.taken = &rd
		return
	}
	for _, m := range rd.Messages {
		switch m.To {
		case LocalAppendThread:
			b.appends = append(b.appends, m)
		case LocalApplyThread:
			b.applies = append(b.applies, m)
		}
	}
}

func (b *besieged) work(t *testing.T) {
	if b.taken != nil {
		rd := b.taken
		b.taken = nil
		if !IsEmptySnap(rd.Snapshot) {
			b.install(t, rd.Snapshot)
		}
		save(t, b.disk, rd.HardState, rd.Entries)
		b.applyEntries(rd.CommittedEntries)
		b.node.Advance(*rd)
	}
	if len(b.appends) > 0 {
		m := b.appends[0]
		b.appends = b.appends[1:]
		if m.Snapshot != nil {
			for len(b.applies) > 0 {
				b.apply()
			}
			b.install(t, *m.Snapshot)
			m.Snapshot = nil
		}
		write(b.disk, m)
		for _, r := range m.Responses {
			if r.To == 1 {
				b.answers = append(b.answers, r)
			}
		}
	}
}

func (b *besieged) install(t *testing.T, s raftpb.Snapshot) {
	must(t, b.disk.ApplySnapshot(s))
	b.applied = s.Metadata.Index
}

func (b *besieged) check(t *testing.T) {
	if err := b.node.Err(); err != nil {
		t.Fatalf("the disk is honest, but: %v", err)
	}
	st := b.node.BasicStatus()
	if st.Term < b.term || st.Commit < b.committed {
		t.Fatalf("term %d after %d, committed %d after %d", st.Term, b.term, st.Commit, b.committed)
	}
	b.term, b.committed = st.Term, st.Commit
	for _, e := range allEntries(b.node) {
		if e.Index > st.Commit {
			break
		}
		if _, known := b.kept[e.Index]; !known {
			b.kept[e.Index] = e.ID()
		}
		if b.kept[e.Index] != e.ID() {
			t.Fatalf("committed entry %v became %v", b.kept[e.Index], e.ID())
		}
	}
	b.node.raft.checkCursors()
	if l := b.node.raft.leader; l != nil {
		for i := range l.members {
			if p := &l.members[i].Progress; p.Match >= p.Next || p.Next > st.LastIndex+1 {
				t.Fatalf("peer %d: match %d < next %d <= last+1 %d", l.members[i].ID, p.Match, p.Next, st.LastIndex+1)
			}
		}
	}
	for _, m := range slices.Concat(b.node.raft.out.now.waiting, b.node.raft.out.afterAppend.waiting) {
		if m.To == None || IsLocalMsgTarget(m.To) {
			t.Fatalf("has a message to no node: %s", describe(m))
		}
	}
}
