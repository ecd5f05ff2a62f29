package files

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/millrace/millrace/object"
	"github.com/millrace/millrace/snapshot"
	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// A process has no descriptor left for a while, at each open of a store in turn. Each upload, fetch, link,
// taking and removal can be done later, and what is published is there after a power cut. (Seen: an object
// whose directory was removed, and the one above it could not be opened, could never be removed.)
func TestNoOpenEndsAnObject(t *testing.T) {
	a, b, c := object.ID{1}, object.ID{2}, object.ID{3}
	text := content(1, 3*snapshot.BlockBytes+7)
	other := openStore(t, vfs.Memory())
	if _, err := write(other, b, text); err != nil {
		t.Fatal(err)
	}
	for _, times := range []int{1, 4} {
		for nth, hit := 1, true; hit && !t.Failed(); nth++ {
			t.Run(fmt.Sprintf("%d from open %d on", times, nth), func(t *testing.T) {
				disk := crashfs.New()
				s, snapshots := openStore(t, disk), openSnapshots(t, disk)
				retry := func(what string, do func() error) {
					t.Helper()
					for range 64 {
						err := do()
						if err == nil {
							return
						}
						if !vfs.IsShort(err) || errors.As(err, new(*snapshot.DamageError)) {
							t.Fatalf("%s: %v", what, err)
						}
					}
					t.Fatalf("%s is never possible again", what)
				}
				hit = false
				fail := crashfs.FailOpens(nth, times, []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM}[nth%3])
				disk.SetHook(func(op crashfs.Op) error {
					err := fail(op)
					hit = hit || err != nil
					return err
				})
				var wrote Info
				retry("write", func() error {
					err := s.Remove(a) // what an earlier try has left
					if err == nil {
						wrote, err = write(s, a, text)
					}
					return err
				})
				retry("fetch", func() error { return fetch(s, other, b) })
				var of snapshot.ID
				retry("link", func() (err error) {
					if of, err = takeSnapshot(snapshots, s, 9, a); errors.Is(err, snapshot.ErrPublished) {
						err = snapshots.Verify(context.Background(), of)
					}
					return err
				})
				retry("remove", func() error { return s.Remove(a) })
				retry("remove again", func() error { return s.Remove(b) })
				retry("take", func() error { return s.TakeFrom(a, wrote.Bytes, wrote.Hash, snapshots, of) })
				retry("write another", func() error {
					err := s.Remove(c)
					if err == nil {
						_, err = write(s, c, text)
					}
					return err
				})
				disk.SetHook(nil)
				for _, s := range []*Store{s, openStore(t, disk.Image(crashfs.LoseAll, nil))} {
					if ids := s.All(); len(ids) != 2 || ids[0] != a || ids[1] != c {
						t.Errorf("the store has %v", ids)
					}
					for _, id := range s.All() {
						if err := s.Verify(context.Background(), id); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
	}
}
