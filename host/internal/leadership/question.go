package leadership

import "github.com/millrace/millrace/host/internal/control"

// AppliedRecord is a question of a leader, or a member's answer, in a body of kind transport.Control. Its
// numbers are uvarints:
//
//	question  16 │ group │ term │ number
//	answer    17 │ group │ term │ number of the question │ applied index
type AppliedRecord struct {
	From                uint64 // the sender, as its connection says; not in the record
	Group, Term, Number uint64
	Applied             uint64
}

// Encode encodes one of the two kinds.
func (r AppliedRecord) Encode(kind byte) []byte {
	b := control.AppendNumbers([]byte{kind}, r.Group, r.Term, r.Number)
	if kind == control.AppliedAnswer {
		b = control.AppendNumbers(b, r.Applied)
	}
	return b
}

// DecodeApplied decodes a body that begins with one of the two kinds.
func DecodeApplied(body []byte) (r AppliedRecord, err error) {
	fields := []*uint64{&r.Group, &r.Term, &r.Number, &r.Applied}
	if body[0] == control.AppliedQuestion {
		fields = fields[:3]
	}
	err = control.DecodeNumbers(body, "what is applied", fields...)
	return r, err
}
