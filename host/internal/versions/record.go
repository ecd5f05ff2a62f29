package versions

import (
	"fmt"
	"math"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/statemachine"
)

// Record is a question of one member, or the answer of another, in a body of kind transport.Control. Its
// numbers are uvarints:
//
//	question  80 │ group │ number
//	answer    81 │ group │ number of the question │ lowest │ highest │ the version that it applies
//
// A program of before these records answers nothing.
type Record struct {
	Group, Number uint64
	Said          Said
}

// Said is what a member has said of itself.
type Said struct {
	Can statemachine.Versions
	At  uint32 // the version of the group, as far as the member has applied its log
}

// EncodeQuestion returns the question of a group.
func EncodeQuestion(group, number uint64) []byte {
	return control.AppendNumbers([]byte{control.VersionQuestion}, group, number)
}

// EncodeAnswer returns the answer to a question.
func EncodeAnswer(group, number uint64, s Said) []byte {
	return control.AppendNumbers([]byte{control.VersionAnswer}, group, number, uint64(s.Can.Lowest), uint64(s.Can.Highest), uint64(s.At))
}

// Decode decodes a question or an answer.
func Decode(body []byte) (r Record, err error) {
	if body[0] == control.VersionQuestion {
		err = control.DecodeNumbers(body, "a question about versions", &r.Group, &r.Number)
		return r, err
	}
	var lowest, highest, at uint64
	if err = control.DecodeNumbers(body, "versions", &r.Group, &r.Number, &lowest, &highest, &at); err != nil {
		return r, err
	}
	if lowest > highest || max(highest, at) > math.MaxUint32 {
		return r, fmt.Errorf("%w: a member says that it can do versions %d to %d and is at %d", control.ErrBad, lowest, highest, at)
	}
	r.Said = Said{statemachine.Versions{Lowest: uint32(lowest), Highest: uint32(highest)}, uint32(at)}
	return r, nil
}
