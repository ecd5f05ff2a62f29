package snapshot

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math"
	"strings"

	"github.com/millrace/millrace/raft/raftpb"
)

// The sizes of the format, in bytes and in numbers.
const (
	// BlockBytes is the unit in which content is checked, read and sent. The last block of a part is shorter.
	BlockBytes = 64 << 10
	// PartBytes is the most content of a part of a stream. A file of a machine is one part of any length.
	PartBytes = 64 << 20
	// MaxManifestBytes bounds an encoded manifest. A block takes 4 bytes of it, so the content of a snapshot
	// is less than 256 GiB.
	MaxManifestBytes = 16 << 20
	// MaxParts bounds the parts of a snapshot.
	MaxParts = 1 << 20
	// MaxMembers bounds Manifest.Members and each list of Manifest.Conf.
	MaxMembers = 4096
	// MaxNameBytes bounds the name of a part, MaxElementBytes each of its elements.
	MaxNameBytes    = 1024
	MaxElementBytes = 255
	// MaxMachineBytes bounds Manifest.Machine.
	MaxMachineBytes = 255
	// maxNumber bounds index and term, as package raft does: a log goes on behind the index.
	maxNumber = math.MaxInt64
)

// ID names a snapshot of a group: the last entry that it stands for.
type ID struct{ Index, Term uint64 }

// String is also the name of the snapshot's directory: index and term in 16 hexadecimal digits each.
func (id ID) String() string { return fmt.Sprintf("%016x-%016x", id.Index, id.Term) }

// Compare orders ids by index, then by term.
func (id ID) Compare(other ID) int {
	return cmp.Or(cmp.Compare(id.Index, other.Index), cmp.Compare(id.Term, other.Term))
}

// ParseID reads the text that ID.String returns, and no other.
func ParseID(text string) (ID, error) {
	var id ID
	if n, err := fmt.Sscanf(text, "%016x-%016x", &id.Index, &id.Term); n != 2 || err != nil || id.String() != text {
		return ID{}, fmt.Errorf("snapshot: %q is no name of a snapshot, want index and term in 16 hexadecimal digits each, with a hyphen between them", text[:min(len(text), 40)])
	}
	return id, nil
}

// Kind says whose content a part holds.
type Kind uint8

// The kinds. A part of KindHost belongs to a stream of the host (its session table), a part of KindMachine
// to a stream of the state machine. A part of KindObject belongs to a large object of the group, which is a
// stream, too. A part of KindFile is an immutable file that the state machine handed over.
const (
	KindHost Kind = iota + 1
	KindMachine
	KindFile
	KindObject
)

func (k Kind) String() string {
	switch k {
	case KindHost:
		return "host"
	case KindMachine:
		return "machine"
	case KindFile:
		return "file"
	case KindObject:
		return "object"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// Member is a member of the group with the incarnation of its directory.
type Member struct {
	ID          uint64
	Incarnation [16]byte
}

// Part is a file of a snapshot. Parts of one kind and name follow one another, and their contents in this
// order are a stream.
type Part struct {
	Kind   Kind
	Name   string
	Bytes  int64
	SHA256 [sha256.Size]byte
	// Sums has the CRC32C of each block.
	Sums []uint32
}

// Blocks is the number of blocks of the part.
func (p *Part) Blocks() int64 { return int64(len(p.Sums)) }

// blockBytes is the length of a block of the part.
func (p *Part) blockBytes(block int64) int {
	return int(min(BlockBytes, p.Bytes-block*BlockBytes))
}

// sameContent reports whether two parts have equal bytes.
func (p *Part) sameContent(q *Part) bool { return p.Bytes == q.Bytes && p.SHA256 == q.SHA256 }

// Manifest says what a snapshot is of, what it stands for, and what its parts are. It holds the checksums of
// all content, so a snapshot is as good as its manifest.
type Manifest struct {
	// Cluster and Group say whose state it is. They are opaque to this package.
	Cluster, Group uint64
	// Index and Term name the last entry that the snapshot stands for.
	Index, Term uint64
	// Conf is the configuration in force at Index, and Members has the incarnations of its members, by id.
	Conf    raftpb.ConfState
	Members []Member
	// Host is a block of package host: its own times and sums. It has a version of its own.
	Host []byte
	// Machine is the version of the state machine that wrote the parts.
	Machine string
	Parts   []Part
}

// ID returns the id of the snapshot.
func (m *Manifest) ID() ID { return ID{Index: m.Index, Term: m.Term} }

// Bytes returns the length of all content.
func (m *Manifest) Bytes() int64 {
	var n int64
	for i := range m.Parts {
		n += m.Parts[i].Bytes
	}
	return n
}

// Hash names a manifest: manifests with equal hashes are equal. It panics if the manifest is not valid.
func (m *Manifest) Hash() [sha256.Size]byte {
	b, err := m.Append(nil)
	if err != nil {
		panic(err)
	}
	return sha256.Sum256(b)
}

// Find returns the number of the first part of a kind and name, and how many there are.
func (m *Manifest) Find(kind Kind, name string) (first, n int) {
	for i := range m.Parts {
		if m.Parts[i].Kind != kind || m.Parts[i].Name != name {
			if n > 0 {
				break
			}
			continue
		}
		if n == 0 {
			first = i
		}
		n++
	}
	return first, n
}

// Validate returns what is wrong with the manifest, as a *FormatError, or nil.
func (m *Manifest) Validate() error {
	switch {
	case m.Index == 0 || m.Term == 0 || m.Index > maxNumber || m.Term > maxNumber:
		return &FormatError{What: fmt.Sprintf("index %d and term %d, want both at least 1 and at most %d", m.Index, m.Term, uint64(maxNumber))}
	case len(m.Machine) > MaxMachineBytes:
		return &FormatError{What: fmt.Sprintf("version of the machine has %d bytes, want at most %d", len(m.Machine), MaxMachineBytes)}
	case len(m.Parts) > MaxParts:
		return &FormatError{What: fmt.Sprintf("%d parts, want at most %d", len(m.Parts), MaxParts)}
	case len(m.Members) > MaxMembers:
		return &FormatError{What: fmt.Sprintf("%d members, want at most %d", len(m.Members), MaxMembers)}
	}
	for _, ids := range confLists(&m.Conf) {
		if len(*ids) > MaxMembers {
			return &FormatError{What: fmt.Sprintf("a list of the configuration has %d members, want at most %d", len(*ids), MaxMembers)}
		}
	}
	for i := 1; i < len(m.Members); i++ {
		if m.Members[i].ID <= m.Members[i-1].ID {
			return &FormatError{What: fmt.Sprintf("member %d comes after member %d, want ids in ascending order", m.Members[i].ID, m.Members[i-1].ID)}
		}
	}
	if err := m.validateParts(); err != nil {
		return err
	}
	if n := m.EncodedBytes(); n > MaxManifestBytes {
		return &FormatError{What: fmt.Sprintf("manifest takes %d bytes, want at most %d; the content has %d bytes and the host's block %d", n, MaxManifestBytes, m.Bytes(), len(m.Host))}
	}
	return nil
}

// label is what the parts of one stream have in common.
type label struct {
	kind Kind
	name string
}

func (l label) String() string { return fmt.Sprintf("%s %q", l.kind, l.name) }

func (m *Manifest) validateParts() error {
	seen := make(map[label]bool)
	var last label
	for i := range m.Parts {
		p := &m.Parts[i]
		if why := rejectPart(p); why != "" {
			return &FormatError{What: fmt.Sprintf("part %d: %s", i, why)}
		}
		l := label{p.Kind, p.Name}
		if seen[l] && (l != last || p.Kind == KindFile) {
			return &FormatError{What: fmt.Sprintf("part %d: %v is there already, and the parts of a stream must follow one another", i, l)}
		}
		seen[l], last = true, l
	}
	return nil
}

// rejectPart returns what is wrong with a part by itself, or "".
func rejectPart(p *Part) string {
	switch why := rejectName(p.Name); {
	case p.Kind < KindHost || p.Kind > KindObject:
		return fmt.Sprintf("%v, want 1 to %d", p.Kind, KindObject)
	case why != "":
		return why
	case p.Bytes < 0 || p.Bytes > math.MaxInt64-BlockBytes:
		return fmt.Sprintf("%d bytes", p.Bytes)
	case p.Kind != KindFile && p.Bytes > PartBytes:
		return fmt.Sprintf("%d bytes of a stream, want at most %d", p.Bytes, PartBytes)
	case blocksOf(p.Bytes) != int64(len(p.Sums)):
		return fmt.Sprintf("%d bytes with %d checksums of blocks, want %d", p.Bytes, len(p.Sums), blocksOf(p.Bytes))
	}
	return ""
}

// blocksOf is the number of blocks of n bytes.
func blocksOf(n int64) int64 { return (n + BlockBytes - 1) / BlockBytes }

// rejectName returns what is wrong with the name of a part, or "". Elements are separated by slashes. A
// machine may use a name as a path below a directory of its own: no name leads out of it.
func rejectName(name string) string {
	if len(name) > MaxNameBytes {
		return fmt.Sprintf("name of %d bytes, want at most %d", len(name), MaxNameBytes)
	}
	for element := range strings.SplitSeq(name, "/") {
		switch {
		case element == "" || element == "." || element == "..":
			return fmt.Sprintf("name %q has the element %q", name, element)
		case len(element) > MaxElementBytes:
			return fmt.Sprintf("name has an element of %d bytes, want at most %d", len(element), MaxElementBytes)
		case strings.ContainsFunc(element, notInNames):
			return fmt.Sprintf("name %q, want a-z, A-Z, 0-9, '.', '_' and '-', with slashes between elements", name)
		}
	}
	return ""
}

func notInNames(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_' && r != '-'
}
