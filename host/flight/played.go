package flight

import (
	"errors"
	"fmt"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/raft/raftpb"
)

// played is the Storage of a replay: it answers with the recorded replies, in their order. A question that
// the recorded core did not ask at this point shows that the replay differs; played then ends the input by a
// panic with differs, which feed catches.
type played struct {
	d         *decoder
	step      *Step
	quiet     bool // a query asks, and nothing was recorded
	fails     bool // the recorded storage failed at this question of a query
	ended     any  // the panic that has ended the input
	malformed error
	terms     map[uint64]uint64 // that were asked for, for queries
}

// differs is a panic that ends an input of the replay: how it differs.
type differs string

// unfinished is one that ends it because the recording ends.
type unfinished struct{}

// maxKnownTerms bounds the terms that are remembered for queries.
const maxKnownTerms = 1 << 12

func (s *played) begin(d *decoder, step *Step) {
	if s.terms == nil || len(s.terms) > maxKnownTerms || step.Record.Kind == Start {
		s.terms = map[uint64]uint64{}
	}
	s.d, s.step, s.fails, s.ended, s.malformed = d, step, false, nil, nil
}

func (s *played) end(why any) {
	if s.ended == nil {
		s.ended = why
	}
	panic(s.ended)
}

// answer returns the recorded reply to a question.
func (s *played) answer(k Kind, question ...uint64) Record {
	if s.ended != nil { // a deferred function of the core asks again
		s.end(s.ended)
	}
	if len(s.d.b) == 0 {
		s.end(unfinished{})
	}
	r, err := s.d.next()
	if err != nil {
		s.malformed = err
		s.end(unfinished{})
	}
	asks := describeQuestion(k, question)
	switch {
	case r.Kind.isInput():
		s.end(differs(fmt.Sprintf("the replayed core asks its storage for %s, and the recorded one asked for nothing more", asks)))
	case r.Kind != k:
		s.end(differs(fmt.Sprintf("the replayed core asks its storage for %s, and the recorded one for: %v", asks, r.Kind)))
	}
	for i, n := range question {
		if r.N[i] != n {
			s.end(differs(fmt.Sprintf("the replayed core asks its storage for %s, and the recorded one for %s", asks, describeQuestion(r.Kind, r.N[:len(question)]))))
		}
	}
	s.step.Asked = append(s.step.Asked, r)
	return r
}

func describeQuestion(k Kind, n []uint64) string {
	switch k {
	case ReplyTerm:
		return fmt.Sprintf("the term of entry %d", n[0])
	case ReplyEntries:
		return fmt.Sprintf("entries [%d,%d) for reader %d", n[1], n[2], n[0])
	case ReplyChanges:
		return fmt.Sprintf("the changes of members in [%d,%d)", n[0], n[1])
	}
	return "the " + k.String()
}

// left says what recorded replies were not asked for, or is empty.
func (s *played) left(d *decoder) string {
	if len(d.b) == 0 {
		return ""
	}
	look := *d
	if r, err := look.next(); err == nil && !r.Kind.isInput() {
		return fmt.Sprintf("the recorded core went on to ask its storage (%v), and the replayed one does not", r.Kind)
	}
	return ""
}

// Term implements raft.Storage.
func (s *played) Term(i uint64) (uint64, error) {
	switch {
	case s.fails:
		return 0, errors.New("the recorded storage failed here")
	case s.quiet:
		if term, known := s.terms[i]; known {
			return term, nil
		}
		return 0, raft.ErrCompacted
	}
	r := s.answer(ReplyTerm, i)
	if r.Err == nil {
		s.terms[i] = r.Value
	}
	return r.Value, r.Err
}

// FirstIndex implements raft.Storage.
func (s *played) FirstIndex() (uint64, error) {
	r := s.answer(ReplyFirst)
	return r.Value, r.Err
}

// LastIndex implements raft.Storage.
func (s *played) LastIndex() (uint64, error) {
	r := s.answer(ReplyLast)
	return r.Value, r.Err
}

// Entries implements raft.Storage.
func (s *played) Entries(lo, hi, _ uint64) ([]raftpb.Entry, error) { return s.EntriesFor(0, lo, hi, 0) }

// EntriesFor implements raft.ReaderStorage.
func (s *played) EntriesFor(reader, lo, hi, _ uint64) ([]raftpb.Entry, error) {
	r := s.answer(ReplyEntries, reader, lo, hi)
	return r.Entries, r.Err
}

// Snapshot implements raft.Storage.
func (s *played) Snapshot() (raftpb.Snapshot, error) {
	r := s.answer(ReplySnapshot)
	if r.Err != nil {
		return raftpb.Snapshot{}, r.Err
	}
	return *r.Snap, nil
}

// InitialState implements raft.Storage.
func (s *played) InitialState() (raftpb.HardState, raftpb.ConfState, error) {
	r := s.answer(ReplyInitial)
	if r.Err != nil {
		return raftpb.HardState{}, raftpb.ConfState{}, r.Err
	}
	return r.Hard, *r.Conf, nil
}

// Changes implements raft.ChangesStorage.
func (s *played) Changes(lo, hi uint64) ([]uint64, error) {
	r := s.answer(ReplyChanges, lo, hi)
	return r.Indexes, r.Err
}

// sayer is the Logger of a replay: it notes what the core says.
type sayer Step

func (s *sayer) say(text string) { s.Said = append(s.Said, text) }

// The methods of raft.Logger.

func (s *sayer) Debug(v ...any)                   { s.say(fmt.Sprint(v...)) }
func (s *sayer) Debugf(format string, v ...any)   { s.say(fmt.Sprintf(format, v...)) }
func (s *sayer) Info(v ...any)                    { s.say(fmt.Sprint(v...)) }
func (s *sayer) Infof(format string, v ...any)    { s.say(fmt.Sprintf(format, v...)) }
func (s *sayer) Warning(v ...any)                 { s.say(fmt.Sprint(v...)) }
func (s *sayer) Warningf(format string, v ...any) { s.say(fmt.Sprintf(format, v...)) }
func (s *sayer) Error(v ...any)                   { s.say(fmt.Sprint(v...)) }
func (s *sayer) Errorf(format string, v ...any)   { s.say(fmt.Sprintf(format, v...)) }
func (s *sayer) Fatal(v ...any)                   { s.say(fmt.Sprint(v...)) }
func (s *sayer) Fatalf(format string, v ...any)   { s.say(fmt.Sprintf(format, v...)) }
func (s *sayer) Panic(v ...any)                   { s.say(fmt.Sprint(v...)) }
func (s *sayer) Panicf(format string, v ...any)   { s.say(fmt.Sprintf(format, v...)) }
