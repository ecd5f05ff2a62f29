package host

import (
	"encoding/binary"
	"fmt"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/transport"
)

// What hosts tell each other for placement, in bodies of kind transport.Control. Numbers are uvarints.
//
//	load question  64 │ number
//	load answer    65 │ number of the question │ groups that lead on the sender │ unfit │ its zone, up to 64 B
//	moved          66 │ group │ term │ number in that term │ 1: a caller has asked for it, 0: placement
//
// A host that wants to move no leadership asks nothing, and is asked only by those that do.

// load is what a host says of itself: how much it leads, and whether it should get more.
type load struct {
	number uint64 // of the question
	leads  uint64
	unfit  unfitness
	zone   string
}

// unfitness is why a host should get no leadership.
type unfitness uint64

const (
	fit unfitness = iota
	stopsSoon
	diskStands
	turnsHang
	machinesHang
)

// String says it of a host.
func (u unfitness) String() string {
	switch u {
	case fit:
		return "works"
	case stopsSoon:
		return "is about to stop"
	case diskStands:
		return "has a disk that is full or completes nothing"
	case turnsHang:
		return "has a group whose turn hangs"
	case machinesHang:
		return "has a state machine that hangs"
	}
	return fmt.Sprintf("is not fit to lead (%d)", uint64(u))
}

func encodeLoadQuestion(number uint64) []byte {
	return control.AppendNumbers([]byte{control.LoadQuestion}, number)
}

func (l load) encode() []byte {
	return append(control.AppendNumbers([]byte{control.LoadAnswer}, l.number, l.leads, uint64(l.unfit)), l.zone...)
}

// decodeLoad decodes a load answer.
func decodeLoad(body []byte) (l load, err error) {
	var numbers [3]uint64
	rest := body[1:]
	for i := range numbers {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return load{}, fmt.Errorf("%w: %d bytes about the load of a host, and a number is cut off or too large", control.ErrBad, len(body))
		}
		numbers[i], rest = v, rest[n:]
	}
	l = load{number: numbers[0], leads: numbers[1], unfit: unfitness(numbers[2]), zone: string(rest)}
	switch why := rejectZone(l.zone); {
	case why != nil:
		return load{}, fmt.Errorf("%w: the zone of a host: %w", control.ErrBad, why)
	case l.leads > maxLeads:
		return load{}, fmt.Errorf("%w: a host says that it leads %d groups", control.ErrBad, l.leads)
	}
	return l, nil
}

// maxLeads bounds what another host may say, so that sums do not overflow.
const maxLeads = 1 << 30

// movedRecord says that the leadership of a group is handed over.
type movedRecord struct {
	group uint64
	moveName
	asked bool
}

// moveName names a hand-over of a group, of which a term may have several: a target may not be elected.
type moveName struct{ term, number uint64 }

func (r movedRecord) encode() []byte {
	asked := uint64(0)
	if r.asked {
		asked = 1
	}
	return control.AppendNumbers([]byte{control.Moved}, r.group, r.term, r.number, asked)
}

func decodeMoved(body []byte) (r movedRecord, err error) {
	var asked uint64
	if err = control.DecodeNumbers(body, "a leadership that was handed over", &r.group, &r.term, &r.number, &asked); err == nil && asked > 1 {
		err = fmt.Errorf("%w: %d says whether a caller has asked for a hand-over", control.ErrBad, asked)
	}
	r.asked = asked == 1
	return r, err
}

// takePlacing takes a body about placement.
func (h *Host) takePlacing(from uint64, body []byte) error {
	switch body[0] {
	case control.LoadQuestion:
		var number uint64
		if err := control.DecodeNumbers(body, "a question about load", &number); err != nil {
			return err
		}
		h.transport.SendBytes(from, transport.Control, h.load(number).encode())
	case control.LoadAnswer:
		l, err := decodeLoad(body)
		if err != nil {
			return err
		}
		h.placer.answered(from, l)
	default:
		r, err := decodeMoved(body)
		if err != nil {
			return err
		}
		if g := h.groups.get(r.group); g != nil {
			g.takeMoved(from, r)
		}
	}
	return nil
}
