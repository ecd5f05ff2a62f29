package leadership

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/membership"
)

// Followers need not hear each other, so only the leader knows which members are there. A follower that is
// asked (Group.Members, Group.Plan) asks its leader, and answers by what that has said lately:
//
//	view question  62 │ group
//	view answer    63 │ group │ n │ n × id of a member that the leader has heard within an election timeout
//
// in bodies of kind transport.Control; integers are uvarints. A leader of an earlier version answers nothing.
// Then the follower says that it does not know. It never says "no" of a member that it merely does not hear.

// View is which members a leader has heard.
type View struct {
	From, Term uint64
	At         int64 // in ticks that were not missed
	Here       []uint64
}

// Views are the latest view of a follower, and when it asked for one. Any goroutine may call its methods.
type Views struct {
	latest  atomic.Pointer[View]
	askedAt atomic.Int64 // plus one; 0: never
}

// Of returns the view of a leader in a term; nil: it has said nothing since a tick.
func (v *Views) Of(leader, term uint64, since int64) *View {
	latest := v.latest.Load()
	if latest == nil || latest.From != leader || latest.Term != term || latest.At < since {
		return nil
	}
	return latest
}

// Store replaces the view.
func (v *Views) Store(latest *View) { v.latest.Store(latest) }

// MayAsk reports whether no question was asked for a time before now, and counts one that is asked then.
func (v *Views) MayAsk(now, pace int64) bool {
	was := v.askedAt.Load()
	return (was == 0 || now+1-was >= pace) && v.askedAt.CompareAndSwap(was, now+1)
}

// EncodeViewQuestion returns the question of a group.
func EncodeViewQuestion(group uint64) []byte {
	return binary.AppendUvarint([]byte{control.ViewQuestion}, group)
}

// EncodeView returns the answer of a leader that has heard some members.
func EncodeView(group uint64, here []uint64) []byte {
	body := binary.AppendUvarint(binary.AppendUvarint([]byte{control.ViewAnswer}, group), uint64(len(here)))
	for _, id := range here {
		body = binary.AppendUvarint(body, id)
	}
	return body
}

// DecodeView decodes a question, which has no members, or an answer.
func DecodeView(body []byte) (group uint64, here []uint64, err error) {
	r := entry.Reader{Rest: body[1:]}
	group = r.Uvarint(^uint64(0))
	if body[0] == control.ViewAnswer {
		for range r.Uvarint(membership.MaxMembers) {
			here = append(here, r.Uvarint(^uint64(0)))
		}
	}
	if r.Bad || len(r.Rest) > 0 {
		return 0, nil, fmt.Errorf("%w: %d bytes say or ask who is there", control.ErrBad, len(body))
	}
	return group, here, nil
}
