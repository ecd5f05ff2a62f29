package reads

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

// Record is a question or an answer.
type Record struct {
	From                uint64 // the sender, as its connection says; not in the record
	Group, Life, Number uint64
	Index               uint64 // in an answer
}

// Question returns the record as a question.
func (r Record) Question() []byte { return r.encode(control.ReadQuestion, r.Group, r.Life, r.Number) }

// Answer returns it as an answer.
func (r Record) Answer() []byte {
	return r.encode(control.ReadAnswer, r.Group, r.Life, r.Number, r.Index)
}

func (r Record) encode(kind byte, fields ...uint64) []byte {
	b := make([]byte, 1, 1+len(fields)*binary.MaxVarintLen64)
	b[0] = kind
	return control.AppendNumbers(b, fields...)
}

// DecodeRecord decodes a body that begins with the kind of a question or of an answer.
func DecodeRecord(body []byte) (r Record, isQuestion bool, err error) {
	fields := []*uint64{&r.Group, &r.Life, &r.Number, &r.Index}
	if isQuestion = body[0] == control.ReadQuestion; isQuestion {
		fields = fields[:3]
	}
	err = control.DecodeNumbers(body, "a read", fields...)
	return r, isQuestion, err
}

// Enqueue enqueues a question or an answer of another member, for a turn. An answer to another life is
// dropped. The latest of each host replaces the one before, so there are as many as there are hosts at
// most.
func (q *Queue) Enqueue(r Record, isQuestion bool) {
	if !isQuestion && r.Life != q.settings.Life {
		return
	}
	q.mu.Lock()
	if ended := q.closed != nil && !q.halted; !ended {
		if isQuestion {
			q.questions = keepLatest(q.questions, r)
		} else {
			q.answers = keepLatest(q.answers, r)
		}
		q.came.Store(true)
	}
	q.mu.Unlock()
	q.wiring.Step()
}

// HasRecords reports whether records wait for a turn.
func (q *Queue) HasRecords() bool { return q.came.Load() }

// dequeue returns the records that have come.
func (q *Queue) dequeue() (questions, answers []Record) {
	if !q.came.Load() {
		return nil, nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	questions, answers, q.questions, q.answers = q.questions, q.answers, nil, nil
	q.came.Store(false)
	return questions, answers
}

// keepLatest keeps a record, or replaces the one of the same host. Of one life the highest number stays: it
// covers what the others would.
func keepLatest(records []Record, r Record) []Record {
	for i := range records {
		if was := &records[i]; was.From == r.From {
			if was.Life != r.Life || was.Number < r.Number {
				*was = r
			}
			return records
		}
	}
	return append(records, r)
}
