package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// What holds at the end of a reader, a writer, a receiver or an archive, and after it. Automatic mutants of
// these rules survived the other tests (internal/mutation/testdata/mutation.md).

// watched counts the files that are open, and the bytes that are written.
type watched struct {
	vfs.FS
	open, written *int64
}

func watch(disk vfs.FS) watched { return watched{disk, new(int64), new(int64)} }

func (w watched) Open(name string) (vfs.File, error) { return w.opened(w.FS.Open(name)) }

func (w watched) Create(name string) (vfs.File, error) { return w.opened(w.FS.Create(name)) }

func (w watched) opened(f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	*w.open++
	return &watchedFile{f, w}, nil
}

type watchedFile struct {
	vfs.File
	of watched
}

func (f *watchedFile) WriteAt(b []byte, off int64) (int, error) {
	n, err := f.File.WriteAt(b, off)
	*f.of.written += int64(n)
	return n, err
}

func (f *watchedFile) Close() error {
	*f.of.open--
	return f.File.Close()
}

// A stream that was closed before its end says so, and its file is closed.
func TestAClosedStreamHasEnded(t *testing.T) {
	src := sample(5)
	disk := watch(crashfs.New())
	store := openStore(t, disk)
	must(t, src.take(disk.FS, store))
	r := value(store.Open(src.id))(t)
	before := *disk.open
	stream := value(r.Stream(KindMachine, "state"))(t)
	if _, err := stream.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
	must(t, stream.Close())
	if n, err := stream.Read(make([]byte, 10)); n != 0 || !errors.Is(err, ErrEnded) {
		t.Errorf("a read after the end returns %d bytes and %v, want %v", n, err, ErrEnded)
	}
	if *disk.open != before {
		t.Errorf("%d files are left open", *disk.open-before)
	}
	if n, err := r.WriteArchive(context.Background(), io.Discard); err != nil || *disk.open != before {
		t.Errorf("an archive of %d bytes (%v) leaves %d files open", n, err, *disk.open-before)
	}
	must(t, r.Close())
}

// A stream cannot be written after its Writer was aborted.
func TestAStreamEndsWithItsWriter(t *testing.T) {
	src := sample(5)
	w := value(openStore(t, crashfs.New()).Create(src.id))(t)
	stream := value(w.Stream(KindMachine, "state"))(t)
	must(t, w.Abort())
	if _, err := stream.Write(make([]byte, BlockBytes)); !errors.Is(err, ErrEnded) {
		t.Errorf("a write after Abort: %v, want %v", err, ErrEnded)
	}
}

// A receiver that was closed keeps what it has: Abort after it removes nothing, and the next Receiver
// continues. It asks for as many runs of blocks as its caller wants, and writes no block twice.
func TestAClosedReceiverKeepsWhatItHas(t *testing.T) {
	src := source{id: ID{Index: 5, Term: 2}, streams: []piece{{KindMachine, "state", content(1, 5*BlockBytes)}}}
	_, sender := published(t, src)
	from := value(sender.Open(src.id))(t)
	disk := watch(crashfs.New())
	store := openStore(t, disk)
	to := value(store.Receive(context.Background(), from.Manifest()))(t)
	must(t, to.Put(0, 1, value(from.ReadBlocks(0, 1, BlockBytes))(t)))
	must(t, to.Put(0, 3, value(from.ReadBlocks(0, 3, BlockBytes))(t)))
	for most, want := range []int{0, 1, 2, 3, 3} {
		if runs := to.Missing(most); len(runs) != want {
			t.Errorf("asked for at most %d runs of blocks it names %v, want %d", most, runs, want)
		}
	}
	must(t, to.Close())
	must(t, to.Abort())
	if err := to.Put(0, 0, value(from.ReadBlocks(0, 0, BlockBytes))(t)); !errors.Is(err, ErrEnded) {
		t.Errorf("a Put after Close: %v, want %v", err, ErrEnded)
	}
	to = value(store.Receive(context.Background(), from.Manifest()))(t)
	if have, want := to.Progress(); have != 2*BlockBytes {
		t.Errorf("after Close and Abort %d of %d bytes are left, want %d", have, want, 2*BlockBytes)
	}
	*disk.written = 0
	must(t, to.Put(0, 0, value(from.ReadBlocks(0, 0, 5*BlockBytes))(t)))
	if have, want := *disk.written, int64(3*BlockBytes); have != want {
		t.Errorf("wrote %d bytes, want the %d that were missing", have, want)
	}
}

// An archive that cannot be read to the end of its manifest names the cause.
func TestAnArchiveNamesWhatItsReaderSaid(t *testing.T) {
	broken := errors.New("broken")
	good := archived(t)
	_, err := OpenArchive(io.MultiReader(bytes.NewReader(good[:archiveHeadBytes+9]), iotest.ErrReader(broken)))
	var wrong *ArchiveError
	if !errors.As(err, &wrong) || !errors.Is(err, broken) || wrong.Offset != archiveHeadBytes+9 {
		t.Errorf("have %v, want an ArchiveError at %d because of %q", err, archiveHeadBytes+9, broken)
	}
	cut := value(OpenArchive(io.MultiReader(bytes.NewReader(good[:len(good)-sha256.Size-9]), iotest.ErrReader(broken))))(t)
	for {
		_, _, raw, err := cut.Next()
		if err != nil {
			if !errors.Is(err, broken) {
				t.Errorf("within a block: %v, want %q", err, broken)
			}
			break
		}
		if len(raw) == 0 {
			t.Fatal("a block that cannot be read is handed out, with no bytes")
		}
	}
	good[0] ^= 1
	if _, err := OpenArchive(bytes.NewReader(good)); !errors.As(err, &wrong) || wrong.Offset != 0 {
		t.Errorf("a file that does not begin like an archive is opened: %v", err)
	}
}

// No element of a name leads out of the directory of the machine, or to the directory itself.
func TestNamesStayBelow(t *testing.T) {
	for name, right := range map[string]bool{
		strings.Repeat("a", MaxElementBytes): true, strings.Repeat("a", MaxElementBytes+1): false,
		"a": true, "a/b.c/D-_9": true, "...": true, ".a": true,
		"": false, ".": false, "..": false, "/a": false, "a/": false, "a//b": false, "a/./b": false, "./a": false, "a/../b": false, "a b": false, "a\\b": false,
		"a:b": false, "a~": false, "a@b": false, "[a]": false, "{a}": false, "ä": false,
	} {
		if wrong := rejectName(name); (wrong == "") != right {
			t.Errorf("name %q: %q", name, wrong)
		}
	}
}

// A damage names the file, the bytes, and the error of the disk if there is one.
func TestDamageSaysWhere(t *testing.T) {
	broken := errors.New("broken")
	for _, row := range []struct {
		damage DamageError
		says   string
	}{
		{DamageError{ID: ID{5, 2}, File: "f", Block: -1, What: "it is missing"}, "0000000000000002 is damaged: f: it is missing; use"},
		{DamageError{ID: ID{5, 2}, File: "f", Block: 1, What: "it cannot be read", Err: broken}, "f, block 1 (bytes 65536 to 131072): it cannot be read: broken; use"},
	} {
		if !strings.Contains(row.damage.Error(), row.says) || errors.Is(&row.damage, broken) != (row.damage.Err != nil) {
			t.Errorf("have %v, want %q", &row.damage, row.says)
		}
	}
}

// Prune leaves a snapshot alone that is being received, although a newer one is verified.
func TestPruneLeavesWhatIsBeingReceived(t *testing.T) {
	older, newer := sample(2), sample(3)
	_, sender := published(t, older)
	from := value(sender.Open(older.id))(t)
	disk, store := published(t)
	to := value(store.Receive(context.Background(), from.Manifest()))(t)
	must(t, transfer(from, to, 1))
	must(t, to.Close())
	must(t, newer.take(disk, store))
	must(t, store.Verify(context.Background(), newer.id))
	if store.Verified(older.id) || !store.Verified(newer.id) {
		t.Error("what is being received counts as verified, or what was verified does not")
	}
	to = value(store.Receive(context.Background(), from.Manifest()))(t)
	must(t, store.Prune())
	for len(to.Missing(1)) > 0 {
		must(t, transfer(from, to, 1))
	}
	must(t, to.Finish(context.Background()))
	must(t, to.Publish())
	must(t, older.compare(store))
}

// A small file is the same, is another one or is not there; or the disk does not say, which is an error.
func TestASmallFileThatCannotBeReadIsNotAnotherOne(t *testing.T) {
	disk := crashfs.New()
	f, err := disk.Create("offer")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("what was written"), 0); err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		name, content string
		want          bool
	}{{"offer", "what was written", true}, {"offer", "what was meant..", false}, {"offer", "what", false}, {"none", "what was written", false}} {
		if same, err := sameBytes(disk, row.name, []byte(row.content)); same != row.want || err != nil {
			t.Errorf("%s with %q: same %v, %v", row.name, row.content, same, err)
		}
	}
	disk.SetHook(crashfs.When{Kind: crashfs.OpRead}.Do(syscall.EIO))
	if same, err := sameBytes(disk, "offer", []byte("what was written")); same || !errors.Is(err, syscall.EIO) {
		t.Errorf("a file that cannot be read: same %v, %v", same, err)
	}
}
