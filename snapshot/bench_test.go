package snapshot

import (
	"context"
	"testing"

	"github.com/millrace/millrace/vfs"
)

// BenchmarkContent measures what a byte of content costs, without the disk: written as a stream, verified,
// and received.
func BenchmarkContent(b *testing.B) {
	const size = 64 << 20
	piece := content(1, 1<<20)
	disk := vfs.Memory()
	store := openStore(b, disk)
	id := ID{1, 1}
	write := func(b *testing.B) {
		w := value(store.Create(id))(b)
		out := value(w.Stream(KindMachine, "state"))(b)
		for range size / len(piece) {
			if _, err := out.Write(piece); err != nil {
				b.Fatal(err)
			}
		}
		must(b, out.Close())
		must(b, w.SyncParts())
		must(b, w.Publish(Manifest{Index: id.Index, Term: id.Term}))
	}
	b.Run("write", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			write(b)
			must(b, store.Remove(id))
		}
	})
	write(b)
	b.Run("verify", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			must(b, store.Verify(context.Background(), id))
		}
	})
	b.Run("send and receive", func(b *testing.B) {
		b.SetBytes(size)
		from := value(store.Open(id))(b)
		for b.Loop() {
			to := value(openStore(b, vfs.Memory()).Receive(context.Background(), from.Manifest()))(b)
			for part := range from.manifest.Parts {
				for block := int64(0); block < from.manifest.Parts[part].Blocks(); block += 16 {
					raw := value(from.ReadBlocks(part, block, 1<<20))(b)
					must(b, to.Put(part, block, raw))
				}
			}
			must(b, to.Finish(context.Background()))
			must(b, to.Publish())
		}
	})
}
