package peers

import (
	"encoding/binary"
	"fmt"

	"github.com/millrace/millrace/host/internal/control"
	"github.com/millrace/millrace/host/internal/entry"
	"github.com/millrace/millrace/host/internal/identity"
	"github.com/millrace/millrace/raft"
)

// Hosts that meet tell each other where the others are, and later which host has moved. So a host that joins
// needs the address of one, and so do all hosts if they move at once:
//
//	addresses  60 │ n × (id uvarint, incarnation 16 B, generation uvarint, length uvarint, address)
//
// in a body of kind transport.Control. Incarnation and generation are the life in which the host has said its
// address; zeros if it was never heard. An address counts if the reader knows none for that host, or does not
// hear the host and has its address of an earlier life.

// Append appends what a record says of one host: where it said that it is, or else where others say.
func (l Location) Append(body []byte, id uint64) []byte {
	addr := l.Said
	if addr == "" {
		addr = l.Given
	}
	body = append(binary.AppendUvarint(body, id), l.Incarnation[:]...)
	body = binary.AppendUvarint(body, l.Generation)
	return append(binary.AppendUvarint(body, uint64(len(addr))), addr...)
}

// AppendIfItFits is Append, as long as the body stays in its bound.
func (l Location) AppendIfItFits(body []byte, id uint64) []byte {
	if len(body) > control.MaxAddresses-3*binary.MaxVarintLen64-len(l.Incarnation)-identity.MaxAddrBytes {
		return body
	}
	return l.Append(body, id)
}

// DecodeAddresses calls take for each host of a body, until it returns an error. What it has called take
// for stays if the rest is bad.
func DecodeAddresses(body []byte, take func(id uint64, said Location) error) error {
	if len(body) > control.MaxAddresses {
		return fmt.Errorf("%w: %d bytes say where hosts are, want at most %d", control.ErrBad, len(body), control.MaxAddresses)
	}
	r := entry.Reader{Rest: body[1:]}
	for len(r.Rest) > 0 && !r.Bad {
		var said Location
		id := r.Uvarint(^uint64(0))
		copy(said.Incarnation[:], r.Bytes(uint64(len(said.Incarnation))))
		said.Generation = r.Uvarint(^uint64(0))
		said.Said = string(r.Bytes(r.Uvarint(identity.MaxAddrBytes)))
		if r.Bad || id == 0 || raft.IsLocalMsgTarget(id) {
			return fmt.Errorf("%w: %d bytes say where hosts are", control.ErrBad, len(body))
		}
		if err := take(id, said); err != nil {
			return err
		}
	}
	if r.Bad {
		return fmt.Errorf("%w: %d bytes say where hosts are", control.ErrBad, len(body))
	}
	return nil
}
