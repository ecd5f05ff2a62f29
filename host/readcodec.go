package host

import (
	"encoding/binary"

	"github.com/millrace/millrace/host/internal/control"
)

// Questions of followers that read, and the leader's answers, in bodies of kind transport.Control. After the
// kind they have only uvarints:
//
//	question:   32 │ group │ life │ number
//	answer:     33 │ group │ life │ number │ index
//
// life is that of the host that asks (transport.Introduction.Life), and number is new in this life. So an
// answer to an earlier process, or to a group that was closed and opened again, is known as such.

// readRecord is a question or an answer.
type readRecord struct {
	from                uint64 // the sender, as its connection says; not in the record
	group, life, number uint64
	index               uint64 // in an answer
}

func (r readRecord) encode(kind byte) []byte {
	b := make([]byte, 1, 1+4*binary.MaxVarintLen64)
	b[0] = kind
	b = control.AppendNumbers(b, r.group, r.life, r.number)
	if kind == control.ReadAnswer {
		b = control.AppendNumbers(b, r.index)
	}
	return b
}

// decodeRead decodes a body that begins with one of the two kinds.
func decodeRead(body []byte) (r readRecord, err error) {
	fields := []*uint64{&r.group, &r.life, &r.number, &r.index}
	if body[0] == control.ReadQuestion {
		fields = fields[:3]
	}
	err = control.DecodeNumbers(body, "a read", fields...)
	return r, err
}

// life returns the random number of this process.
func (h *Host) life() uint64 { return h.network.pulses.Life() }

// takeRead takes a question or an answer of another host. An answer to another life is dropped.
func (h *Host) takeRead(from uint64, body []byte) error {
	r, err := decodeRead(body)
	if err != nil {
		return err
	}
	r.from = from
	isQuestion := body[0] == control.ReadQuestion
	if g := h.groups.get(r.group); g != nil && (isQuestion && g.isMember(from) || !isQuestion && r.life == h.life() && g.isMemberOrLeads(from)) {
		g.inbox.putRead(r, isQuestion)
		g.wake()
	}
	return nil
}

// putRead puts a question or an answer. The latest of each host replaces the one before, so there are as many
// as there are hosts at most.
func (b *inbox) putRead(r readRecord, isQuestion bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
	case isQuestion:
		b.waiting.readQuestions = putLatest(b.waiting.readQuestions, r)
	default:
		b.waiting.readAnswers = putLatest(b.waiting.readAnswers, r)
	}
}

// putLatest puts a record, or replaces the one of the same host. Of one life the highest number stays: it
// covers what the others would.
func putLatest(records []readRecord, r readRecord) []readRecord {
	for i := range records {
		if was := &records[i]; was.from == r.from {
			if was.life != r.life || was.number < r.number {
				*was = r
			}
			return records
		}
	}
	return append(records, r)
}
