package plans

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
//	join refused  61 │ group │ why, a sentence

// Request asks the leader for an entry: to begin a plan or to cancel it, for example.
type Request struct {
	From uint64 // this host or another
	ID   membership.PlanID
	Data []byte // of the entry
}

// RequestOf returns the request of a host for an entry.
func RequestOf(from uint64, data []byte) Request {
	id, _ := entry.IDOf(data) // it is this program's
	return Request{From: from, ID: id, Data: data}
}

// Encode encodes a request for a group.
func (q Request) Encode(group uint64) []byte {
	body := binary.AppendUvarint([]byte{control.PlanRequest}, group)
	return append(append(body, q.ID[:]...), q.Data...)
}

// DecodeRequest decodes a request; what it asks for is a valid entry.
func DecodeRequest(body []byte) (group uint64, q Request, err error) {
	group, q.ID, q.Data, err = decodeBody(body, control.MaxPlan)
	if err == nil && (len(q.Data) == 0 || q.Data[0] == entry.EndKind || q.Data[0] == entry.RescuedKind || !entry.IsMemberEntry(raftpb.EntryHost, q.Data)) {
		err = fmt.Errorf("%w: %d bytes ask for no plan", control.ErrBad, len(body))
	}
	if err != nil {
		return 0, q, err
	}
	named, err := entry.IDOf(q.Data)
	if err != nil {
		return 0, q, fmt.Errorf("%w: %w", control.ErrBad, err)
	}
	if named != q.ID {
		return 0, q, fmt.Errorf("%w: a request for plan %v has another one", control.ErrBad, q.ID)
	}
	q.Data = append([]byte(nil), q.Data...) // the body is not ours
	return group, q, nil
}

// Answer says why a leader refuses a request.
type Answer struct {
	Group uint64
	ID    membership.PlanID
	Why   string
}

// Encode encodes an answer.
func (a Answer) Encode() []byte {
	body := binary.AppendUvarint([]byte{control.PlanAnswer}, a.Group)
	return append(append(body, a.ID[:]...), a.Why[:min(len(a.Why), control.MaxSentence)]...)
}

// DecodeAnswer decodes an answer.
func DecodeAnswer(body []byte) (a Answer, err error) {
	var why []byte
	if a.Group, a.ID, why, err = decodeBody(body, control.MaxSentence); err != nil {
		return a, err
	}
	if !utf8.Valid(why) {
		return a, fmt.Errorf("%w: a refusal of a plan is no text", control.ErrBad)
	}
	a.Why = string(why)
	return a, nil
}

func decodeBody(body []byte, most int) (group uint64, id membership.PlanID, rest []byte, err error) {
	group, n := binary.Uvarint(body[1:])
	rest = body[1+max(n, 0):]
	if n <= 0 || len(rest) < len(id) || len(rest)-len(id) > most {
		return 0, id, nil, fmt.Errorf("%w: %d bytes about a plan", control.ErrBad, len(body))
	}
	return group, membership.PlanID(rest), rest[len(id):], nil
}

// JoinRefused tells a host with a join token why it is not made a member.
type JoinRefused struct {
	Group uint64
	Why   string
}

// Encode encodes the record.
func (r JoinRefused) Encode() []byte {
	return append(binary.AppendUvarint([]byte{control.JoinRefused}, r.Group), r.Why[:min(len(r.Why), control.MaxSentence)]...)
}

// DecodeJoinRefused decodes such a record.
func DecodeJoinRefused(body []byte) (r JoinRefused, err error) {
	group, n := binary.Uvarint(body[1:])
	why := body[1+max(n, 0):]
	if n <= 0 || len(why) > control.MaxSentence || !utf8.Valid(why) {
		return r, fmt.Errorf("%w: %d bytes refuse a join token", control.ErrBad, len(body))
	}
	return JoinRefused{group, string(why)}, nil
}
