package snapshot

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/millrace/millrace/vfs/crashfs"
)

// large is a source whose stream takes several syncs.
func large() source {
	return source{id: ID{9, 2}, host: content(1, 100), streams: []piece{{KindMachine, "state", content(2, 20*BlockBytes+17)}}}
}

// many is a source of as many bytes in small streams.
func many() source {
	src := source{id: ID{9, 2}, host: content(1, 100)}
	for i := range 40 {
		src.streams = append(src.streams, piece{KindMachine, fmt.Sprintf("state-%d", i), content(uint64(i), BlockBytes/2)})
	}
	return src
}

// While a snapshot is taken and received, little of it waits in the kernel's memory: the sync of a whole part
// would hold up the log on the same disk.
func TestLittleWaitsForASync(t *testing.T) {
	const most = 4 * BlockBytes // three blocks and one that is being written
	for name, src := range map[string]source{"one large part": large(), "many small parts": many()} {
		t.Run(name, func(t *testing.T) {
			watched := func() *crashfs.FS {
				disk := crashfs.New()
				disk.SetHook(func(op crashfs.Op) error {
					if n := disk.UnsyncedBytes(); n > most {
						t.Errorf("%d bytes wait for a sync before %v, want at most %d", n, op, most)
					}
					return nil
				})
				return disk
			}
			disk := watched()
			from := openStore(t, disk)
			must(t, src.take(disk, from))
			must(t, receive(value(from.Open(src.id))(t), openStore(t, watched())))
		})
	}
}

// When such a sync fails, no block of the part counts any more: what the disk holds is unknown. The part is
// received again, and the end is right after a power cut.
func TestAFailedSyncInTheMidstOfAPart(t *testing.T) {
	src := large()
	_, sender := published(t, src)
	from := value(sender.Open(src.id))(t)
	disk := crashfs.New()
	store := openStore(t, disk)
	to := value(store.Receive(context.Background(), from.Manifest()))(t)
	disk.SetHook(crashfs.FailNth(crashfs.OpSync, 3, syscall.EIO))
	if err := transfer(from, to, 100); !errors.Is(err, syscall.EIO) {
		t.Fatalf("the third sync has failed, and a block was received with %v", err)
	}
	have, _ := to.Progress()
	var missing int64
	for _, m := range to.Missing(100) {
		p := &to.m.Parts[m.Part]
		for b := range m.Blocks {
			missing += int64(p.blockBytes(m.Block + b))
		}
	}
	m := from.Manifest()
	if all := m.Bytes(); have+missing != all || missing < int64(len(src.streams[0].content)) {
		t.Errorf("%d bytes count, %d are missing, of %d; want the whole part missing", have, missing, all)
	}
	must(t, transfer(from, to, 100))
	must(t, to.Finish(context.Background()))
	must(t, to.Publish())
	must(t, src.compare(openStore(t, disk.Image(crashfs.LoseAll, nil))))
}
