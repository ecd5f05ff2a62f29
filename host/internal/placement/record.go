package placement

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/millrace/millrace/host/internal/control"
)

// What hosts tell each other for placement, in bodies of kind transport.Control. Numbers are uvarints.
//
//	load question  64 │ number
//	load answer    65 │ number of the question │ groups that lead on the sender │ unfit │ its zone, up to 64 B
//	moved          66 │ group │ term │ number in that term │ 1: a caller has asked for it, 0: placement
//
// A host that wants to move no leadership asks nothing, and is asked only by those that do.

// Load is what a host says of itself: how much it leads, and whether it should get more.
type Load struct {
	Number uint64 // of the question
	Leads  uint64
	Unfit  Unfitness
	Zone   string
}

// Unfitness is why a host should get no leadership.
type Unfitness uint64

// The reasons.
const (
	Fit Unfitness = iota
	StopsSoon
	DiskStands
	TurnsHang
	MachinesHang
)

// String says it of a host.
func (u Unfitness) String() string {
	switch u {
	case Fit:
		return "works"
	case StopsSoon:
		return "is about to stop"
	case DiskStands:
		return "has a disk that is full or completes nothing"
	case TurnsHang:
		return "has a group whose turn hangs"
	case MachinesHang:
		return "has a state machine that hangs"
	}
	return fmt.Sprintf("is not fit to lead (%d)", uint64(u))
}

// EncodeQuestion encodes a load question.
func EncodeQuestion(number uint64) []byte {
	return control.AppendNumbers([]byte{control.LoadQuestion}, number)
}

// Encode encodes a load answer.
func (l Load) Encode() []byte {
	return append(control.AppendNumbers([]byte{control.LoadAnswer}, l.Number, l.Leads, uint64(l.Unfit)), l.Zone...)
}

// DecodeLoad decodes a load answer.
func DecodeLoad(body []byte) (l Load, err error) {
	var numbers [3]uint64
	rest := body[1:]
	for i := range numbers {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return Load{}, fmt.Errorf("%w: %d bytes about the load of a host, and a number is cut off or too large", control.ErrBad, len(body))
		}
		numbers[i], rest = v, rest[n:]
	}
	l = Load{Number: numbers[0], Leads: numbers[1], Unfit: Unfitness(numbers[2]), Zone: string(rest)}
	switch why := RejectZone(l.Zone); {
	case why != nil:
		return Load{}, fmt.Errorf("%w: the zone of a host: %w", control.ErrBad, why)
	case l.Leads > MaxLeads:
		return Load{}, fmt.Errorf("%w: a host says that it leads %d groups", control.ErrBad, l.Leads)
	}
	return l, nil
}

// MaxLeads bounds what another host may say, so that sums do not overflow.
const MaxLeads = 1 << 30

// Moved says that the leadership of a group is handed over.
type Moved struct {
	Group uint64
	MoveName
	Asked bool
}

// MoveName names a hand-over of a group, of which a term may have several: a target may not be elected.
type MoveName struct{ Term, Number uint64 }

// Encode encodes the record.
func (r Moved) Encode() []byte {
	asked := uint64(0)
	if r.Asked {
		asked = 1
	}
	return control.AppendNumbers([]byte{control.Moved}, r.Group, r.Term, r.Number, asked)
}

// DecodeMoved decodes such a record.
func DecodeMoved(body []byte) (r Moved, err error) {
	var asked uint64
	if err = control.DecodeNumbers(body, "a leadership that was handed over", &r.Group, &r.Term, &r.Number, &asked); err == nil && asked > 1 {
		err = fmt.Errorf("%w: %d says whether a caller has asked for a hand-over", control.ErrBad, asked)
	}
	r.Asked = asked == 1
	return r, err
}

// RejectZone says what is wrong with the name of a zone, or returns nil.
func RejectZone(zone string) error {
	if len(zone) > MaxZone || !utf8.ValidString(zone) {
		return fmt.Errorf("it has %d bytes, want text of at most %d", len(zone), MaxZone)
	}
	return nil
}

// MaxZone bounds the name of a zone, in bytes.
const MaxZone = control.MaxZone
