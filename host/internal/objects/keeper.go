package objects

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"github.com/millrace/millrace/host/internal/bulk"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/internal/lock"
	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/object/files"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
)

// A group with large objects (CommandOptions.Objects, package object) has their bytes beside its log:
//
//	uploader    Upload writes the bytes to its disk, then hands in the command open
//	apply lane  open: the set is in the table, and lacking here unless this member wrote it (apply.go)
//	turn        fetches what is lacking (fetch.go); tells the leader what this member holds
//	leader      a quorum holds it: proposes the command hold (holders.go)
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
// compacted their logs. It then needs a snapshot, although its log is complete.

// Keeper has the objects of one group on this member. All methods are safe for concurrent use, except those
// that say who calls them. A nil Keeper is that of a group without objects; only the methods that say so may
// be called on it.
type Keeper struct {
	Settings
	files   *files.Store
	wiring  Wiring
	fetches *Fetches
	remove  func() // makes a lane remove what is condemned

	goes atomic.Uint64 // files of ended sets may be removed when the log begins here; 0: there are none
	work atomic.Bool   // the turn has something to do

	mu         lock.Mutex // never held while the disk works
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
	stops      []object.ID // fetches that are of no use any more
	condemn    []object.ID // to be removed, and
	removed    object.ID   // the one whose files are being removed
	inUse      []object.ID // could not be removed: they are read or sent. They are condemned again later

	holders holders // owned by the turn
}

// Settings are what a Keeper is for. They do not change.
type Settings struct {
	Group, Self  uint64
	Bulk         bulk.Group // the group as transfers see it
	FS           vfs.FS
	Dir          string // of the files
	Options      object.Options
	ReserveBytes int64 // of the disk, that objects leave for the log and for snapshots
	// Heartbeat and Election are the interval and the timeout of the host, in ticks. Ticks returns how many
	// have passed after a time.
	Heartbeat, Election int64
	Ticks               func(time.Duration) int64
	Logger              *slog.Logger
	// Told hears of the ends of fetches in place of the Keeper, in tests of transfers. It is nil otherwise.
	Told func(id object.ID, here bool)
}

// Wiring is the group as its objects see it, and what they do to it. Its methods wait for nothing.
type Wiring interface {
	// Any goroutine may call these, with the lock of the Keeper.
	Want()                                    // the turn must call Step
	Wake()                                    // and comes at once
	Apply()                                   // a lane applies what has waited
	Applied() uint64                          // the last entry
	WaitsAt() uint64                          // the entry that waits for a set; 0: none does
	Lose(index uint64)                        // no member has the set for which an entry waits
	UnavailableAt() uint64                    // that entry, if it still waits; 0: there is none
	Stay(bytes int64)                         // so much stays on the disk as long as the log behind the last entry
	FirstIndex() uint64                       // of the log
	LastIndex() uint64                        // of the log
	RosterAt(index uint64) *membership.Roster // that is in force after an entry that is applied
	Members() []uint64
	WithoutAuthority() bool
	IsLeaving() bool // the group is being closed
	Err() error      // why the group has ended; nil: it has not

	// Work returns what makes a lane run piece, until it knows of no more.
	Work(doing string, piece func() (more bool)) (enqueue func())

	// The turn calls these.
	Now() int64 // in ticks
	Roster() *membership.Roster
	LogTime() time.Duration // about now
	// Stamp returns the log time for an entry, if one is due.
	Stamp() (stamp time.Duration, due bool)
	// Propose proposes an entry. It may be lost.
	Propose(data []byte) error
	Send(to uint64, record []byte) (sent bool)
	// SendPast sends a member a snapshot that takes its machine past an entry, or takes one.
	SendPast(to, index uint64)
}

// New returns the objects of a group that is being opened, and reads the manifests of those on the disk.
func New(s Settings, w Wiring, f *Fetches) (k *Keeper, err error) {
	k = &Keeper{
		Settings: s, wiring: w, fetches: f, table: object.New(s.Options),
		lacking: map[object.ID]object.Set{}, unheld: map[object.ID]object.Set{},
		uploads: map[object.ID]*Upload{}, orphans: map[object.ID]bool{}, judgeAt: w.LastIndex(),
	}
	if k.files, err = files.Open(s.FS, s.Dir); err != nil {
		return nil, fmt.Errorf("millrace: the objects of group %d: %w", s.Group, err)
	}
	k.files.Damage = k.Damaged
	for _, id := range k.files.All() {
		k.orphans[id] = true
	}
	k.remove = w.Work("whose objects are removed", k.removePiece)
	return k, nil
}

// Files are the files of the objects on this disk.
func (k *Keeper) Files() *files.Store { return k.files }

// isDamage reports whether an error says that what is on the disk is damaged.
func isDamage(err error) bool { return errors.As(err, new(*snapshot.DamageError)) }

// Damaged is called when a set turns out to be damaged on this disk: it is fetched again.
func (k *Keeper) Damaged(id object.ID) {
	k.mu.Lock()
	if s, is := k.table.Get(id); is {
		k.record(s)
	}
	k.mu.Unlock()
	k.wake()
}

// wake makes the turn look at the objects.
func (k *Keeper) wake() {
	if !k.work.Swap(true) {
		k.wiring.Want()
		k.wiring.Wake()
	}
}

// arrived is called when a set that was fetched is on this disk, durably.
func (k *Keeper) arrived(id object.ID) {
	if k.Told != nil {
		k.Told(id, true)
		return
	}
	k.drop(id)
	k.mu.Lock()
	delete(k.lacking, id)
	k.mu.Unlock()
	k.wiring.Apply()
	k.wake()
}

// absent is called when no member that was asked had a set.
func (k *Keeper) absent(id object.ID) {
	if k.Told != nil {
		k.Told(id, false)
		return
	}
	k.mu.Lock()
	waits := k.waitsFor == id
	k.mu.Unlock()
	if waits && k.wiring.WaitsAt() > 0 {
		k.wiring.Lose(k.wiring.WaitsAt())
		k.wake()
	}
}

// Awaits returns the set for which the apply lane waits, or has waited last. k may be nil.
func (k *Keeper) Awaits() (id object.ID) {
	if k == nil {
		return id
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.waitsFor
}

// end notes sets that are not there any more. The caller holds mu.
func (k *Keeper) end(gone []object.Gone) {
	for _, s := range gone {
		if _, lacks := k.lacking[s.ID]; lacks {
			delete(k.lacking, s.ID)
			k.stops = append(k.stops, s.ID)
			k.wake()
		}
		delete(k.unheld, s.ID)
		k.ended = append(k.ended, s)
		if info, ok := k.files.Info(s.ID); ok { // it stays as long as this entry is in the log, and counts like it
			k.wiring.Stay(info.Bytes)
		}
		if u := k.uploads[s.ID]; u != nil {
			delete(k.uploads, s.ID)
			u.Finish(object.Set{}, fmt.Errorf("%w: %v expired at entry %d, before a quorum held it", object.ErrUnknown, s.ID, s.Index))
		}
	}
	k.setGoes()
}

// isHere reports whether this member has a set, and will have it. The caller holds mu.
func (k *Keeper) isHere(s *object.Set) bool {
	info, ok := k.files.Info(s.ID)
	return ok && info.Hash == s.Hash && k.removed != s.ID && !slices.Contains(k.condemn, s.ID)
}

// record records a set that is in the table now. The caller holds mu.
func (k *Keeper) record(s object.Set) {
	delete(k.orphans, s.ID)
	k.condemn = slices.DeleteFunc(k.condemn, func(id object.ID) bool { return id == s.ID })
	k.inUse = slices.DeleteFunc(k.inUse, func(id object.ID) bool { return id == s.ID })
	k.ended = slices.DeleteFunc(k.ended, func(g object.Gone) bool { return g.ID == s.ID })
	k.setGoes()
	if !k.isHere(&s) {
		k.lacking[s.ID] = s
	}
	if s.Held == 0 {
		k.unheld[s.ID] = s
	}
}
