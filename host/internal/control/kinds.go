// Package control is what hosts say to each other beside Raft's messages and pulses. It has one table of all
// records with kind, class and bound (kinds.go), and the form that most of them have (numbers.go). Package
// host takes them (host/receive.go). What a record means is in the file that the table names as its home.
// There is no state and no lock.
package control

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/transport"
)

// The kinds of records: the first byte of each. A number is never reused, not even for a later form of the
// same record. Entries of the log begin with kinds, too, in a space of their own (host/internal/entry).
const (
	Greeting        byte = 1
	Refusal         byte = 2
	Stranger        byte = 4
	Removed         byte = 5
	AppliedQuestion byte = 16
	AppliedAnswer   byte = 17
	Forward         byte = 24
	ForwardRefusal  byte = 25
	ReadQuestion    byte = 32
	ReadAnswer      byte = 33
	Report          byte = 40
	Stop            byte = 41
	Finding         byte = 42
	SnapshotOffer   byte = 48
	SnapshotAsk     byte = 49
	SnapshotBlock   byte = 50
	SnapshotEnd     byte = 51
	PlanRequest     byte = 56
	PlanAnswer      byte = 57
	RosterQuestion  byte = 58
	RosterAnswer    byte = 59
	Addresses       byte = 60
	JoinRefused     byte = 61
	ViewQuestion    byte = 62
	ViewAnswer      byte = 63
	LoadQuestion    byte = 64
	LoadAnswer      byte = 65
	Moved           byte = 66
	Settings        byte = 67
	ObjectQuestion  byte = 72
	ObjectAnswer    byte = 73
	VersionQuestion byte = 80
	VersionAnswer   byte = 81
)

// What records have inside, in bytes or items. The bounds of the table follow from it.
const (
	MaxBlock     = 64 << 10  // bytes of content in a block
	MaxPlan      = 64 << 10  // bytes of an entry that a plan request asks for
	MaxSentence  = 4 << 10   // bytes of why something is refused
	MaxRoster    = 1 << 20   // bytes of a roster: members and those removed, with their addresses
	MaxAddresses = 256 << 10 // bytes about where hosts are
	MaxMembers   = 1 << 10   // of a group
	MaxSettings  = 64        // settings of a host
	MaxRanges    = 16        // ranges of blocks in an ask
	MaxMissing   = 256       // ids of objects in an answer
	MaxZone      = 64        // bytes of a zone

	number      = 10 // bytes of the longest uvarint
	incarnation = 16
	hash        = 32
	id          = 16
)

// Record is a row of the table.
type Record struct {
	Kind byte
	Name string
	// As are the kinds of frames in which the record comes.
	As []transport.Kind
	// Max bounds the body, its kind included; 0: what the receiver has space for bounds it (forward.go).
	Max int
	// Home is the file that has its form.
	Home string
}

var (
	small  = []transport.Kind{transport.Control}
	bulk   = []transport.Kind{transport.Bulk}
	either = []transport.Kind{transport.Control, transport.Bulk}
)

// Records is the table, by kind.
var Records = [...]Record{
	{Greeting, "greeting", small, 2, "host/greetings.go"},
	{Refusal, "refusal", small, 1 + number + incarnation, "host/internal/members/record.go"},
	{Stranger, "stranger", small, 1 + number, "host/internal/members/record.go"},
	{Removed, "removed", small, 1 + 2*number + incarnation, "host/internal/members/record.go"},
	{AppliedQuestion, "applied question", small, 1 + 3*number, "host/internal/leadership/question.go"},
	{AppliedAnswer, "applied answer", small, 1 + 4*number, "host/internal/leadership/question.go"},
	{Forward, "forward", either, 0, "host/internal/proposals/record.go"},
	{ForwardRefusal, "forward refusal", small, 1 + 2*number + 2, "host/internal/proposals/record.go"},
	{ReadQuestion, "read question", small, 1 + 3*number, "host/internal/reads/record.go"},
	{ReadAnswer, "read answer", small, 1 + 4*number, "host/internal/reads/record.go"},
	{Report, "report", small, 4 << 10, "host/internal/divergence/record.go"},
	{Stop, "stop", small, 4 << 10, "host/internal/divergence/record.go"},
	{Finding, "finding", small, 64 << 10, "host/internal/divergence/record.go"},
	{SnapshotOffer, "snapshot offer", small, 1 + 5*number + hash, "host/internal/bulk/record.go"},
	{SnapshotAsk, "snapshot ask", small, 2 + 3*number + hash + MaxRanges*3*number, "host/internal/bulk/record.go"},
	{SnapshotBlock, "snapshot block", bulk, 1 + 3*number + hash + MaxBlock, "host/internal/bulk/record.go"},
	{SnapshotEnd, "snapshot end", small, 2 + number + hash, "host/internal/bulk/record.go"},
	{PlanRequest, "plan request", small, 1 + number + id + MaxPlan, "host/internal/plans/record.go"},
	{PlanAnswer, "plan answer", small, 1 + number + id + MaxSentence, "host/internal/plans/record.go"},
	{RosterQuestion, "roster question", small, 1 + 2*number, "host/internal/members/record.go"},
	{RosterAnswer, "roster answer", small, 1 + number + MaxRoster, "host/internal/members/record.go"},
	{Addresses, "addresses", small, MaxAddresses, "host/internal/peers/addresses.go"},
	{JoinRefused, "join refused", small, 1 + number + MaxSentence, "host/internal/plans/record.go"},
	{ViewQuestion, "view question", small, 1 + number, "host/internal/leadership/view.go"},
	{ViewAnswer, "view answer", small, 1 + (2+MaxMembers)*number, "host/internal/leadership/view.go"},
	{LoadQuestion, "load question", small, 1 + number, "host/internal/placement/record.go"},
	{LoadAnswer, "load answer", small, 1 + 3*number + MaxZone, "host/internal/placement/record.go"},
	{Moved, "moved", small, 1 + 4*number, "host/internal/placement/record.go"},
	{Settings, "settings", small, 1 + MaxSettings*2*number, "host/internal/peers/settings.go"},
	{ObjectQuestion, "object question", small, 1 + 3*number, "host/internal/objects/record.go"},
	{ObjectAnswer, "object answer", small, 1 + 6*number + MaxMissing*id, "host/internal/objects/record.go"},
	{VersionQuestion, "version question", small, 1 + 2*number, "host/internal/versions/record.go"},
	{VersionAnswer, "version answer", small, 1 + 5*number, "host/internal/versions/record.go"},
}

// rows has the row of each kind in Records plus one; 0: there is none.
var rows = func() (rows [256]uint8) {
	for i := range Records {
		rows[Records[i].Kind] = uint8(i + 1)
	}
	return rows
}()

// ErrBad is found in errors about a record that cannot be read.
var ErrBad = errors.New("a control record cannot be read")

// Validate rejects a body that is no record of the table, came in another kind of frame, or is larger than
// its bound. The caller counts it. What is valid has a first byte.
func Validate(as transport.Kind, body []byte) error {
	if len(body) == 0 || rows[body[0]] == 0 {
		return fmt.Errorf("%w: %d bytes of an unknown kind", ErrBad, len(body))
	}
	r := &Records[rows[body[0]]-1]
	if r.As[0] != as && r.As[len(r.As)-1] != as {
		return fmt.Errorf("%w: a record %q of %d bytes came as %v", ErrBad, r.Name, len(body), as)
	}
	if r.Max > 0 && len(body) > r.Max {
		return fmt.Errorf("%w: a record %q of %d bytes, want at most %d", ErrBad, r.Name, len(body), r.Max)
	}
	return nil
}
