package recipe

import (
	"fmt"
	"hash/crc32"
	"io"
)

// pages is a state in memory, of pages that are copied when they are written for the first time after a
// freeze. So a frozen version costs a pointer, and stays as it is while the state changes: freezing takes as
// long for a gigabyte as for a kilobyte.
//
// A root points to leaves, and a leaf to its pages. Each knows in which epoch it was copied: what is older
// than the present epoch belongs to a frozen version too.
type pages struct {
	n     int // of pages
	epoch uint64
	root  *root
}

type root struct {
	epoch  uint64
	leaves []*leaf
}

type leaf struct {
	epoch uint64
	owned [leafPages / 64]uint64 // a bit for each page: it was copied in this epoch
	pages [leafPages]*page
}

type page [pageBytes]byte

const (
	pageBytes = 4 << 10
	leafPages = 512
)

// newPages makes a state of n pages, whose content depends on their numbers only.
func newPages(n int) *pages {
	p := &pages{n: n, root: &root{leaves: make([]*leaf, (n+leafPages-1)/leafPages)}}
	for i := range p.root.leaves {
		p.root.leaves[i] = &leaf{}
	}
	for i := range n {
		at := &page{}
		scramble(at[:], uint64(i))
		p.root.leaves[i/leafPages].pages[i%leafPages] = at
	}
	p.epoch = 1
	return p
}

// emptyPages makes a state whose pages are not there yet.
func emptyPages(n int) *pages {
	p := &pages{n: n, epoch: 1, root: &root{epoch: 1, leaves: make([]*leaf, (n+leafPages-1)/leafPages)}}
	for i := range p.root.leaves {
		p.root.leaves[i] = &leaf{epoch: 1}
	}
	return p
}

// clone returns a state that shares all pages with p, which must be frozen and stay so.
func (p *pages) clone() *pages { return &pages{n: p.n, epoch: p.epoch, root: p.root} }

// freeze returns the state as it is. It stays so, while p may change.
func (p *pages) freeze() *pages {
	frozen := p.clone()
	p.epoch++
	return frozen
}

// writable returns a page that belongs to p alone.
func (p *pages) writable(i int) *page {
	if p.root.epoch != p.epoch {
		p.root = &root{p.epoch, append([]*leaf(nil), p.root.leaves...)}
	}
	l := p.root.leaves[i/leafPages]
	if l.epoch != p.epoch {
		l = &leaf{epoch: p.epoch, pages: l.pages}
		p.root.leaves[i/leafPages] = l
	}
	in := i % leafPages
	if word, bit := &l.owned[in/64], uint64(1)<<(in%64); *word&bit == 0 {
		*word |= bit
		copied := &page{}
		if l.pages[in] != nil {
			*copied = *l.pages[in]
		}
		l.pages[in] = copied
	}
	return l.pages[in]
}

func (p *pages) page(i int) *page { return p.root.leaves[i/leafPages].pages[i%leafPages] }

// pagesAtOnce is how many pages are written to a stream, or read from one, in one call.
const pagesAtOnce = 16

// writeTo writes all pages. p is frozen.
func (p *pages) writeTo(w io.Writer) error {
	buffer := make([]byte, 0, pagesAtOnce*pageBytes)
	for i := range p.n {
		buffer = append(buffer, p.page(i)[:]...)
		if len(buffer) == cap(buffer) || i == p.n-1 {
			if _, err := w.Write(buffer); err != nil {
				return err
			}
			buffer = buffer[:0]
		}
	}
	return nil
}

// readPages reads a state of n pages.
func readPages(n int, r io.Reader) (*pages, error) {
	p := emptyPages(n)
	for i := range n {
		if _, err := io.ReadFull(r, p.writable(i)[:]); err != nil {
			return nil, fmt.Errorf("page %d of %d: %w", i, n, err)
		}
	}
	return p, nil
}

// sum returns the CRC32C of all pages. p is frozen.
func (p *pages) sum() (sum uint32) {
	for i := range p.n {
		sum = crc32.Update(sum, castagnoli, p.page(i)[:])
	}
	return sum
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// scramble fills b with bytes that depend on the seed only (splitmix64), so that nothing on the way can
// compress them or find them again.
func scramble(b []byte, seed uint64) {
	x := seed * 0x2545f4914f6cdd1d
	for i := 0; i+8 <= len(b); i += 8 {
		x += 0x9e3779b97f4a7c15
		z := (x ^ x>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		z ^= z >> 31
		_ = b[i+7]
		b[i], b[i+1], b[i+2], b[i+3] = byte(z), byte(z>>8), byte(z>>16), byte(z>>24)
		b[i+4], b[i+5], b[i+6], b[i+7] = byte(z>>32), byte(z>>40), byte(z>>48), byte(z>>56)
	}
}
