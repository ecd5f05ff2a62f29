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
	// Capture returns the stream, and what links the parts. It is called where the machine is captured.
	Capture() (form []byte, link func(*snapshot.Writer) error)
	// Sources returns what this disk has, and a snapshot has, too: it need not be sent.
	Sources(m *snapshot.Manifest) []snapshot.Source
	// MaxForm bounds the stream.
	MaxForm() int64
	// Read reads the stream of a snapshot in a store, and changes nothing of the group. restore takes it over
	// where the machine may be.
	Read(form []byte, store *snapshot.Store, of snapshot.ID) (restore func(), err error)
}

// Captured is what the host adds to the view of a machine, as of the same entry.
type Captured struct {
	Block    entry.Block
	Sessions []byte // the form of the table; nil: the group has no commands
	// Published returns what the machine has published, on the snapshot lane. nil: there is nothing.
	Published func() []byte
	form      []byte // of the section; nil: the group has none
	link      func(*snapshot.Writer) error
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
	form, err := ReadForm(p, r, ObjectsStream, s.Section.MaxForm())
	if err != nil {
		return nil, fmt.Errorf("its objects: %w (CommandOptions.Objects)", err)
	}
	store, err := s.Store()
	if err != nil {
		return nil, err
	}
	return s.Section.Read(form, store, p.ID)
}
