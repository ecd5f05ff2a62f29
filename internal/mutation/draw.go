package mutation

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// population is all that may be drawn of one area, in the order in which a seed draws it.
type population struct {
	area       *Area
	source     *source
	order      []*alternative
	candidates int // what the operators found
	dropped    int // of these, what cannot be expressed in a schema
}

// populate finds the mutants of an area. The place of a mutant in the order depends on nothing but its name
// and the seed, so a draw stays what it was when other code changes.
func populate(root string, area *Area, seed uint64) (*population, error) {
	p, err := candidatesOf(root, area, seed)
	if err != nil {
		return nil, err
	}
	p.candidates = len(p.order)
	for _, pkg := range p.source.packages {
		n, err := p.source.drop(pkg)
		if err != nil {
			return nil, err
		}
		p.dropped += n
	}
	p.draw(seed)
	return p, nil
}

// candidatesOf is populate without the look at types: for names of which it is known that they type-check.
func candidatesOf(root string, area *Area, seed uint64) (*population, error) {
	src, err := load(root, area.Packages)
	if err != nil {
		return nil, err
	}
	for _, pkg := range src.packages {
		src.candidates(pkg)
	}
	p := &population{area: area, source: src}
	p.draw(seed)
	return p, nil
}

// draw puts the mutants that there are into their order.
func (p *population) draw(seed uint64) {
	p.order = p.source.all()
	slices.SortFunc(p.order, func(a, b *alternative) int {
		x, y := rank(seed, a.mutant.ID), rank(seed, b.mutant.ID)
		return slices.Compare(x[:], y[:])
	})
}

func rank(seed uint64, id string) [sha256.Size]byte {
	return sha256.Sum256(append(binary.BigEndian.AppendUint64(nil, seed), id...))
}

func (p *population) String() string {
	return fmt.Sprintf("%s: %d mutants, %d of them dropped because they do not type-check", p.area.Name, p.candidates, p.dropped)
}
