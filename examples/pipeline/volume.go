package main

import (
	"context"
	"encoding/binary"
	"io"

	"github.com/millrace/millrace"
)

// volume is the state machine: how many bytes the lines have.
type volume struct{ bytes int64 }

func (v *volume) Apply(batch []millrace.Command[[]byte], results []int64) error {
	for i := range batch {
		v.bytes += int64(len(batch[i].Value))
		results[i] = v.bytes
	}
	return nil
}

func (v *volume) Snapshot() (millrace.Snapshot, error) {
	return millrace.BytesSnapshot(binary.BigEndian.AppendUint64(nil, uint64(v.bytes))), nil
}

func (v *volume) Restore(_ context.Context, r io.Reader) error {
	return binary.Read(r, binary.BigEndian, &v.bytes)
}
