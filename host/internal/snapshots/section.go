package snapshots

import (
	"fmt"

	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/snapshot"
)

// Section is what a group has in its snapshots besides the machine and the sessions: a stream of the host,
// and parts by link. A group with large objects has one.
type Section interface {
	// IsWhole reports whether this member has all that a snapshot must have.
	IsWhole() bool
	// Capture is called where the machine is captured.
	Capture() CapturedSection
	// Sources returns what this disk has, and a snapshot has, too: it need not be sent.
	Sources(m *snapshot.Manifest) []snapshot.Source
	// Read reads the section of a snapshot, and changes nothing of the group. restore takes it over where the
	// machine may be.
	Read(p *Published, r *snapshot.Reader) (restore func(), err error)
}

// CapturedSection is a section as it is written. Its zero value is that of a group without one.
type CapturedSection struct {
	Name string
	Form []byte
	Link func(*snapshot.Writer) error
}

// Captured is what the host adds to the view of a machine, as of the same entry.
type Captured struct {
	Block    entry.Block
	Sessions []byte // the form of the table; nil: the group has no commands
	Section  CapturedSection
}

// ReadSection reads the section of a snapshot, if the group has one. It is called where the machine is
// restored.
func (s *Group) ReadSection(p *Published, r *snapshot.Reader) (restore func(), err error) {
	_, has := p.Manifest.Find(snapshot.KindHost, ObjectsStream)
	switch is := s.Section != nil; {
	case (has > 0) != is:
		return nil, fmt.Errorf("it was taken of a group with objects: %t, and this one has them: %t; open the group on all members with the CommandOptions.Objects that it had at its first command", has > 0, is)
	case !is:
		return func() {}, nil
	}
	return s.Section.Read(p, r)
}
