package arena

// Filler puts payloads into blocks, one behind the other. It holds the block that it fills. It is not safe
// for concurrent use.
type Filler struct {
	pool *Pool
	at   Ref
	used int // bytes of at
}

// NewFiller returns a Filler that holds nothing yet.
func NewFiller(p *Pool) Filler { return Filler{pool: p} }

// Space returns n bytes of a block, with whatever is in them. refs are the blocks that the caller holds. If
// the block is not the last of them, Space retains it for the caller and appends it. More bytes than a block
// has are an array of their own.
func (f *Filler) Space(n int, refs []Ref) ([]byte, []Ref) {
	if n > f.pool.o.BlockBytes {
		return make([]byte, n), refs
	}
	if f.at.IsZero() || f.used+n > len(f.at.b.buf) {
		f.Close()
		f.at = f.pool.get()
	}
	data := f.at.b.buf[f.used : f.used+n : f.used+n]
	f.used += n
	if k := len(refs); k == 0 || refs[k-1] != f.at {
		f.at.Retain()
		refs = append(refs, f.at)
	}
	return data, refs
}

// Copy is Space with the bytes of data in it.
func (f *Filler) Copy(data []byte, refs []Ref) ([]byte, []Ref) {
	own, refs := f.Space(len(data), refs)
	copy(own, data)
	return own, refs
}

// Close releases the block that it fills. The Filler may continue with another one.
func (f *Filler) Close() {
	if !f.at.IsZero() {
		f.at.Release()
	}
	f.at, f.used = Ref{}, 0
}

// Loan is memory that a reader has for a while: copies for it, and blocks whose payloads it was shown. Return
// ends it.
type Loan struct {
	copies Filler
	refs   []Ref
}

// NewLoan returns a Loan whose copies are in blocks of p.
func NewLoan(p *Pool) *Loan { return &Loan{copies: NewFiller(p)} }

// Space returns n bytes for the time of the loan.
func (l *Loan) Space(n int) (data []byte) {
	data, l.refs = l.copies.Space(n, l.refs)
	return data
}

// Show makes the loan hold a block. The caller holds it, too.
func (l *Loan) Show(r Ref) {
	if k := len(l.refs); k == 0 || l.refs[k-1] != r {
		r.Retain()
		l.refs = append(l.refs, r)
	}
}

// Return ends the loan. What was read meanwhile may be something else now.
func (l *Loan) Return() {
	l.copies.Close()
	if l.refs = ReleaseAll(l.refs); cap(l.refs) > maxIdleRefs {
		l.refs = nil
	}
}

// Keep ends the loan for a reader that may have kept what it was shown.
func (l *Loan) Keep() {
	l.copies.Close()
	l.refs = KeepAll(l.refs)
}

// maxIdleRefs bounds the memory of a loan that has ended.
const maxIdleRefs = 256
