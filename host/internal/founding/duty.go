package founding

import (
	"cmp"
	"fmt"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
	"github.com/millrace/millrace/transport"
)

// Settings say which member founds which group.
type Settings struct {
	Member
	Election int64 // its timeout, in ticks
}

// Wiring is the group as its founding sees it.
type Wiring interface {
	// EntryTerm returns the term of an entry of the log, also while the group is being opened.
	EntryTerm(index uint64) (term uint64, ok bool)
	Core() Core
	Now() (tick int64)
	// Joins reports whether this member, or its directory, is none of the founders.
	Joins() bool
	// IDs returns the founding list, in ascending order. Unmet has those that were not met, and AreReady
	// reports whether all were met and have met all others.
	IDs() []uint64
	Unmet() []uint64
	AreReady() bool
	// Incarnation returns the directory with which the host of a founder has come.
	Incarnation(id uint64) (i transport.Incarnation, known bool)
	// AskSilent asks the hosts of founders that are silent whether they are alive.
	AskSilent()
	Campaign()
	// Propose proposes an entry, and calls Append for it. The core may drop it.
	Propose(data []byte) (proposed bool)
	// RejectBinding says why this member does not count under a binding, or returns nil.
	RejectBinding(b entry.Binding) error
	Stop(err error)

	// Rebound learns that another binding is in force, or none. Founded learns that the founding has ended.
	// Announce learns later that this is news.
	Rebound()
	Founded()
	Announce()
}

// Core is what the founding asks the core of a group.
type Core interface {
	BasicStatus() raft.BasicStatus
	Status() raft.Status
}

// Log is the log of a group that is being opened.
type Log interface {
	FirstIndex() uint64
	LastIndex() uint64
	Entries(lo, hi, maxBytes uint64) ([]raftpb.Entry, error)
}

// page bounds one read of the log in search of founding entries.
const page = 64 << 10

// Read reads the founding entries from the log when a group is opened. They come before the first command, so
// little is read.
func (f *Group) Read(log Log) error {
	defer func() { f.knew = f.current(false) != nil }() // what the log has is no news
	for lo, last := log.FirstIndex(), log.LastIndex(); lo <= last; {
		entries, err := log.Entries(lo, last+1, page)
		if err != nil {
			return fmt.Errorf("millrace: read the founding of group %d: %w", f.settings.Group, err)
		}
		for i := range entries {
			switch e := &entries[i]; {
			case entry.RejectLater(e.Type, e.Data) != nil: // the group is not opened (Group.readMembers)
			case isFounding(e):
				if err := f.record(e, false); err != nil {
					return err
				}
			case e.Type == raftpb.EntryHost || len(e.Data) == 0:
			case !f.TakesCommands():
				return fmt.Errorf("millrace: group %d has a command at index %d of its log and no founding before it; the log was written by an older program, and there is no migration: found the group again with empty directories",
					f.settings.Group, e.Index)
			default:
				return nil
			}
		}
		lo += uint64(len(entries))
	}
	return nil
}

func isFounding(e *raftpb.Entry) bool {
	return e.Type == raftpb.EntryHost && !entry.IsMemberEntry(e.Type, e.Data)
}

// record records a founding entry of this host's log. An error means that this member must stop.
func (f *Group) record(e *raftpb.Entry, isOpen bool) error {
	b, err := entry.DecodeFounding(e.Data)
	if err != nil {
		return fmt.Errorf("%w (group %d, index %d)", err, f.settings.Group, e.Index)
	}
	noted := Entry{Index: e.Index, Term: e.Term, Bound: b}
	if b != nil {
		if isOpen {
			err = f.w.RejectBinding(b)
		}
		if err := cmp.Or(err, f.settings.RejectPromises(e.Data)); err != nil {
			return err
		}
		noted.Promise = entry.PromiseOf(e.Data)
	}
	f.add(noted)
	return nil
}

// Append notes the founding entries among those that are appended to this host's log.
func (f *Group) Append(entries []raftpb.Entry) {
	if f.founded {
		return
	}
	for i := range entries {
		if isFounding(&entries[i]) {
			if err := f.record(&entries[i], true); err != nil {
				f.w.Stop(err)
			}
		}
	}
	f.SetBound()
}

// Reject says why this member must not have entries, or returns nil: one is an entry found under which it
// does not count.
func (f *Group) Reject(entries []raftpb.Entry) error {
	for i := range entries {
		if e := &entries[i]; isFounding(e) {
			if b, err := entry.DecodeFounding(e.Data); err == nil && b != nil {
				if err := cmp.Or(f.w.RejectBinding(b), f.settings.RejectPromises(e.Data)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// RejectPromises says why this member cannot be one under an entry found.
func (f *Group) RejectPromises(found []byte) error { return f.settings.RejectPromises(found) }

// Step takes the next step of the founding, if this member leads or is the first to campaign. It must be
// called again until the group is founded.
func (f *Group) Step() (again bool) {
	if f.founded {
		return false
	}
	f.SetBound()
	if f.w.Joins() {
		return true
	}
	st := f.w.Core().BasicStatus()
	leads := st.RaftState == raft.StateLeader
	f.lead(leads, f.w.Now())
	switch {
	case leads:
		f.propose()
	case st.Lead == raft.None:
		f.campaignFirst()
		// A member that may not vote yet says nothing by itself. Without a question, a host would seem to
		// be down that waits, as this one does.
		f.w.AskSilent()
	}
	return true
}

// propose proposes the next entry. If the core drops it, for example during a transfer of the leadership, the
// next turn tries again.
func (f *Group) propose() {
	if f.TakesCommands() {
		return
	}
	found := f.Found()
	if found == nil {
		b, all := f.bind()
		if !all || !f.w.Propose(f.withPromise(entry.EncodeFound(b))) {
			return
		}
		if found = f.Found(); len(b) > 1 {
			return
		}
	}
	if len(f.w.IDs()) == 1 || len(f.missing(found)) == 0 {
		f.w.Propose(entry.EncodeFounded())
	}
}

// campaignFirst makes the member with the lowest id campaign in a new group as soon as all members can
// vote. It may have asked for votes before, of members that could not: without this it would wait for its
// timeout.
func (f *Group) campaignFirst() {
	if f.quick || f.settings.Self != f.w.IDs()[0] || !f.w.AreReady() || len(f.w.Unmet()) > 0 {
		return
	}
	f.quick = true
	f.w.Campaign()
}

// bind binds every member to the directory with which its host has come. all is false if one has not come.
func (f *Group) bind() (b entry.Binding, all bool) {
	for _, id := range f.w.IDs() {
		i, known := f.w.Incarnation(id)
		if !known {
			return nil, false
		}
		b = append(b, entry.BoundMember{ID: id, Incarnation: i})
	}
	return b, true
}

// withPromise makes an entry found say how long the members' promises last: as long as this member's.
func (f *Group) withPromise(found []byte) []byte {
	if !f.settings.Leases {
		return found
	}
	return entry.WithPromise(found, f.settings.Promise)
}
