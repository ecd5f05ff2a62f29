package snapshot

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// retry repeats do while a descriptor is missing, as a host does.
func retry(t *testing.T, what string, do func() error) {
	t.Helper()
	for range 64 {
		err := do()
		if err == nil {
			return
		}
		if !vfs.IsShort(err) || errors.As(err, new(*DamageError)) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	t.Fatalf("%s is never possible again", what)
}

// A process has no descriptor left for a while, at each open of a store in turn. Each take, receive and
// removal can be done later, nothing that was received is lost, and what was published is there after a
// power cut. (Seen: a directory that could not be opened was "removed when the host starts again", and what
// had been received of a snapshot was thrown away.)
func TestNoOpenEndsASnapshot(t *testing.T) {
	one, two, three := sample(5), sample(6), sample(7)
	_, sender := published(t, three)
	from := value(sender.Open(three.id))(t)
	for _, times := range []int{1, 4} {
		for nth, hit := 1, true; hit && !t.Failed(); nth++ {
			t.Run(fmt.Sprintf("%d from open %d on", times, nth), func(t *testing.T) {
				disk, store := published(t, one)
				store.pace = 2 * BlockBytes
				for i, p := range two.files {
					must(t, createFile(disk, two.machineFile(i), p.content))
				}
				hit = false
				fail := crashfs.FailOpens(nth, times, []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM}[nth%3])
				disk.SetHook(func(op crashfs.Op) error {
					err := fail(op)
					hit = hit || err != nil
					return err
				})
				retry(t, "take", func() error {
					if err := two.take(disk, store); !errors.Is(err, ErrPublished) {
						return err
					}
					return store.Verify(context.Background(), two.id)
				})
				retry(t, "prune", func() error { return store.Prune() })
				most := int64(0)
				retry(t, "receive", func() error { return receiveMonotonic(t, from, store, &most) })
				retry(t, "prune", func() error { return store.Prune() })
				retry(t, "remove", func() error {
					if err := store.Remove(two.id); !errors.Is(err, ErrNotFound) {
						return err
					}
					return nil
				})
				disk.SetHook(nil)
				must(t, store.Prune())
				if len(store.stuck)+len(store.leftover)+len(store.busy) > 0 {
					t.Errorf("stuck %v, left %v, busy %v", store.stuck, store.leftover, store.busy)
				}
				must(t, three.compare(store))
				must(t, three.compare(openStore(t, disk.Image(crashfs.LoseAll, nil))))
			})
		}
	}
}

// receiveMonotonic is receive. It fails the test if less is there than what an earlier call has received.
func receiveMonotonic(t *testing.T, from *Reader, store *Store, most *int64) error {
	m := from.Manifest()
	to, err := store.Receive(context.Background(), m)
	if errors.Is(err, ErrPublished) {
		return store.Verify(context.Background(), m.ID())
	}
	if err != nil {
		return err
	}
	if have, _ := to.Progress(); have < *most {
		t.Errorf("%d bytes are left of %d that were received", have, *most)
	}
	err = transfer(from, to, 1<<20)
	*most, _ = to.Progress()
	if err == nil {
		err = to.Finish(context.Background())
	}
	if err == nil {
		err = to.Publish()
	}
	return errors.Join(err, to.Close())
}
