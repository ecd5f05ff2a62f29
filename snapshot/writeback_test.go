package snapshot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/millrace/millrace/vfs"
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
	const most = 8 * BlockBytes // twice three blocks, written two at a time
	for name, src := range map[string]source{"one large part": large(), "many small parts": many()} {
		t.Run(name, func(t *testing.T) {
			watched := func() *crashfs.FS {
				disk := crashfs.New()
				written, given := map[string]int64{}, map[string]int64{} // of each file: since the disk was given something, and what that was
				disk.SetHook(func(op crashfs.Op) error {
					switch op.Kind {
					case crashfs.OpWrite:
						written[op.Name] += op.Len
					case crashfs.OpWriteBack:
						written[op.Name], given[op.Name] = 0, op.Len
					case crashfs.OpSync:
						written[op.Name], given[op.Name] = 0, 0
					}
					n := int64(0)
					for name := range written {
						n += written[name] + given[name]
					}
					if n > most {
						t.Errorf("%d bytes are in the kernel's memory with %v, want at most %d", n, op, most)
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

// When that fails, no block of the part counts any more: what the disk holds is unknown. The part is
// received again, and the end is right after a power cut.
func TestAFailedWriteBackInTheMidstOfAPart(t *testing.T) {
	src := large()
	_, sender := published(t, src)
	from := value(sender.Open(src.id))(t)
	disk := crashfs.New()
	store := openStore(t, disk)
	to := value(store.Receive(context.Background(), from.Manifest()))(t)
	disk.SetHook(crashfs.FailNth(crashfs.OpWriteBack, 3, syscall.EIO))
	if err := transfer(from, to, 100); !errors.Is(err, syscall.EIO) {
		t.Fatalf("the third write back has failed, and a block was received with %v", err)
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

// spans is a file that notes what it is given, and what is waited for.
type spans struct {
	vfs.File
	given, waited []vfs.Span
}

func (s *spans) WriteBack(next, last vfs.Span) error {
	s.given, s.waited = append(s.given, next), append(s.waited, last)
	return nil
}

// The disk is given all that is written, piece after piece, and each piece is waited for when it is given the
// next one.
func TestTheDiskIsGivenAllAndWaitedFor(t *testing.T) {
	p := pacedFile{paced: paced{every: 10}}
	var f spans
	for off := range int64(40) {
		must(t, p.wrote(&f, off, 1))
	}
	want := []vfs.Span{{Off: 0, Bytes: 10}, {Off: 10, Bytes: 10}, {Off: 20, Bytes: 10}, {Off: 30, Bytes: 10}}
	if !slices.Equal(f.given, want) || !slices.Equal(f.waited, append([]vfs.Span{{}}, want[:3]...)) {
		t.Errorf("given %v, waited for %v", f.given, f.waited)
	}
}
