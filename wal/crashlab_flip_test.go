package wal_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/millrace/millrace/vfs/crashfs"
	"github.com/millrace/millrace/wal"
)

// Damage of a log that no process has open: every bit of a log of three segments is flipped, one at a time,
// and every sector is spoiled in several ways. The result of each must be one of these, and never a log that
// is wrong without an error:
//
//	harmless   the log opens and shows everything, and the damaged bytes are unchanged
//	repaired   the log opens and shows everything, and has overwritten the damage
//	reported   the log refuses to open, or to read the entry, with a typed error that says where
//	cut        the damage is in the last batch of a log that was not closed. It looks like a torn write, so
//	           recovery cuts it and says so (recover.go). In a closed log nothing may be cut

// store is a log of three segments that no process has open.
type store struct {
	disk *crashfs.FS
	want labState             // what a reader must see
	last map[uint64]labMoment // what it may see if the last batch is damaged, by fingerprint
	ever map[uint64]labMoment // all states that the log was in, by fingerprint
}

func labStore(t *testing.T, closed bool) store {
	disk := crashfs.New()
	config := labConfig{segmentBytes: labMinSegment}
	log, err := openLabLog(disk, labDir, &labScheduler{}, config, nil)
	if err != nil {
		t.Fatal(err)
	}
	w := &labWorkload{rng: rand.New(rand.NewPCG(5, 5))}
	var h labHistory
	h.setOnly(labState{})
	ever := maps.Clone(h.moments)
	var left map[uint64]labMoment
	for last := 0; last < 2 || len(h.now) < labGroups; { // the last batch is not the first of its segment
		writes := w.next(h.now)
		if bytes, parts := labBytes(writes); bytes > 400 || parts == 0 {
			continue // a batch must not fill a segment alone, and must not be empty
		}
		h.write(writes)
		if err := appendLab(log, writes); err != nil {
			t.Fatal(err)
		}
		if err := log.Sync(); err != nil {
			t.Fatal(err)
		}
		left = h.moments
		maps.Copy(ever, left)
		h.setOnly(h.now)
		if log.Stats().Segments == 3 {
			last++
		}
	}
	if closed {
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := log.Stats().Segments; n != 3 {
		t.Fatalf("%d segments, want 3", n)
	}
	disk.Crash(crashfs.LoseAll, nil)
	return store{disk: disk, want: h.now, last: left, ever: ever}
}

// labBytes returns the bytes of all entries in writes, and the number of parts of the writes.
func labBytes(writes []labWrite) (bytes, parts int) {
	for i := range writes {
		w := &writes[i]
		for j := range w.entries {
			bytes += len(w.entries[j].Data)
		}
		parts += len(w.entries)
		if w.hs.Term > 0 || w.snapshot > 0 || w.compact > 0 || w.truncate > 0 {
			parts++
		}
	}
	return bytes, parts
}

// damage is one way to spoil a disk.
type damage struct {
	name  string
	file  string
	off   int64
	spoil func(d *crashfs.FS) error
}

type verdict string

const (
	harmless verdict = "harmless"
	repaired verdict = "repaired"
	reported verdict = "reported"
	cut      verdict = "cut as a torn tail"
)

// judgeDamage opens a spoiled copy of a store. If recovery cuts something, it must leave one of the states in
// left.
func (st store) judgeDamage(d damage, left map[uint64]labMoment) (verdict, error) {
	want, disk := st.want.fingerprint(), copyDisk(st.disk)
	was, err := readFile(disk, d.file)
	if err != nil {
		return "", err
	}
	if err := d.spoil(disk); err != nil {
		return "", err
	}
	spoiled, err := readFile(disk, d.file)
	if err != nil {
		return "", err
	}
	torn := false
	log, err := openLabLog(disk, labDir, &labScheduler{}, labConfig{segmentBytes: labMinSegment, coldReads: true}, func(message string) {
		torn = torn || isLabTornTail(message)
	})
	if err != nil {
		return verdictOf(err)
	}
	s, err := observe(log)
	if err != nil {
		return verdictOf(err)
	}
	sum := s.fingerprint()
	_, allowed := left[sum]
	switch {
	case sum != want && torn && allowed:
		return cut, nil
	case sum != want:
		return "", fmt.Errorf("silently wrong: the log shows %v", s)
	}
	now, err := readFile(disk, d.file)
	if err != nil || bytes.Equal(now, spoiled) || bytes.Equal(spoiled, was) {
		return harmless, nil // the file may be gone, if it held nothing
	}
	return repaired, nil
}

func verdictOf(err error) (verdict, error) {
	if isLabReport(err) {
		return reported, nil
	}
	return "", fmt.Errorf("an error without a type: %w", err)
}

// copyDisk returns the only image of a disk on which everything is durable.
func copyDisk(d *crashfs.FS) *crashfs.FS { return d.Image(crashfs.LoseNothing, nil) }

func readFile(d *crashfs.FS, name string) ([]byte, error) {
	f, err := d.Open(name)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, err
	}
	p := make([]byte, size)
	if _, err := f.ReadAt(p, 0); err != nil && err != io.EOF {
		return nil, err
	}
	return p, f.Close()
}

// judgeAll judges all damages, on all processors, and counts the verdicts.
func (st store) judgeAll(t *testing.T, all []damage, left map[uint64]labMoment) map[verdict]int {
	counts := map[verdict]int{}
	var mu sync.Mutex
	var workers sync.WaitGroup
	n := runtime.GOMAXPROCS(0)
	for part := range n {
		workers.Go(func() {
			for i := part; i < len(all); i += n {
				v, err := st.judgeDamage(all[i], left)
				mu.Lock()
				counts[v]++
				if err != nil && !t.Failed() {
					t.Errorf("%s: %v", all[i].name, err)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	return counts
}

// labFiles returns the files of a store and their lengths.
func labFiles(t *testing.T, disk *crashfs.FS) map[string]int64 {
	names, err := disk.ReadDir(labDir)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]int64{}
	for _, name := range names {
		p, err := readFile(disk, labDir+"/"+name)
		if err != nil {
			t.Fatal(err)
		}
		files[labDir+"/"+name] = int64(len(p))
	}
	return files
}

// labFencePadding reports whether a byte is one of the zeros behind a copy in FENCE, which no reader looks
// at.
func labFencePadding(name string, off int64) bool {
	const copyBytes, blockBytes = 128, 4096
	return filepath.Base(name) == "FENCE" && off%blockBytes >= copyBytes
}

// TestFlipEveryBit flips each bit of each byte of a store. Of the zeros behind the copies in FENCE, seven
// bytes of ten in the store, it flips one bit of each.
func TestFlipEveryBit(t *testing.T) {
	wal.Enumerates(t)
	for _, closed := range []bool{true, false} {
		st := labStore(t, closed)
		left := st.last
		if closed {
			left = nil
		}
		var all []damage
		for name, size := range labFiles(t, st.disk) {
			for off := range size {
				for bit := range uint(8) {
					if (testing.Short() || labFencePadding(name, off)) && bit != uint(off%8) {
						continue
					}
					all = append(all, damage{
						name: fmt.Sprintf("bit %d of byte %d of %s", bit, off, name), file: name, off: off,
						spoil: func(d *crashfs.FS) error { return d.FlipBit(name, off, bit) },
					})
				}
			}
		}
		counts := st.judgeAll(t, all, left)
		t.Logf("closed %v: %d flips: %d harmless, %d repaired, %d reported, %d cut with a warning, %d silently wrong",
			closed, len(all), counts[harmless], counts[repaired], counts[reported], counts[cut], counts[""])
		if counts[reported] == 0 || closed && counts[cut] > 0 || !closed && counts[cut] == 0 {
			t.Errorf("unexpected verdicts: %v", counts)
		}
	}
}

// TestSpoilEverySector zeroes each sector, fills it with noise, and replaces it by each other sector of the
// store. Misdirected and lost writes leave such sectors. The log alone cannot tell one case from a torn tail:
// the whole sector in which the log ends is gone, with the watermark record of Close in it. Then the log
// shows everything before that sector, with a warning.
func TestSpoilEverySector(t *testing.T) {
	st := labStore(t, true)
	disk := st.disk
	noise := bytes.Repeat([]byte{0xA7, 1, 1, 0, 0x55}, crashfs.SectorBytes)[:crashfs.SectorBytes]
	contents := map[string][]byte{"zeros": make([]byte, crashfs.SectorBytes), "noise": noise}
	files := labFiles(t, disk)
	for name, size := range files {
		p, err := readFile(disk, name)
		if err != nil {
			t.Fatal(err)
		}
		for off := int64(0); off+crashfs.SectorBytes <= size; off += crashfs.SectorBytes {
			contents[fmt.Sprintf("sector %d of %s", off/crashfs.SectorBytes, name)] = p[off : off+crashfs.SectorBytes]
		}
	}
	var all []damage
	for name, size := range files {
		for off := int64(0); off+crashfs.SectorBytes <= size; off += crashfs.SectorBytes {
			for what, sector := range contents {
				all = append(all, damage{
					name: fmt.Sprintf("%s in sector %d of %s", what, off/crashfs.SectorBytes, name), file: name, off: off,
					spoil: func(d *crashfs.FS) error { return overwrite(d, name, sector, off) },
				})
			}
		}
	}
	end, ends := lastWritten(t, disk, files)
	isEnd := func(d damage) bool { return d.file == end && d.off == ends }
	counts := st.judgeAll(t, slices.DeleteFunc(slices.Clone(all), isEnd), nil)
	atEnd := st.judgeAll(t, slices.DeleteFunc(slices.Clone(all), func(d damage) bool { return !isEnd(d) }), st.ever)
	t.Logf("%d spoiled sectors: %d harmless, %d repaired, %d reported, %d silently wrong; of the last one: %v",
		len(all), counts[harmless], counts[repaired], counts[reported], counts[""], atEnd)
}

// lastWritten returns the sector in which the log ends.
func lastWritten(t *testing.T, disk *crashfs.FS, files map[string]int64) (name string, off int64) {
	for f := range files {
		p, err := readFile(disk, f)
		if err != nil {
			t.Fatal(err)
		}
		used := int64(len(bytes.TrimRight(p, "\x00")))
		segment, err := filepath.Match(labSegments, filepath.Base(f))
		if err != nil {
			t.Fatal(err)
		}
		if segment && f > name && used > 2*labHeadBytes {
			name, off = f, (used-1)/crashfs.SectorBytes*crashfs.SectorBytes
		}
	}
	return name, off
}

func overwrite(d *crashfs.FS, name string, p []byte, off int64) error {
	f, err := d.Open(name)
	if err != nil {
		return err
	}
	if _, err := f.WriteAt(p, off); err != nil {
		return err
	}
	return f.Sync()
}

// TestFlipUnderAnOpenLog flips bits of a log that is open and reads from disk. A read returns an entry as it
// was appended, or an error.
func TestFlipUnderAnOpenLog(t *testing.T) {
	st := labStore(t, true)
	disk, want := st.disk, st.want
	log, err := openLabLog(disk, labDir, &labScheduler{}, labConfig{segmentBytes: labMinSegment, coldReads: true}, nil)
	if err != nil {
		t.Fatal(err)
	}
	whole, wrong := 0, 0
	for name, size := range labFiles(t, st.disk) {
		for off := range size {
			bit := uint(off % 8)
			if err := disk.FlipBit(name, off, bit); err != nil {
				t.Fatal(err)
			}
			whole1, wrong1 := readEach(t, log, want, fmt.Sprintf("bit %d of byte %d of %s", bit, off, name))
			whole, wrong = whole+whole1, wrong+wrong1
			if err := disk.FlipBit(name, off, bit); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d entries read as they were, %d reported", whole, wrong)
	if whole == 0 || wrong == 0 {
		t.Error("both must happen")
	}
}

// readEach reads each entry by itself.
func readEach(t *testing.T, log *wal.Log, want labState, what string) (whole, wrong int) {
	for id, g := range want {
		for i, w := range g.entries {
			index := g.start + 1 + uint64(i)
			es, err := log.Group(id).Entries(index, index+1, 1<<20)
			switch {
			case err == nil && len(es) == 1 && seal(&es[0]) == w:
				whole++
			case err != nil && isLabReport(err):
				wrong++
			default:
				t.Errorf("%s: entry %d of group %d: %v, %v", what, index, id, es, err)
			}
		}
	}
	return whole, wrong
}
