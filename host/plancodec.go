package host

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/raft/raftpb"
)

// What hosts tell each other about plans, in bodies of kind transport.Control. Integers are uvarints.
//
//	plan request  56 │ group │ id 16 B (entry.IDOf) │ the data of the entry, of kind 32, 33, 35 or 36
//	plan answer   57 │ group │ id 16 B │ why the entry is refused, a sentence
const (
	// maxPlanBytes bounds the data of an entry, and maxRefusalBytes a sentence.
	maxPlanBytes    = control.MaxPlan
	maxRefusalBytes = control.MaxSentence
)

func encodePlanRequest(group uint64, q planRequest) []byte {
	body := binary.AppendUvarint([]byte{control.PlanRequest}, group)
	return append(append(body, q.id[:]...), q.data...)
}

// decodePlanRequest decodes a request; what it asks for is a valid entry.
func decodePlanRequest(body []byte) (group uint64, q planRequest, err error) {
	group, q.id, q.data, err = decodePlanBody(body, maxPlanBytes)
	if err == nil && (len(q.data) == 0 || q.data[0] == entry.EndKind || q.data[0] == entry.RescuedKind || !entry.IsMemberEntry(raftpb.EntryHost, q.data)) {
		err = fmt.Errorf("%w: %d bytes ask for no plan", control.ErrBad, len(body))
	}
	if err != nil {
		return 0, q, err
	}
	named, err := entry.IDOf(q.data)
	if err != nil {
		return 0, q, fmt.Errorf("%w: %w", control.ErrBad, err)
	}
	if named != q.id {
		return 0, q, fmt.Errorf("%w: a request for plan %v has another one", control.ErrBad, q.id)
	}
	q.data = append([]byte(nil), q.data...) // the body is not ours
	return group, q, nil
}

// planAnswer says why a plan is refused.
type planAnswer struct {
	group uint64
	id    membership.PlanID
	why   string
}

func (a planAnswer) encode() []byte {
	body := binary.AppendUvarint([]byte{control.PlanAnswer}, a.group)
	return append(append(body, a.id[:]...), a.why[:min(len(a.why), maxRefusalBytes)]...)
}

func decodePlanAnswer(body []byte) (a planAnswer, err error) {
	var why []byte
	if a.group, a.id, why, err = decodePlanBody(body, maxRefusalBytes); err != nil {
		return a, err
	}
	if !utf8.Valid(why) {
		return a, fmt.Errorf("%w: a refusal of a plan is no text", control.ErrBad)
	}
	a.why = string(why)
	return a, nil
}

func decodePlanBody(body []byte, most int) (group uint64, id membership.PlanID, rest []byte, err error) {
	group, n := binary.Uvarint(body[1:])
	rest = body[1+max(n, 0):]
	if n <= 0 || len(rest) < len(id) || len(rest)-len(id) > most {
		return 0, id, nil, fmt.Errorf("%w: %d bytes about a plan", control.ErrBad, len(body))
	}
	return group, membership.PlanID(rest), rest[len(id):], nil
}
