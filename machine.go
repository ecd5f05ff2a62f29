package millrace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/millrace/millrace/host"
	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/host/statemachine"
)

// StateMachine is what a group replicates: commands C go in, results R come out. The host calls its methods
// one at a time. What other goroutines read of it, they read in View or ViewExclusive, or under a lock of the
// machine's.
type StateMachine[C, R any] interface {
	// Apply applies commands in the order of the log and sets results[i] to the result of batch[i]. The
	// same commands must have the same effects and results on every member. So it uses no clock
	// (Command.Time instead), no random numbers, no map order, nothing of this machine or process. A
	// command that the machine does not like is no error: say so in its result. An error, or a panic, halts
	// the machine: this member applies nothing more and refuses commands and reads, and still votes and
	// replicates (Node.Halted). A command that does so on every member halts every machine, again after
	// each start. That ends when the program can apply it, or an operator skips it on all members
	// (Node.SkipCommand).
	//
	// batch and results are reused after the call. The values in them are the machine's to keep.
	Apply(batch []Command[C], results []R) error
	// Snapshot returns the state as it is between two batches. Nothing is applied meanwhile, so it returns
	// soon: where it can it copies a pointer and not the state. The group applies more commands while the
	// snapshot is being written. Then the log forgets the commands before it. An error is reported
	// (event.SnapshotFailed) and tried again later.
	Snapshot() (Snapshot, error)
	// Restore replaces the whole state by one that Snapshot wrote, here or on another member. If it fails
	// it leaves the state as it is. So it reads r to its end before it replaces anything. It is called when
	// the group is opened, and between two batches on a member that was away for longer than the log
	// reaches back.
	Restore(ctx context.Context, r io.Reader) error
}

// DurableStateMachine is a state machine that keeps its state on a disk and has it again after a restart.
type DurableStateMachine[C, R any] interface {
	StateMachine[C, R]
	// Applied returns the index of the last command that the state on the disk includes, 0 if none. It is
	// called when the group is opened, and after Restore. The group applies the commands after it, and none
	// twice: so the state and this index must reach the disk together. A state behind the log's first command
	// is replaced by the newest snapshot (Restore). Commands with one Index come in one Apply, and reach the
	// disk together. The index of a Configuration counts as well, if the machine is a MembersObserver.
	Applied() (index uint64, err error)
	// Sync returns when everything that was applied before the call is durable. It is called, beside Apply,
	// before the log forgets commands: between a Snapshot and its WriteTo, when what was applied before that
	// Snapshot is enough. After an error it must not return nil again before the next start.
	Sync() error
}

// Types of package host for the snapshots of state machines.
type (
	// Snapshot is the state of a machine at one moment. WriteTo runs beside Apply, at most once, and returns
	// early when its context ends. Close, called once, releases the snapshot, written or not.
	//
	//	func Close() error                                   // releases it; called once, not beside WriteTo
	//	func WriteTo(ctx context.Context, w io.Writer) error // writes the state, beside Apply, at most once
	Snapshot = statemachine.Snapshot
	// FileSnapshot is a Snapshot that also consists of immutable files, such as those of an LSM tree. They
	// are linked, not copied, and those that did not change since the last snapshot cost nothing, here and
	// on the way to other members. A state machine that returns one is a FileRestorer.
	//
	//	func Close() error                                   // releases the snapshot; after that files may go
	//	func Files() []SnapshotFile                          // called after WriteTo; they must never change
	//	func WriteTo(ctx context.Context, w io.Writer) error // writes the other state, beside Apply, once
	FileSnapshot = statemachine.FileSnapshot
	// FileRestorer is a state machine whose snapshots have files: RestoreFiles is called in place of Restore.
	//
	//	func RestoreFiles(ctx context.Context, r io.Reader, files SnapshotFiles) error // replaces the state
	FileRestorer = statemachine.FileRestorer
	// SnapshotFile is a file of a FileSnapshot.
	//
	//	Name string // how the machine finds it again: at most 200 of a-z, A-Z, 0-9, '.', '_' and '-'
	//	Path string // where it is now; it is linked from there, or copied
	SnapshotFile = statemachine.File
	// SnapshotFiles are the files that a FileRestorer gets.
	//
	//	func Link(name string, path string) error     // a hard link; errors.ErrUnsupported: use Open
	//	func Names() []string                         // the names that the snapshot has
	//	func Open(name string) (io.ReadCloser, error) // the content; each byte is checked when read
	SnapshotFiles = statemachine.SnapshotFiles
	// MembersObserver is a state machine that learns who the members of its group are, in order with Apply.
	// MembersChanged is called for each applied entry that changes the configuration. The first one founds the
	// group. It is also called where a version of the machine begins (Machine.Versions), with the configuration
	// as it is. The rules are those of Apply: alike on every member, never beside Apply, again after a restart
	// unless Applied says that the machine has it. A panic or an error halts the machine. It publishes nothing,
	// and keeps no objects.
	//
	// A machine that is restored does not learn of the entries that the snapshot covers. So what it has made of
	// configurations, and what it must know of the present one later, belongs in its snapshot.
	//
	// A program that gets the method while its group is in use acts on it from a new version on
	// (Configuration.Version). Otherwise members that have passed an entry with the program of before differ.
	//
	//	func MembersChanged(c Configuration) error // may keep what c has
	MembersObserver = statemachine.MembersObserver
	// Configuration says who the members of a group are behind an entry of its log. It depends on the log
	// alone. Ids ascend.
	//
	//	Index        uint64        // of the entry
	//	Term         uint64        // of the entry
	//	Time         time.Duration // the log time, that of the last command before
	//	Version      uint32        // the version of the machine's behaviour, as Command.Version
	//	Voters       []uint64      // the voters
	//	Outgoing     []uint64      // in a joint configuration: the voters before it
	//	Learners     []uint64      // members without a vote
	//	LearnersNext []uint64      // outgoing voters that become learners
	//	func Has(id uint64) bool   // whether a host is a member, whatever it does
	//	func Members() []uint64    // the ids of all members, ascending
	Configuration = statemachine.Configuration
	// SnapshotPolicy says when snapshots are taken, and how much of the log stays behind them.
	//
	//	LogBytes  int64         // growth of the log in between; default 64 MiB, or four snapshots if more
	//	Every     time.Duration // the longest time in between, if anything was applied; 0: time does not count
	//	KeepBytes int64         // how much log stays for members that are behind; default a snapshot's size
	//	MaxLogBytes int64       // the most that both have by default, for snapshots that are links; 0: no bound
	//	Disabled  bool          // only TakeSnapshot takes one
	SnapshotPolicy = host.SnapshotPolicy
	// SnapshotInfo describes a snapshot on this host's disk.
	//
	//	Index uint64 // the last entry that it covers
	//	Term  uint64 // the term of that entry
	//	Bytes int64  // its size on the disk, without large objects
	SnapshotInfo = host.SnapshotInfo
)

// BytesSnapshot returns a snapshot of a state that is already encoded. The bytes must not change.
func BytesSnapshot(state []byte) Snapshot { return bytesSnapshot(state) }

type bytesSnapshot []byte

func (s bytesSnapshot) WriteTo(_ context.Context, w io.Writer) error {
	_, err := w.Write(s)
	return err
}

func (bytesSnapshot) Close() error { return nil }

// Command is a committed command on its way into the state machine.
type Command[C any] struct {
	// Index and Term are those of its entry in the log. Several commands may have one Index (unless
	// Config.SingleEntries is set): what a machine derives from it and must be unique needs Pos, too.
	Index, Term uint64
	// Pos is its place among the commands with this Index, from 0.
	Pos uint32
	// Time is the log time: how long the group has had leaders, as they have measured. It never goes back
	// and is the same on every member, so a state machine may use it for expiry. It stands still while no
	// member leads.
	Time time.Duration
	// Session and Number say which command of which session this is. They are zero if the command was sent
	// once only, and otherwise belong to the host that sent it, or to the user (InSession).
	Session SessionID
	Number  uint64
	// Version is the version of the machine's behaviour that the group is at (Machine.Versions). Apply does what
	// that version says, also if the program knows a later one: so every member does the same.
	Version uint32
	// Objects are the objects that the command names (WithObjects). They are on this host's disk.
	Objects []ObjectID
	// Awaited says that the result is of use: a caller of this node waits for it, or Machine.Results keeps it.
	// A machine may leave out what is large and only for the caller where it is false: the values of a range,
	// or the previous one. Without Results it is false on the other members, and everywhere when the log is
	// applied again. So it must change nothing but the result, and of that only fields with the tag
	// `millrace:"awaited"`, which members do not compare. With Results it is always true. The node of the
	// caller builds the answer, also for a command that it has forwarded.
	Awaited bool
	// Value is the command.
	Value C

	published *[][]byte // nil: nothing hears of it
}

// Publish tells subscribers of something that this command does, on every member (Node.Subscribe). It is for
// Apply only. They get it when Apply has returned. It belongs to the deterministic part of the machine: the
// same commands publish the same bytes, on every member and again after a restart. data is copied.
func (c *Command[C]) Publish(data []byte) {
	if c.published != nil {
		*c.published = append(*c.published, append(make([]byte, 0, len(data)), data...))
	}
}

// CommandWith returns a command that is like c with another value, and publishes where c does. It is for a
// state machine around another one.
func CommandWith[C, D any](c *Command[C], value D) Command[D] {
	return Command[D]{Index: c.Index, Term: c.Term, Pos: c.Pos, Time: c.Time, Session: c.Session, Number: c.Number, Version: c.Version, Objects: c.Objects, Awaited: c.Awaited, Value: value, published: c.published}
}

// Recorded makes a command publish into a list, for kits that test machines.
func (c *Command[C]) Recorded(published *[][]byte) { c.published = published }

// Machine is a state machine with everything that Open must know about it. InMemory and Durable make one; its
// methods return a changed copy. The zero Machine is refused.
type Machine[C, R any] struct {
	sm          StateMachine[C, R]
	durable     DurableStateMachine[C, R] // nil: it is in memory
	codec       Codec[C]
	tries       bool // commands are decoded on their way in
	nonBlocking bool
	version     string
	versions    Versions
	results     Codec[R] // nil: results are not kept
	keeps       bool
	unwatched   bool
	digest      func() uint64 // nil: none

	timers Timers // nil: none
	tick   C      // what the leader proposes when the first timer is due

	sessions     SessionOptions
	stopDiverged bool
	objects      *ObjectOptions // nil: the group has none
}

// InMemory makes a Machine of a state machine that keeps nothing beyond the process. It is empty when the
// group is opened. It is restored from the newest snapshot, and gets the commands of the log after that. It
// may apply a command when a quorum holds it durably, before the disk of this host does.
func InMemory[C, R any](sm StateMachine[C, R], codec Codec[C]) Machine[C, R] {
	return Machine[C, R]{sm: sm, codec: codec, tries: !isSure(codec)}
}

// Durable makes a Machine of a state machine that keeps its state on a disk. It gets only the commands after
// the last one that it has applied.
func Durable[C, R any](sm DurableStateMachine[C, R], codec Codec[C]) Machine[C, R] {
	m := Machine[C, R]{codec: codec, tries: !isSure(codec), durable: sm}
	if sm != nil {
		m.sm = sm
	}
	return m
}

// NonBlocking declares that Apply never waits: for no lock that another goroutine holds while it waits, for
// no disk, for no network. Then Apply runs in the turn of its group, which saves two changes of goroutine for
// each batch. An Apply that waits nevertheless stops the heartbeats of all groups that share the turn. A
// machine that is read under View with a lock of its own is not NonBlocking.
func (m Machine[C, R]) NonBlocking() Machine[C, R] { m.nonBlocking = true; return m }

// Version names the machine's behaviour, such as "v3". Members compare commands, results and states, among
// equal names only: change it with each change of the program that changes a result or a state. A machine
// with Versions needs none.
func (m Machine[C, R]) Version(v string) Machine[C, R] { m.version = v; return m }

// Versions are the versions of a machine's behaviour that a program can do.
//
//	Lowest  uint32 // the first version that it can do
//	Highest uint32 // the last version that it can do
//	func Can(version uint32) bool // whether it can do a version
//	func String() string          // the versions for people
//	func Validate() error         // an error if Lowest is above Highest
type Versions = statemachine.Versions

// Versions declares which versions of its behaviour the program can do, from lowest through highest. Without
// it that is version 0 only. A program that changes a result or a state gets the next version. It does
// what Command.Version says, and still all that an earlier version says, down to lowest. When every
// member runs it, Node.Upgrade puts an entry into the log, and the commands behind that have the new version.
// A new group begins at the lowest. A member whose program cannot do the version of the group halts, and
// keeps its log and vote. Versions costs nothing for a command. Version is another thing: it only says which
// members are compared.
func (m Machine[C, R]) Versions(lowest, highest uint32) Machine[C, R] {
	m.versions = Versions{Lowest: lowest, Highest: highest}
	return m
}

// CanDo returns the versions that the program can do, for kits that test it.
func (m Machine[C, R]) CanDo() Versions { return m.versions }

// Results keeps the results of commands that may be sent twice, encoded, with the session of their client,
// and makes members compare all results whole. Then a duplicate gets the first result. Otherwise it ends with
// ErrAlreadyApplied. All members of a group must have it, or none.
func (m Machine[C, R]) Results(codec Codec[R]) Machine[C, R] {
	m.results, m.keeps = codec, true
	return m
}

// Unwatched leaves out what members compare by default: of the results, all that is surely equal by its
// type. These are numbers, strings, times, and structs and arrays of them. Of slices it compares the
// lengths, and about once a second the contents; of interfaces whether they are nil; nothing of pointers
// and maps. It costs about 30 ns for each number and command, on each member. Without it, members that
// differ in results are not noticed, unless the machine has Results or Digest.
func (m Machine[C, R]) Unwatched() Machine[C, R] { m.unwatched = true; return m }

// SessionOptions bound the sessions of the clients of a group (Machine.Sessions).
//
//	Expiry          time.Duration // the log time after which an idle session goes; default 1 h, at least 1 s
//	MaxBytes        int64         // memory of all sessions; default 16 MiB. The longest idle goes first
//	MaxSessionBytes int64         // memory of one session; default 1 MiB, at least 4 KiB
//	MaxResultBytes  int64         // memory of kept results; the oldest goes first. 0: none is kept
//	func WithDefaults() SessionOptions // the options with a value for each bound
//	func Validate() error              // the first value that Open would refuse
//	func MaxNumbers() int              // how many commands of a session may wait for answers
type SessionOptions = session.Options

// Sessions bounds what members remember of the sessions of clients (InSession). By default an idle session
// is forgotten after an hour of log time, or sooner when other sessions take 16 MiB. That is 52,428
// sessions of one command each. The bounds are chosen when the group is founded: all members must have the
// same at every start. A member that differs from a majority stops its group. Open refuses a member that
// differs from its snapshot. MaxResultBytes counts with Results only; its default is 8 MiB then.
func (m Machine[C, R]) Sessions(o SessionOptions) Machine[C, R] { m.sessions = o; return m }

// Digest makes members compare their states. f returns a number that depends on the whole state and is
// equal for equal states. It is called about once a second between two batches, while commands come. A
// difference is an event (event.Diverged) on the leader, which compares, and a cause in Node.Explain and a
// line in the log on every member.
func (m Machine[C, R]) Digest(f func() uint64) Machine[C, R] { m.digest = f; return m }

// StopDiverged makes a member stop its group if its commands, results or state differ from an agreeing
// majority, while the others are a quorum by themselves. Set it on all members where a wrong answer is
// worse than one member less, together with Digest, when the machine has passed the tests of package
// smtest. Leave it out of a group of two, which has no majority. Leave it out while a new program with the
// old Version is rolled out: it would stop the members with the new program.
func (m Machine[C, R]) StopDiverged() Machine[C, R] { m.stopDiverged = true; return m }

// StateMachine returns the state machine, for kits that test it. It is nil in the zero Machine.
func (m Machine[C, R]) StateMachine() StateMachine[C, R] { return m.sm }

// Codec returns the codec of the commands, for kits that test it.
func (m Machine[C, R]) Codec() Codec[C] { return m.codec }

// Sum returns the digest of the state as it is now, for kits that test it, and whether the machine has one.
func (m Machine[C, R]) Sum() (digest uint64, ok bool) {
	if m.digest == nil {
		return 0, false
	}
	return m.digest(), true
}

// SumResult returns the number by which members compare a result, for kits that test the machine, and whether
// they do. Two results with the same number may differ in what only a caller sees (Command.Awaited).
func (m Machine[C, R]) SumResult(result R) (sum uint64, ok bool) {
	p := m.resultPlan()
	if p == nil {
		return 0, false
	}
	return (&summer{plan: p}).sum(reflect.ValueOf(&result).Elem(), true), true
}

// KeepsResults reports whether the machine has Results, for kits that test it. Command.Awaited is always true
// then.
func (m Machine[C, R]) KeepsResults() bool { return m.keeps }

// validate says why a Machine cannot be used, or returns nil.
func (m Machine[C, R]) validate() error {
	if m.sm == nil {
		return errors.New("millrace: the machine has no state machine; make it with InMemory or Durable")
	}
	if v := reflect.ValueOf(m.sm); isNil(v) {
		return fmt.Errorf("millrace: the state machine is a nil %v, so its first call would panic; make a value of the type", v.Type())
	}
	if err := rejectCodec(m.codec, "commands"); err != nil {
		return err
	}
	if err := m.versions.Validate(); err != nil {
		return fmt.Errorf("%w (Machine.Versions)", err)
	}
	if err := m.sessions.Validate(); err != nil {
		return fmt.Errorf("%w (Machine.Sessions)", err)
	}
	if m.keeps {
		if err := rejectCodec(m.results, "results"); err != nil {
			return err
		}
	}
	return m.rejectTimers()
}

// isNil reports whether a value that is in an interface is nil itself.
func isNil(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Func, reflect.Chan:
		return v.IsNil()
	}
	return false
}
