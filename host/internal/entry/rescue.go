package entry

import (
	"encoding/binary"
	"fmt"

	"github.com/millrace/millrace/host/membership"
	"github.com/millrace/millrace/transport"
)

// What a rescue leaves in a directory, and how a host reads it.
//
// The last entry of each rescued group is of a kind that no running member writes:
//
//	entry rescued: 37 │ new cluster u64 │ former cluster u64 │ member u64 │ its new incarnation 16 B
//
// When it is in force, that member with its new directory is the only one. The entries before it bind other
// directories, so the member reads them as one that joins does (joined.json): its promises count when this
// entry is in force. Members that are added later read the same.
//
// joined.json also names the life before: snapshots of it are this directory's, up to the entry. Nothing in
// them is written again.
const RescuedKind byte = 37

// Rescued is the content of the entry.
type Rescued struct {
	Cluster, Former, ID uint64
	Incarnation         transport.Incarnation
}

const rescuedBytes = 1 + 3*8 + 16

// Encode returns the data of the entry.
func (r Rescued) Encode() []byte {
	data := binary.LittleEndian.AppendUint64([]byte{RescuedKind}, r.Cluster)
	data = binary.LittleEndian.AppendUint64(data, r.Former)
	data = binary.LittleEndian.AppendUint64(data, r.ID)
	return append(data, r.Incarnation[:]...)
}

// DecodeRescued reads what Encode returns.
func DecodeRescued(data []byte) (r Rescued, err error) {
	if len(data) != rescuedBytes {
		return r, fmt.Errorf("%w: an entry of %d bytes says that the group was rescued, want %d", membership.ErrFormat, len(data), rescuedBytes)
	}
	r.Cluster, r.Former = binary.LittleEndian.Uint64(data[1:]), binary.LittleEndian.Uint64(data[9:])
	r.ID, r.Incarnation = binary.LittleEndian.Uint64(data[17:]), transport.Incarnation(data[25:])
	if r.Cluster == 0 || r.Cluster == r.Former {
		return r, fmt.Errorf("%w: a group is rescued into cluster %d from cluster %d", membership.ErrFormat, r.Cluster, r.Former)
	}
	return r, nil
}
