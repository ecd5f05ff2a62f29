package kv

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/millrace/millrace/server/engine"
	"github.com/millrace/millrace/server/engine/pebble"
)

// AppliedIn returns the index of the last command in the directory of a machine that is closed; 0 if it has
// none yet. It only reads, and takes no lock: the machine must not be open.
func AppliedIn(dir string) (index uint64, err error) {
	d := &disk{fs: unlocked{vfs.Default}, dir: dir}
	n, err := d.readCurrent()
	if err != nil || n == 0 {
		return 0, err
	}
	e, err := pebble.Open(d.database(n), pebble.Options{FS: d.fs, ReadOnly: true, BlockCacheBytes: 1 << 20, Logger: Options{}.withDefaults().Logger})
	if err != nil {
		return 0, fmt.Errorf("kv: %w", err)
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	r := e.Read()
	defer r.Close()
	_, b, found, err := r.Newest(engine.Key{Prefix: []byte{spaceState}})
	if err != nil || !found {
		return 0, err
	}
	s, _, err := parseState(b)
	return s.applied, err
}

// unlocked is a filesystem whose files can be read where none can be written: a lock is a file.
type unlocked struct{ vfs.FS }

func (unlocked) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }
