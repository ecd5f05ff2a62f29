// Package pebblemachine is a Pebble database as the engine of a state machine: each value that is applied is
// a key. The database has no write-ahead log and syncs nothing for a value, because the machine is rebuilt
// from the log of its host, as in rafttoy and CockroachDB. Its tables are written, and synced, in the
// background.
package pebblemachine

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/millrace/millrace/cmd/lab/component"
	"github.com/millrace/millrace/host/statemachine"
)

// Open opens an engine in a new directory.
func Open(dir string) (component.Engine, error) {
	db, err := pebble.Open(dir, &pebble.Options{DisableWAL: true, MemTableSize: memTableBytes, Logger: silent{}, ErrorIfExists: true})
	if err != nil {
		return nil, err
	}
	return &engine{db}, nil
}

const memTableBytes = 64 << 20

type engine struct{ db *pebble.DB }

// Put implements component.Engine. The entries of one call are one batch.
func (e *engine) Put(entries []statemachine.Entry) error {
	b := e.db.NewBatch()
	var key [12]byte
	for i := range entries {
		if len(entries[i].Data) < component.MinValueBytes { // a new leader's entry is empty
			continue
		}
		id := component.IDOf(entries[i].Data)
		binary.BigEndian.PutUint32(key[:], id.Client)
		binary.BigEndian.PutUint64(key[4:], id.Seq)
		if err := b.Set(key[:], entries[i].Data, nil); err != nil {
			return errors.Join(err, b.Close())
		}
	}
	return errors.Join(b.Commit(pebble.NoSync), b.Close()) // Pebble takes its memory for the next one
}

// Count implements component.Engine.
func (e *engine) Count() (n uint64, err error) {
	it, err := e.db.NewIter(nil)
	if err != nil {
		return 0, err
	}
	for ok := it.First(); ok; ok = it.Next() {
		if len(it.Value()) < component.MinValueBytes {
			return n, errors.Join(fmt.Errorf("a value of %d bytes", len(it.Value())), it.Close())
		}
		n++
	}
	return n, errors.Join(it.Error(), it.Close())
}

// Close implements component.Engine.
func (e *engine) Close() error { return e.db.Close() }

type silent struct{}

func (silent) Infof(string, ...any)              {}
func (silent) Errorf(string, ...any)             {}
func (silent) Fatalf(format string, args ...any) { panic(fmt.Sprintf("pebble: "+format, args...)) }
