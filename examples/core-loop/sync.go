package main

import (
	"context"
	"time"
)

// runSync is the loop of Ready and Advance. Everything happens on one goroutine, in this order:
//
//	an input → Ready → save → send → apply → Advance
//
// Messages leave after the save, because some of them promise what was just saved. The next Ready comes after
// Advance, so a slow disk also delays what does not depend on it. async.go removes that delay.
func (m *member) runSync(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for m.input(ctx, ticker.C, nil) {
		for m.core.HasReady() {
			rd := m.core.Ready()
			m.noteLeader(rd.SoftState)
			if err := m.log.save(rd.HardState, rd.Entries, rd.MustSync); err != nil {
				return err
			}
			m.net.send(rd.Messages)
			if err := m.apply(rd.CommittedEntries); err != nil {
				return err
			}
			m.core.Advance(rd)
		}
		if err := m.core.Err(); err != nil {
			return err // the log could not be read: Ready is empty from now on
		}
	}
	return nil
}
