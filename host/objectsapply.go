package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
)

// objectHook is the applyHook of a group with objects.
type objectHook struct {
	*groupObjects
	commands *commandGroup
}

// openObjects opens the objects of the group, and gives them to a machine that uses them.
func (s *commandGroup) openObjects(g *Group) error {
	o := &g.machine.objects
	if err := o.open(g, *s.options.Objects); err != nil {
		return err
	}
	g.machine.apply.hook, g.snapshots.Section = objectHook{o, s}, o
	g.config.NonBlocking = false // a command may have to wait for a set
	g.proposals.rejectForwarded = rejectOfLeader
	if m, ok := s.machine.(ObjectUser); ok {
		return callUser("UseObjects of the state machine", func() error { m.UseObjects(&Objects{o}); return nil }, nil)
	}
	return nil
}

// rejectOfLeader says that a command is one that only a leader proposes, or returns nil.
func rejectOfLeader(command []byte) error {
	if object.IsOfLeader(command) {
		return errors.New("a leader says by itself which members hold an object")
	}
	return nil
}

// before does what an entry of a group with objects needs before the table of sessions sees it: it moves the
// log time of the objects, and stops at an entry whose sets are not here. The machine has applied everything
// before whatever changes the table of objects, so that its Keep and Release come in the order of the log.
func (o objectHook) before(e *Entry, h *session.Header, data []byte) (c object.Command, wrong, err error) {
	c, wrong = object.DecodeCommand(data)
	if h.HasStamp || wrong != nil || c.IsOfHost() || len(c.Names) > 0 {
		if err := o.commands.flush(); err != nil {
			return c, nil, err
		}
	}
	if h.HasStamp {
		o.advance(e.Index, h.Stamp)
	}
	if wrong == nil && len(c.Names) > 0 {
		if _, lacks := o.firstLacking(c.Names); lacks {
			return c, nil, &parked{index: e.Index}
		}
	}
	return c, wrong, nil
}

// change does what a command says about objects. The machine does not get a command that names a set which it
// must not name, and is refused, nor those of the host, which end here.
func (o objectHook) change(e *Entry, h *session.Header, c *object.Command, wrong error) (toMachine bool) {
	s := o.commands
	if wrong == nil {
		wrong = o.groupObjects.change(e.Index, c)
	}
	switch {
	case wrong != nil:
		if h.HasMark {
			s.table.Refuse(h.Mark)
		}
		s.group.refuseApplied(e.Index, e.Term, h.Mark, wrong)
		return false
	case c.IsOfHost():
		if h.HasMark {
			s.table.Keep(nil)
		}
		s.group.endCalls(e.Index, e.Term, h.Mark)
		return false
	}
	return true
}

// refuseApplied tells the calls of this host that wait for an entry that it was refused when it was applied.
// A call that was told its commit is told again.
func (g *Group) refuseApplied(index, term uint64, m session.Mark, why error) {
	for _, c := range g.callsOf(index, term, m) {
		if c != nil && c.w.waits() {
			c.w.finish()
			g.tellFailed(c.Owner, fmt.Errorf("%w (entry %d)", why, index))
		}
	}
}

// endCalls ends the calls of this host that wait for an entry that no machine gets.
func (g *Group) endCalls(index, term uint64, m session.Mark) {
	for _, c := range g.callsOf(index, term, m) {
		if c != nil && c.w.finish() {
			g.tellCommitted(c.Owner, Receipt{Index: index, Term: term})
		}
	}
}

// advance moves the log time of the objects.
func (o *groupObjects) advance(index uint64, now time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.end(o.table.Advance(index, now))
}

// firstLacking returns the first of some sets that a command names and this member does not have. If it must
// not name one of them it is refused, and waits for none.
func (o *groupObjects) firstLacking(names []object.ID) (id object.ID, lacks bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range names {
		set, err := o.table.Name(name)
		if err != nil {
			return object.ID{}, false
		}
		if !lacks && !o.isHere(&set) {
			id, lacks = name, true
		}
	}
	if lacks {
		o.waitsFor = id
	}
	return id, lacks
}

// change changes the table as an entry says, or returns why the entry is refused.
func (o *groupObjects) change(index uint64, c *object.Command) (err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case c.Opening != nil:
		if err = o.table.Open(index, *c.Opening); err == nil {
			s, _ := o.table.Get(c.Opening.ID)
			o.note(s)
			o.wake()
		} else {
			o.refuseUpload(c.Opening, err)
		}
	case c.Holding != nil:
		if err = o.table.Hold(index, *c.Holding, func(all []object.Holder) bool { return o.isQuorum(index, all) }); err == nil {
			delete(o.unheld, c.Holding.ID)
			s, _ := o.table.Get(c.Holding.ID)
			if _, lacks := o.lacking[s.ID]; lacks {
				o.lacking[s.ID] = s
			}
			if u := o.uploads[s.ID]; u != nil {
				delete(o.uploads, s.ID)
				u.finish(s, nil)
			}
		}
	default:
		for _, name := range c.Names {
			if _, err := o.table.Name(name); err != nil {
				return err
			}
		}
	}
	return err
}

// refuseUpload ends an upload of this host whose entry open is refused. The caller holds mu.
func (o *groupObjects) refuseUpload(open *object.Opening, err error) {
	u := o.uploads[open.ID]
	if _, is := o.table.Get(open.ID); u == nil || is || open.Uploader != o.group.self {
		return
	}
	delete(o.uploads, open.ID)
	u.finish(object.Set{}, err)
	o.condemn = append(o.condemn, open.ID)
	o.group.host.bulk.snapshotLanes.Enqueue(&o.removes)
}

// isQuorum reports whether holders are a quorum of the configuration in force at an entry, each with the
// directory that its member has there.
func (o *groupObjects) isQuorum(index uint64, holders []object.Holder) bool {
	r := o.group.members.rosterAt(index)
	if r == nil {
		return r != nil
	}
	return r.Spare(func(id uint64) bool {
		m, ok := r.Member(id)
		for _, h := range holders {
			if h.ID == id {
				return ok && h.Incarnation == m.Incarnation
			}
		}
		return false
	}) >= 0
}

// calls says whether the machine is in Apply.
func (o *groupObjects) calls(is bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.applying = is
}

// applied is called when more is applied.
func (o *groupObjects) applied() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.judge()
	if len(o.unheld)+len(o.lacking) > 0 {
		o.wake()
	}
}

// Objects is how a state machine uses the objects of its group (ObjectUser). All methods are safe for
// concurrent use.
type Objects struct{ of *groupObjects }

// ObjectUser is a CommandMachine in a group with objects that keeps some of them. UseObjects is called once,
// by OpenGroup, before anything is applied or restored.
type ObjectUser interface{ UseObjects(*Objects) }

// Keep makes a set stay until it is released, although its life passes. It must be called in Apply, by the
// command that decides it: what is kept must depend on the commands alone. The error says why the set cannot
// be kept, and is the same on all members: there is none with this id, or no quorum holds it.
func (s *Objects) Keep(id object.ID) error { return s.inApply(id, (*object.Table).Keep) }

// Release makes a set go when its life has passed once more, unless a command keeps it before that. The rules
// are those of Keep.
func (s *Objects) Release(id object.ID) error { return s.inApply(id, (*object.Table).Release) }

func (s *Objects) inApply(id object.ID, f func(*object.Table, object.ID) error) error {
	o := s.of
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.applying {
		return fmt.Errorf("%w: %v is kept or released outside of Apply; what is kept must depend on the commands alone", object.ErrRefused, id)
	}
	return f(o.table, id)
}

// Open opens a set on this host's disk. Within Apply the sets that the command names are there. Elsewhere
// files.ErrNotHere means that this member does not have it (yet). Close the file: until then its bytes stay.
func (s *Objects) Open(id object.ID) (*files.File, error) { return s.of.files.OpenFile(id) }
