package bench

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/millrace/millrace/cmd/internal/lab"
	"github.com/millrace/millrace/cmd/internal/lab/load"
)

// The disk of each voter of bare is a lab.RawPair.

const (
	// bareDiskBytes is the most that one voter of bare occupies.
	bareDiskBytes = 2 * lab.SegmentBytes
	compareBytes  = 1 << 20 // that Verify compares at once
)

// runLeaderLog is the leader's log goroutine.
func (b *bare) runLeaderLog() error {
	for {
		chunk, ok := b.next(0, b.leader.End())
		if !ok {
			return nil
		}
		if err := b.leader.Append(chunk); err != nil {
			return err
		}
		b.passed(0, b.leader.End())
		b.setDurable(0, b.leader.End())
	}
}

// Verify implements load.Target: all voters hold the same bytes; and as long as nothing was overwritten yet,
// each acknowledged write is in the log exactly once. With machines it is those that hold each write once.
func (b *bare) Verify(ctx context.Context, ledger *load.Ledger) error {
	if b.full != nil {
		if err := load.VerifyMachines(ctx, b.full.machines(), ledger); err != nil {
			return err
		}
	}
	tail := b.tail()
	poll := time.NewTicker(load.VerifyPoll)
	defer poll.Stop()
	for i := range b.durable {
		for b.durable[i].Load() < tail {
			select {
			case <-poll.C:
			case <-ctx.Done():
				return fmt.Errorf("%w: voter %d has %d bytes of %d", lab.ErrMismatch, i+1, b.durable[i].Load(), tail)
			}
		}
	}
	logs, kept := b.logs(), 2*b.leader.SegmentBytes()
	for i, log := range logs[1:] {
		if err := sameBytes(logs[0], log, min(tail, kept)); err != nil {
			return fmt.Errorf("%w: voter %d: %w", lab.ErrMismatch, i+2, err)
		}
	}
	if tail > kept || b.full != nil {
		return nil
	}
	return verifyRecords(b.leader, tail, ledger)
}

// sameBytes compares the first n bytes that two logs hold.
func sameBytes(a, b *lab.RawPair, n uint64) error {
	x, y := make([]byte, compareBytes), make([]byte, compareBytes)
	for position := uint64(0); position < n; {
		step := min(n-position, compareBytes)
		if err := a.Read(x[:step], position); err != nil {
			return err
		}
		if err := b.Read(y[:step], position); err != nil {
			return err
		}
		if !bytes.Equal(x[:step], y[:step]) {
			return fmt.Errorf("its log differs from the leader's in the %d bytes at %d", step, position)
		}
		position += step
	}
	return nil
}

// verifyRecords replays the log into a Machine and compares that with the ledger.
func verifyRecords(log *lab.RawPair, tail uint64, ledger *load.Ledger) error {
	var m load.Machine
	var header [recordHeaderBytes]byte
	value := make([]byte, load.MaxValueBytes)
	for position := uint64(0); position < tail; {
		if err := log.Read(header[:], position); err != nil {
			return err
		}
		n := binary.LittleEndian.Uint32(header[:])
		if n > load.MaxValueBytes || position+recordHeaderBytes+uint64(n) > tail {
			return fmt.Errorf("%w: record of %d bytes at %d of %d", lab.ErrMismatch, n, position, tail)
		}
		if err := log.Read(value[:n], position+recordHeaderBytes); err != nil {
			return err
		}
		m.Apply(m.Applied()+1, value[:n])
		position += recordHeaderBytes + uint64(n)
	}
	return m.Verify(ledger)
}
