package host

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
)

// A group with large objects (CommandOptions.Objects, package object) has their bytes beside its log:
//
//	uploader    Group.StartUpload writes the bytes to its disk, then hands in the command open
//	apply lane  open: the set is in the table, and lacking here unless this member wrote it (objectsapply.go)
//	turn        fetches what is lacking (receivingobject.go); tells the leader what this member holds
//	leader      a quorum holds it: proposes the command hold (objectholders.go)
//	apply lane  hold: the set may be named; the upload is done
//	apply lane  a command that names sets: waits until they are here, then the machine gets it
//	apply lane  time passes: sets that no command keeps go; their files stay until the log behind that is gone
//
// Invariant: a member that has said that it holds a set has it in every later life, as long as the set or its
// end is in the member's log. For this it says so only when its log is durable through the entry open. What
// is on the disk and, when everything that the log had at the start is applied, in no table, is removed: no
// member counts on it.
//
// A lagging member may reach a command whose objects no member has any more: they expired, and the others
// compacted their logs. It then needs a snapshot, although its log is complete (passes).
type groupObjects struct {
	group   *Group
	on      bool // the group has objects
	options ObjectOptions
	files   *files.Store
	told    func(id object.ID, here bool) // by arrived and absent, in tests

	goes atomic.Uint64 // files of ended sets may be removed when the log begins here; 0: there are none
	work atomic.Bool   // the turn has something to do

	mu         sync.Mutex // never held while the disk works
	table      *object.Table
	applying   bool // the machine is in Apply
	lacking    map[object.ID]object.Set
	waitsFor   object.ID // the set for which the apply lane waits, or has waited last
	unheld     map[object.ID]object.Set
	ended      []object.Gone      // their files are here, by index
	orphans    map[object.ID]bool // were on the disk at the start, and are in no table yet
	judgeAt    uint64             // the orphans are judged when this entry is applied
	judgeLater bool               // judgeAt is not known: the log has lost something, and gets it back
	uploads    map[object.ID]*Upload
	removes    snapshots.Work
	stops      []object.ID // fetches that are of no use any more
	condemn    []object.ID // to be removed, and
	removed    object.ID   // the one whose files are being removed
	inUse      []object.ID // could not be removed: they are read or sent. They are condemned again later

	holders holders // owned by the turn
}

// ObjectOptions are those of a group with large objects.
type ObjectOptions struct {
	object.Options
	// ReserveBytes is the space on the disk that objects leave for the log and for snapshots; default 256
	// MiB. An upload is refused, and a fetch waits, that would take of it. Members may differ in it.
	ReserveBytes int64
}

const defaultObjectReserve = 256 << 20

// validate says what is wrong with options, in which 0 stands for a default, or returns nil.
func (o ObjectOptions) validate() error {
	if o.ReserveBytes < 0 {
		return fmt.Errorf("millrace: ObjectOptions.ReserveBytes is %d, want at least 0, which stands for the default", o.ReserveBytes)
	}
	return o.Options.Validate()
}

func objectsDir(hostDir string, group uint64) string {
	return filepath.Join(identity.GroupDir(hostDir, group), "objects")
}

// open prepares the objects of a group that is being opened. It reads the manifests of those on the disk.
func (o *groupObjects) open(g *Group, options ObjectOptions) (err error) {
	if err := options.validate(); err != nil {
		return fmt.Errorf("%w (CommandOptions.Objects of group %d)", err, g.id)
	}
	if !g.host.env.pipeline.AsyncStorageWrites() {
		return fmt.Errorf("millrace: group %d has objects (CommandOptions.Objects), and pipeline %s applies in its turns, which must not wait for them; use pipeline.Async", g.id, g.host.env.pipeline.Name())
	}
	if options.ReserveBytes == 0 {
		options.ReserveBytes = defaultObjectReserve
	}
	if o.files, err = files.Open(g.host.env.fs, objectsDir(g.host.config.Dir, g.id)); err != nil {
		return fmt.Errorf("millrace: the objects of group %d: %w", g.id, err)
	}
	o.group, o.on, o.options = g, true, options
	o.files.Damage = o.damaged
	o.table = object.New(options.Options)
	o.lacking, o.unheld = map[object.ID]object.Set{}, map[object.ID]object.Set{}
	o.uploads = map[object.ID]*Upload{}
	o.orphans, o.judgeAt = map[object.ID]bool{}, g.writes.storage.log.LastIndex()
	for _, id := range o.files.All() {
		o.orphans[id] = true
	}
	o.removes = snapshots.Work{Seat: &g.snapshots.Seat, Doing: "whose objects are removed", Piece: o.removePiece}
	return nil
}

// damaged is called when a set turns out to be damaged on this disk: it is fetched again.
func (o *groupObjects) damaged(id object.ID) {
	if !o.on {
		return
	}
	o.mu.Lock()
	if s, is := o.table.Get(id); is {
		o.note(s)
	}
	o.mu.Unlock()
	o.wake()
}

// wake makes the turn look at the objects.
func (o *groupObjects) wake() {
	if !o.work.Swap(true) {
		o.group.want(dutyObjects)
		o.group.wake()
	}
}

// arrived is called when a set that was fetched is on this disk, durably.
func (o *groupObjects) arrived(id object.ID) {
	if o.told != nil {
		o.told(id, true)
	}
	if !o.on {
		return
	}
	o.drop(id)
	o.mu.Lock()
	delete(o.lacking, id)
	o.mu.Unlock()
	o.group.host.appliers.Enqueue(&o.group.machine.apply.seat)
	o.wake()
}

// drop removes the files of a set that is not there any more, unless they stay for the log: a fetch may end
// after the set.
func (o *groupObjects) drop(id object.ID) {
	if !o.on {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	_, is := o.table.Get(id)
	if is || o.orphans[id] || slices.ContainsFunc(o.ended, func(g object.Gone) bool { return g.ID == id }) {
		return
	}
	o.condemn = append(o.condemn, id)
	o.group.host.bulk.snapshotLanes.Enqueue(&o.removes)
}

// absent is called when no member that was asked had a set.
func (o *groupObjects) absent(id object.ID) {
	if o.told != nil {
		o.told(id, false)
	}
	o.mu.Lock()
	waits := o.waitsFor == id
	o.mu.Unlock()
	if waits && o.group.machine.apply.parkedAt() > 0 {
		o.group.machine.apply.lost.Store(o.group.machine.apply.parkedAt())
		o.wake()
	}
}

// waits returns the set for which the apply lane waits, or has waited last.
func (o *groupObjects) waits() object.ID {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.waitsFor
}

// end notes sets that are not there any more. The caller holds mu.
func (o *groupObjects) end(gone []object.Gone) {
	for _, s := range gone {
		if _, lacks := o.lacking[s.ID]; lacks {
			delete(o.lacking, s.ID)
			o.stops = append(o.stops, s.ID)
			o.wake()
		}
		delete(o.unheld, s.ID)
		o.ended = append(o.ended, s)
		if info, ok := o.files.Info(s.ID); ok { // it stays as long as this entry is in the log, and counts like it
			o.group.snapshots.Growth.Add(info.Bytes)
		}
		if u := o.uploads[s.ID]; u != nil {
			delete(o.uploads, s.ID)
			u.finish(object.Set{}, fmt.Errorf("%w: %v expired at entry %d, before a quorum held it", object.ErrUnknown, s.ID, s.Index))
		}
	}
	o.setGoes()
}

// setGoes says when the next files may be removed. The caller holds mu.
func (o *groupObjects) setGoes() {
	o.goes.Store(0)
	if len(o.ended) > 0 {
		o.goes.Store(o.ended[0].Index + 1)
		o.group.want(dutyObjects)
	}
}

// judge decides about the files that were here at the start and are in no table, when everything
// that the log had then is applied. The caller holds mu.
func (o *groupObjects) judge() {
	switch {
	case len(o.orphans) == 0:
		return
	case o.group.members.withoutAuthority.Load(): // its log may lack what it had acknowledged
		o.judgeLater = true
		return
	case o.judgeLater:
		o.judgeLater, o.judgeAt = false, o.group.writes.storage.log.LastIndex()
		return
	case o.group.machine.apply.position().Index < min(o.judgeAt, o.group.writes.storage.log.LastIndex()):
		return // (what is not committed may have left the log since the start)
	}
	for id := range o.orphans {
		if _, known := o.table.Get(id); !known && !slices.ContainsFunc(o.ended, func(g object.Gone) bool { return g.ID == id }) {
			o.condemn = append(o.condemn, id)
		}
	}
	slices.SortFunc(o.condemn, func(a, b object.ID) int { return slices.Compare(a[:], b[:]) })
	o.orphans = nil
	o.group.host.bulk.snapshotLanes.Enqueue(&o.removes)
}

// regained is called when the group has authority again: its log has what it had lost. It may be that nothing
// more will be applied for long.
func (o *groupObjects) regained() {
	if !o.on {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.judge() // says when,
	o.judge() // and that may be now
}

// removeEnded removes the files of the sets that went before the log of this host begins. It is part of a
// turn.
func (o *groupObjects) removeEnded() {
	at, first := o.goes.Load(), o.group.writes.storage.log.FirstIndex()
	if at == 0 || at > first {
		return
	}
	o.mu.Lock()
	n := 0
	for n < len(o.ended) && o.ended[n].Index < first {
		o.condemn = append(o.condemn, o.ended[n].ID)
		n++
	}
	o.ended = slices.Delete(o.ended, 0, n)
	o.setGoes()
	o.mu.Unlock()
	o.group.host.bulk.snapshotLanes.Enqueue(&o.removes)
}

// removePiece removes the files of one set, on a snapshot lane. What cannot be removed now, as it is read or
// sent, is tried again at a later turn.
func (o *groupObjects) removePiece() (more bool) {
	o.mu.Lock()
	if len(o.condemn) == 0 {
		o.mu.Unlock()
		return false
	}
	id := o.condemn[0]
	o.condemn, o.removed = slices.Delete(o.condemn, 0, 1), id
	o.mu.Unlock()
	err := o.files.Remove(id)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.removed = object.ID{}
	if _, is := o.table.Get(id); err != nil && !is { // otherwise it was opened meanwhile, and what is left is needed
		o.group.host.env.logger.Debug("an object is not removed yet", "group", o.group.id, "host", o.group.self, "object", id.String(), "err", err)
		o.inUse = append(o.inUse, id)
		o.wake()
	}
	return len(o.condemn) > 0
}

// removeAgain tries once in a heartbeat interval to remove what was in use. It returns the tick at which to
// try next. It is part of a turn.
func (o *groupObjects) removeAgain() (due int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	h, now := &o.holders, o.group.core.at.ticks
	switch {
	case len(o.inUse) == 0:
		return never
	case now >= h.removeAt:
		o.condemn, o.inUse = append(o.condemn, o.inUse...), nil
		h.removeAt = now + ticksPerHeartbeat
		o.group.host.bulk.snapshotLanes.Enqueue(&o.removes)
	}
	return h.removeAt
}

// isHere reports whether this member has a set, and will have it. The caller holds mu.
func (o *groupObjects) isHere(s *object.Set) bool {
	info, ok := o.files.Info(s.ID)
	return ok && info.Hash == s.Hash && o.removed != s.ID && !slices.Contains(o.condemn, s.ID)
}

// note notes a set that is in the table now. The caller holds mu.
func (o *groupObjects) note(s object.Set) {
	delete(o.orphans, s.ID)
	o.condemn = slices.DeleteFunc(o.condemn, func(id object.ID) bool { return id == s.ID })
	o.inUse = slices.DeleteFunc(o.inUse, func(id object.ID) bool { return id == s.ID })
	o.ended = slices.DeleteFunc(o.ended, func(g object.Gone) bool { return g.ID == s.ID })
	o.setGoes()
	if !o.isHere(&s) {
		o.lacking[s.ID] = s
	}
	if s.Held == 0 {
		o.unheld[s.ID] = s
	}
}
