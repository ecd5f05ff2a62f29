package crashfs_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/vfs"
	"github.com/millrace/millrace/vfs/crashfs"
)

// shape describes a disk: each file with a letter for each sector, the byte that fills it.
func shape(t testing.TB, d *crashfs.FS) string {
	t.Helper()
	names, err := d.ReadDir("/")
	ok(t, err)
	text := ""
	for _, name := range names {
		text += name + ":"
		p := contents(t, d, "/"+name)
		for off := 0; off < len(p); off += crashfs.SectorBytes {
			sector := p[off:min(len(p), off+crashfs.SectorBytes)]
			switch {
			case len(bytes.Trim(sector, string(sector[:1]))) > 0:
				text += "?"
			case sector[0] == 0:
				text += "0"
			default:
				text += string(sector[:1])
			}
		}
		text += " "
	}
	return strings.TrimSpace(text)
}

func sectorsOf(letters string) []byte {
	var p []byte
	for _, c := range []byte(letters) {
		p = append(p, bytes.Repeat([]byte{c}, crashfs.SectorBytes)...)
	}
	return p
}

// shapes lists the images of a disk, and checks each code on the way.
func shapes(t testing.TB, d *crashfs.FS, budget int) []string {
	t.Helper()
	var all []string
	codes := map[string]bool{}
	for desc, image := range d.Images(budget, 1) {
		all = append(all, shape(t, image))
		if codes[desc.Code()] {
			t.Errorf("%v came twice", desc)
		}
		codes[desc.Code()] = true
		again, err := d.Replay(desc.Code())
		ok(t, err)
		if got := shape(t, again); got != shape(t, image) {
			t.Errorf("%v is %s, replayed %s", desc, shape(t, image), got)
		}
		if image.Pending() != 0 {
			t.Errorf("%v: something of an image is not durable", desc)
		}
	}
	return all
}

func TestImagesOfOverwrittenSectors(t *testing.T) {
	d := crashfs.New()
	f := create(t, d, "/f")
	write(t, f, 0, sectorsOf("abc"))
	ok(t, f.Sync())
	ok(t, vfs.SyncDir(d, "/"))
	write(t, f, 0, sectorsOf("abX")) // two sectors stay as they were
	write(t, f, 512, sectorsOf("YZ"))
	if n := d.Pending(); n != 2 {
		t.Errorf("%d pending changes, want 2", n)
	}
	got := shapes(t, d, 100)
	if want := []string{"f:abc", "f:abX", "f:aYX", "f:aYZ"}; !slices.Equal(got[:4], want) {
		t.Errorf("prefixes %v, want %v", got[:4], want)
	}
	if rest := []string{"f:aYc", "f:abZ"}; len(got) != 6 || !slices.Contains(got, rest[0]) || !slices.Contains(got, rest[1]) {
		t.Errorf("images %v", got)
	}
	if shape(t, d) != "f:aYZ" {
		t.Errorf("the disk itself changed: %s", shape(t, d))
	}
}

func TestImagesOfNamesAndLengths(t *testing.T) {
	d := crashfs.New()
	ok(t, create(t, d, "/old").Sync())
	ok(t, vfs.SyncDir(d, "/"))
	f := create(t, d, "/new")
	write(t, f, 0, sectorsOf("n"))
	ok(t, d.Rename("/old", "/moved"))
	got := shapes(t, d, 100)
	slices.Sort(got)
	want := []string{"moved:", "new: moved:", "new: old:", "new:0 moved:", "new:0 old:", "new:n moved:", "new:n old:", "old:"}
	for i, w := range want { // names are listed in order
		parts := strings.Fields(w)
		slices.Sort(parts)
		want[i] = strings.Join(parts, " ")
	}
	slices.Sort(want)
	got = slices.Compact(got)
	if !slices.Equal(got, want) {
		t.Errorf("images\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Eight sectors: all 256 subsets; nine: as many as the budget allows, and the special ones among them.
func TestAllSubsetsOfEightSectors(t *testing.T) {
	for _, n := range []int{8, 9} {
		d := crashfs.New()
		f := create(t, d, "/f")
		write(t, f, 0, sectorsOf(strings.Repeat("o", n)))
		ok(t, f.Sync())
		ok(t, vfs.SyncDir(d, "/"))
		write(t, f, 0, sectorsOf(strings.Repeat("y", n)))
		seen := map[string]bool{}
		for _, s := range shapes(t, d, 256) {
			seen[s] = true
		}
		if len(seen) != 256 {
			t.Errorf("%d sectors: %d different images, want 256", n, len(seen))
		}
		for i := range n {
			if s := "f:" + strings.Repeat("y", i) + strings.Repeat("o", n-i); !seen[s] {
				t.Errorf("%d sectors: the prefix %s is missing", n, s)
			}
			if s := "f:" + strings.Repeat("y", i) + "o" + strings.Repeat("y", n-i-1); !seen[s] {
				t.Errorf("%d sectors: %s, which lost one sector only, is missing", n, s)
			}
		}
	}
}

func TestDescriptionIsOneLineThatReplays(t *testing.T) {
	d := crashfs.New()
	f := create(t, d, "/f")
	write(t, f, 0, sectorsOf("ab"))
	ok(t, d.Rename("/f", "/g"))
	var last crashfs.Description
	for desc, image := range d.Images(1000, 1) {
		if shape(t, image) == "g:0b" {
			last = desc
		}
	}
	want := "survived: creation of /f, rename of /f to g, length 1024 of /g, sector 1 of /g; lost or older: 1 of 5 (code 11101)"
	if last.String() != want {
		t.Errorf("%s\nwant %s", last, want)
	}
	if lost := last.Lost(); len(lost) != 1 || lost[0] != "sector 0 of /g" {
		t.Errorf("lost %v", lost)
	}
	for _, code := range []string{"", "1110", "111019", "11109", "1110!", "1,1,1,0,2"} {
		if _, err := d.Replay(code); err == nil {
			t.Errorf("the code %q is accepted", code)
		}
	}
	ok(t, f.Sync())
	ok(t, vfs.SyncDir(d, "/"))
	for desc := range d.Images(10, 1) {
		if desc.Code() != "-" || desc.String() != "everything is durable (code -)" {
			t.Errorf("%v", desc)
		}
	}
}

// A sector that was written more than 36 times has versions beyond one character.
func TestCodesOfManyVersions(t *testing.T) {
	d := crashfs.New()
	f := create(t, d, "/f")
	write(t, f, 0, sectorsOf("."))
	ok(t, f.Sync())
	ok(t, vfs.SyncDir(d, "/"))
	for i := range 50 {
		write(t, f, 0, sectorsOf(string(rune('A'+i))))
	}
	if got := shapes(t, d, 1000); len(got) != 51 {
		t.Errorf("%d images, want 51", len(got))
	}
}

func TestStaleBlocks(t *testing.T) {
	for _, on := range []bool{true, false} {
		d := crashfs.New()
		d.SetStale(on)
		old := create(t, d, "/old")
		write(t, old, 0, sectorsOf("PQ"))
		ok(t, old.Sync())
		ok(t, d.Remove("/old"))
		ok(t, vfs.SyncDir(d, "/"))
		f := create(t, d, "/f")
		ok(t, vfs.SyncDir(d, "/"))
		ok(t, f.Preallocate(0, 2*crashfs.SectorBytes))
		write(t, f, 0, sectorsOf("n"))
		stale, own := false, false
		for _, s := range shapes(t, d, 100) {
			stale = stale || strings.Contains(s, "P") || strings.Contains(s, "Q") || strings.Contains(s, "?")
			own = own || s == "f:n0"
		}
		if stale != on || !own {
			t.Errorf("stale %v: old bytes seen %v, own bytes seen %v", on, stale, own)
		}
		ok(t, f.Sync())
		for _, s := range shapes(t, d, 100) {
			if s != "f:n0" {
				t.Errorf("after a sync: %s", s)
			}
		}
	}
}

// What Image draws is among what Images yields, for any history that is small enough to enumerate.
func TestImagesAreAllThatImageDraws(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := crashfs.New()
		open := map[string]bool{}
		for range rapid.IntRange(1, 7).Draw(rt, "operations") {
			name := rapid.SampledFrom([]string{"/a", "/b"}).Draw(rt, "name")
			if !open[name] {
				create(t, d, name)
				open[name] = true
				continue
			}
			f, err := d.Open(name)
			ok(t, err)
			switch rapid.IntRange(0, 5).Draw(rt, "operation") {
			case 0:
				ok(t, f.Sync())
			case 1:
				ok(t, vfs.SyncDir(d, "/"))
			case 2:
				ok(t, f.Truncate(int64(rapid.IntRange(0, 2).Draw(rt, "sectors")*crashfs.SectorBytes)))
			case 3:
				ok(t, d.Remove(name))
				open[name] = false
			default:
				letter := rapid.SampledFrom([]string{"x", "y", "xy"}).Draw(rt, "letters")
				write(t, f, int64(rapid.IntRange(0, 2).Draw(rt, "at")*crashfs.SectorBytes), sectorsOf(letter))
			}
		}
		possible := map[string]bool{}
		for _, s := range shapes(t, d, 1<<20) {
			possible[s] = true
		}
		rng := rapid.Uint64()
		for range 20 {
			seed := rng.Draw(rt, "seed")
			drawn := shape(t, d.Image(crashfs.LoseSome, func() uint64 { seed = seed*6364136223846793005 + 1442695040888963407; return seed >> 33 }))
			if !possible[drawn] {
				rt.Fatalf("a crash left %s, which is not among the %d images", drawn, len(possible))
			}
		}
		if !possible[shape(t, d)] {
			rt.Fatalf("the disk as it is, %s, is not among the %d images", shape(t, d), len(possible))
		}
	})
}

// What images share with the disk and with one another is never written.
func TestImagesAreIndependent(t *testing.T) {
	d := crashfs.New()
	f := create(t, d, "/f")
	write(t, f, 0, sectorsOf("aaaaaaaaaa"))
	ok(t, f.Sync())
	ok(t, vfs.SyncDir(d, "/"))
	write(t, f, 0, sectorsOf("b"))
	var images []*crashfs.FS
	for _, image := range d.Images(10, 1) {
		images = append(images, image, image.Image(crashfs.LoseNothing, nil))
	}
	for i, image := range images {
		g, err := image.Open("/f")
		ok(t, err)
		write(t, g, int64(i+1)*crashfs.SectorBytes, sectorsOf(fmt.Sprint(i)))
		if i%2 == 0 {
			ok(t, g.Sync())
			image.Crash(crashfs.LoseAll, nil)
		}
	}
	write(t, f, 9*crashfs.SectorBytes, sectorsOf("z"))
	want := []string{"f:a0aaaaaaaa", "f:aa1aaaaaaa", "f:baa2aaaaaa", "f:baaa3aaaaa"}
	for i, image := range images {
		if got := shape(t, image); got != want[i] {
			t.Errorf("image %d is %s, want %s", i, got, want[i])
		}
	}
	if got := shape(t, d); got != "f:baaaaaaaaz" {
		t.Errorf("the disk is %s", got)
	}
}

// A loop over the images may end early.
func TestImagesStopWhenTheLoopDoes(t *testing.T) {
	few, many := crashfs.New(), crashfs.New()
	few.SetStale(true)
	write(t, create(t, few, "/f"), 0, sectorsOf("ab"))
	for i := range 30 {
		write(t, create(t, many, fmt.Sprintf("/%d", i)), 0, sectorsOf("abc"))
	}
	for _, d := range []*crashfs.FS{few, many} {
		total := len(shapes(t, d, 70))
		for stop := 1; stop <= total; stop++ {
			n := 0
			for range d.Images(70, 1) {
				if n++; n == stop {
					break
				}
			}
			if n != stop {
				t.Fatalf("%d of %d images before a stop at %d", n, total, stop)
			}
		}
	}
	for range many.Images(0, 1) {
		t.Error("an image without a budget")
	}
}

// With more steps than half the budget, some prefixes are skipped. The whole disk and the empty one are among
// the images, and there are no more images than the budget.
func TestManyPrefixesAreThinnedOut(t *testing.T) {
	d := crashfs.New()
	f := create(t, d, "/f")
	ok(t, vfs.SyncDir(d, "/"))
	for i := range 500 {
		write(t, f, int64(i)*crashfs.SectorBytes, sectorsOf("x"))
	}
	got := shapes(t, d, 100)
	if len(got) != 100 || !slices.Contains(got, "f:") || !slices.Contains(got, "f:"+strings.Repeat("x", 500)) {
		t.Errorf("%d images", len(got))
	}
	whole := 0
	for _, s := range got[1:50] {
		if strings.Trim(strings.TrimPrefix(s, "f:"), "x") == "" {
			whole++
		}
	}
	if whole < 20 {
		t.Errorf("%d of the first 49 images are prefixes", whole)
	}
}

// Zeros over zeros are no change that a crash could take, zeros over data are one.
func TestZeros(t *testing.T) {
	d := crashfs.New()
	f := create(t, d, "/f")
	ok(t, vfs.SyncDir(d, "/"))
	ok(t, f.Truncate(1<<20))
	ok(t, f.Sync())
	write(t, f, 0, make([]byte, 1<<20))
	if n := d.Pending(); n != 0 {
		t.Errorf("%d changes are pending after zeros over zeros", n)
	}
	ok(t, f.Sync())
	write(t, f, 3*crashfs.SectorBytes, sectorsOf("x"))
	ok(t, f.Sync())
	write(t, f, 0, make([]byte, 1<<20))
	if n := d.Pending(); n != 1 {
		t.Errorf("%d changes are pending after zeros over one sector", n)
	}
}
