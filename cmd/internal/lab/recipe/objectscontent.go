package recipe

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"

	"github.com/millrace/millrace/cmd/internal/lab"
)

// contentBytes is how many random bytes are made for a round. They are read from memory, so that making them
// is no part of what is measured.
const contentBytes = 1<<20 + 13

func newContent(seed uint64, round int) []byte {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(round))
	b := make([]byte, contentBytes)
	_, _ = rand.NewChaCha8(key).Read(b) // it never fails
	return b
}

// repeated reads content again and again, n bytes of it.
type repeated struct {
	content []byte
	at      int
	n       int64
}

// Read implements io.Reader.
func (r *repeated) Read(p []byte) (int, error) {
	if r.n == 0 {
		return 0, io.EOF
	}
	k := copy(p[:min(int64(len(p)), r.n)], r.content[r.at:])
	r.at, r.n = (r.at+k)%len(r.content), r.n-int64(k)
	return k, nil
}

// compare compares what r has with an object of this round.
func (c *objectsCluster) compare(ctx context.Context, r io.Reader) error {
	want := &repeated{content: c.content, n: c.plan.ObjectBytes}
	buffers := [2][]byte{make([]byte, 256<<10), make([]byte, 256<<10)}
	for at := int64(0); at < c.plan.ObjectBytes && ctx.Err() == nil; {
		n := min(int64(len(buffers[0])), c.plan.ObjectBytes-at)
		if _, err := io.ReadFull(r, buffers[0][:n]); err != nil {
			return err
		}
		_, _ = io.ReadFull(want, buffers[1][:n]) // it is in memory, and long enough
		if !bytes.Equal(buffers[0][:n], buffers[1][:n]) {
			return fmt.Errorf("%w: its bytes from %d on are not those that were uploaded", lab.ErrMismatch, at)
		}
		at += n
	}
	return context.Cause(ctx)
}
