package smtest

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/millrace/millrace"
)

// rota adds up commands for each member, in its state; fault is what is wrong with it.
type rota struct {
	fault   string
	sum     uint64
	members []uint64
	changes uint64
}

func (r *rota) Apply(commands []millrace.Command[uint64], results []uint64) error {
	for i, c := range commands {
		r.sum += c.Value * uint64(len(r.members))
		results[i] = r.sum
	}
	if r.fault == "batches" {
		r.sum++
	}
	return nil
}

func (r *rota) MembersChanged(c millrace.Configuration) error {
	switch r.changes++; {
	case r.fault == "error" && r.changes == 2:
		return errors.New("a change too many")
	case r.fault == "panic" && r.changes == 2:
		panic("a change too many")
	}
	r.members = c.Members()
	return nil
}

func (r *rota) Snapshot() (millrace.Snapshot, error) {
	b := binary.BigEndian.AppendUint64(nil, r.sum)
	b = binary.BigEndian.AppendUint64(b, r.changes)
	if r.fault != "snapshot" {
		for _, id := range r.members {
			b = binary.BigEndian.AppendUint64(b, id)
		}
	}
	return millrace.BytesSnapshot(b), nil
}

func (r *rota) Restore(_ context.Context, from io.Reader) error {
	b, err := io.ReadAll(from)
	if err != nil || len(b) < 16 || len(b)%8 != 0 {
		return errors.Join(errors.New("no rota"), err)
	}
	r.sum, r.changes, r.members = binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:]), nil
	for b = b[16:]; len(b) > 0; b = b[8:] {
		r.members = append(r.members, binary.BigEndian.Uint64(b))
	}
	return nil
}

func TestMembers(t *testing.T) {
	commands := make([]uint64, 60)
	for i := range commands {
		commands[i] = uint64(i * i)
	}
	for fault, want := range map[string]string{
		"":         "",
		"snapshot": "continues differently",
		"error":    "MembersChanged before command 6 of 60, 25, returns an error",
		"panic":    "MembersChanged panics before command 6 of 60, 25,: a change too many",
		"batches":  "batch",
	} {
		err := check(t, func() millrace.Machine[uint64, uint64] {
			return millrace.InMemory(&rota{fault: fault}, millrace.Binary[uint64]())
		}, commands)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("a machine with the fault %q: %v, want %q", fault, err, want)
		}
	}
}
