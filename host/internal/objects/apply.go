package objects

import (
	"fmt"
	"slices"
	"time"

	"github.com/millrace/millrace/object"
)

// What an entry of the log means for the objects. The apply lane calls this, entry by entry: first Advance
// with the stamp of the entry, if it has one, then FirstLacking, where the entry must wait, and then
// Change. The machine has everything before whatever changes the table, so that its Keep and Release come
// in the order of the log.

// Advance moves the log time of the objects.
func (k *Keeper) Advance(index uint64, now time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.end(k.table.Advance(index, now))
}

// FirstLacking returns the first of some sets that a command names and this member does not have. If it must
// not name one of them it is refused, and waits for none.
func (k *Keeper) FirstLacking(names []object.ID) (id object.ID, lacks bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range names {
		set, err := k.table.Name(name)
		if err != nil {
			return object.ID{}, false
		}
		if !lacks && !k.isHere(&set) {
			id, lacks = name, true
		}
	}
	if lacks {
		k.waitsFor = id
	}
	return id, lacks
}

// Change changes the table as an entry says, or returns why the entry is refused.
func (k *Keeper) Change(index uint64, c *object.Command) (err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case c.Opening != nil:
		if err = k.table.Open(index, *c.Opening); err == nil {
			s, _ := k.table.Get(c.Opening.ID)
			k.record(s)
			k.wake()
		} else {
			k.refuseUpload(c.Opening, err)
		}
	case c.Holding != nil:
		if err = k.table.Hold(index, *c.Holding, func(all []object.Holder) bool { return k.isQuorum(index, all) }); err == nil {
			delete(k.unheld, c.Holding.ID)
			s, _ := k.table.Get(c.Holding.ID)
			if _, lacks := k.lacking[s.ID]; lacks {
				k.lacking[s.ID] = s
			}
			if u := k.uploads[s.ID]; u != nil {
				delete(k.uploads, s.ID)
				u.Finish(s, nil)
			}
		}
	default:
		for _, name := range c.Names {
			if _, err := k.table.Name(name); err != nil {
				return err
			}
		}
	}
	return err
}

// refuseUpload ends an upload of this host whose entry open is refused. The caller holds mu.
func (k *Keeper) refuseUpload(open *object.Opening, err error) {
	u := k.uploads[open.ID]
	if _, is := k.table.Get(open.ID); u == nil || is || open.Uploader != k.Self {
		return
	}
	delete(k.uploads, open.ID)
	u.Finish(object.Set{}, err)
	k.condemn = append(k.condemn, open.ID)
	k.remove()
}

// isQuorum reports whether holders are a quorum of the configuration in force at an entry, each with the
// directory that its member has there.
func (k *Keeper) isQuorum(index uint64, holders []object.Holder) bool {
	r := k.wiring.RosterAt(index)
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

// SetApplying says whether the machine is in Apply.
func (k *Keeper) SetApplying(is bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.applying = is
}

// Applied is called when more is applied.
func (k *Keeper) Applied() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.judge()
	if len(k.unheld)+len(k.lacking) > 0 {
		k.wake()
	}
}

// Keep makes a set stay until it is released, although its life passes. The machine calls it in Apply.
func (k *Keeper) Keep(id object.ID) error { return k.inApply(id, (*object.Table).Keep) }

// Release makes a set go when its life has passed once more, unless a command keeps it before that. The
// machine calls it in Apply.
func (k *Keeper) Release(id object.ID) error { return k.inApply(id, (*object.Table).Release) }

func (k *Keeper) inApply(id object.ID, f func(*object.Table, object.ID) error) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.applying {
		return fmt.Errorf("%w: %v is kept or released outside of Apply; what is kept must depend on the commands alone", object.ErrRefused, id)
	}
	return f(k.table, id)
}

// All returns the objects as this member has applied them, in the order of their opening. k may be nil.
func (k *Keeper) All() []object.Set {
	if k == nil {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	all := k.table.All()
	for i := range all {
		all[i].Holders = slices.Clone(all[i].Holders)
	}
	return all
}
