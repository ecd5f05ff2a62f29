package core

import (
	"encoding/binary"

	"github.com/millrace/millrace/raft"
	"github.com/millrace/millrace/sim/property"
)

// A read sees at least what was committed anywhere when it was asked (thesis §6.4). Checked at each answer:
// the context of a read is its number.

// asks returns the context of a new read.
func (o *oracle) asks() []byte {
	o.asked = append(o.asked, uint64(len(o.ghost)))
	return binary.LittleEndian.AppendUint64(nil, uint64(len(o.asked)-1))
}

// answered checks the answer to a read.
func (o *oracle) answered(n *node, s *raft.ReadState) {
	number := uint64(1 << 63)
	if len(s.RequestCtx) == 8 {
		number = binary.LittleEndian.Uint64(s.RequestCtx)
	}
	if number >= uint64(len(o.asked)) {
		violate(property.ReadsAreCurrent, "node %d answers a read %x that was never asked", n.id, s.RequestCtx)
		return
	}
	if floor := o.asked[number]; s.Index < floor || s.Index > uint64(len(o.ghost)) {
		violate(property.ReadsAreCurrent, "node %d may read at %d; when it was asked, %d entries were committed, and now %d are", n.id, s.Index, floor, len(o.ghost))
	}
	o.answers++
	n.w.healed(n, number)
}
