package statemachine

import (
	"fmt"

	"github.com/millrace/millrace/host/session"
	"github.com/millrace/millrace/object"
)

// CommandOptions configure Commands. The zero value is safe.
type CommandOptions struct {
	// Sessions bounds the table of sessions. All members of a group must always have the same, because the
	// bounds decide which commands are applied. A member stops its group if its bounds differ from those of
	// a majority. It does not open a snapshot that has other bounds.
	Sessions session.Options
	// KeepResults keeps what the machine has set as Command.Result, so that a duplicate gets the first
	// result, and compares the results of all members. Sessions.MaxResultBytes bounds the memory; default 8
	// MiB.
	KeepResults bool
	// ResultForm names how the machine encodes or sums up results, and makes members compare them: those of
	// KeepResults, or Command.ResultSum. Only members with the same form, and the same Version, are
	// compared. Explain warns of members of the same Version that have another form. "": the results of
	// KeepResults are compared, and no others.
	ResultForm string
	// Version names the behaviour of the machine, at most 128 bytes. Give it another name when the same
	// commands lead to another state or result: members compare both only with members of the same version.
	Version string
	// Versions says which versions of its behaviour the machine has: Command.Version says for each command which
	// of them counts. The zero value is a machine with version 0 only.
	Versions Versions
	// Digest returns a number that depends on the whole state of the machine: equal for equal states. It is
	// called between two calls of Apply, about once a second while commands come. nil: states are not
	// compared.
	Digest func() uint64
	// Applied says that the machine keeps its state on disk: it returns the index of the last command that
	// it holds durably, 0 for none. Of commands with one Index it holds all or none. It is called by
	// OpenGroup. Commands up to that index are not given to the machine again. nil: the machine is empty at
	// the start.
	Applied func() (uint64, error)
	// StopDiverged makes a member stop its group if a majority of the members agrees on a state, and this
	// member has another one (event.Diverged). All members should have the same.
	StopDiverged bool
	// Objects makes it a group with large objects (Group.Upload): bytes that are stored beside the log, and
	// that commands name (package object). All members must have the same, except ReserveBytes. In such a
	// group the bytes of a command begin with what object.AppendHead makes. A machine that keeps its state on
	// disk (Applied) cannot have objects. nil: there are none.
	Objects *ObjectOptions
}

// Versions are the versions of a machine's behaviour that a program can do, from Lowest through Highest. A
// group is at one of them, the same on every member. It begins at the Lowest of the member that founds it. It
// changes by an entry of the log (Group.Upgrade), and never back.
type Versions struct{ Lowest, Highest uint32 }

// Can reports whether the program can do a version.
func (v Versions) Can(version uint32) bool { return v.Lowest <= version && version <= v.Highest }

// String says which they are, for a sentence.
func (v Versions) String() string {
	if v.Lowest == v.Highest {
		return fmt.Sprintf("version %d only", v.Lowest)
	}
	return fmt.Sprintf("versions %d to %d", v.Lowest, v.Highest)
}

// Validate says what is wrong with versions, or returns nil.
func (v Versions) Validate() error {
	if v.Lowest > v.Highest {
		return fmt.Errorf("millrace: the versions of the machine are %d to %d; the lowest comes first", v.Lowest, v.Highest)
	}
	return nil
}

// ObjectOptions are those of a group with large objects.
type ObjectOptions struct {
	object.Options
	// ReserveBytes is the space on the disk that objects leave for the log and for snapshots; default 256
	// MiB. An upload is refused, and a fetch waits, that would take of it. Members may differ in it.
	ReserveBytes int64
}

// Validate says what is wrong with options, in which 0 stands for a default, or returns nil.
func (o ObjectOptions) Validate() error {
	if o.ReserveBytes < 0 {
		return fmt.Errorf("millrace: ObjectOptions.ReserveBytes is %d, want at least 0, which stands for the default", o.ReserveBytes)
	}
	return o.Options.Validate()
}
