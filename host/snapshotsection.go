package host

import (
	"github.com/millrace/millrace/host/internal/snapshots"
	"github.com/millrace/millrace/snapshot"
)

// snapshotSection is what a group has in its snapshots besides the machine and the sessions: a stream of the
// host, and parts by link. A group with large objects has one.
type snapshotSection interface {
	// isWhole reports whether this member has all that a snapshot must have.
	isWhole() bool
	// capture is called where the machine is captured.
	capture() capturedSection
	// sources returns what this disk has, and a snapshot has, too: it need not be sent.
	sources(m *snapshot.Manifest) []snapshot.Source
	// read reads the section of a snapshot, and changes nothing of the group. restore takes it over where the
	// machine may be.
	read(p *snapshots.Published, r *snapshot.Reader) (restore func(), err error)
}

// capturedSection is a section as it is written. Its zero value is that of a group without one.
type capturedSection struct {
	name string
	form []byte
	link func(*snapshot.Writer) error
}
