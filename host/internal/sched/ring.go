package sched

// Ring is a list of groups, or of others, that wait for something. A group is in it through a place, which
// it holds itself. So putting it in, taking it out and asking whether it is in cost no memory and no
// search. The owner of the ring has its lock.
type Ring[T any] struct {
	first, last *Place[T]
	n           int
}

// Place is the position of an owner in a ring. An owner has one for each ring in which it may be.
type Place[T any] struct {
	Owner      T
	in         *Ring[T] // nil: in none
	next, prev *Place[T]
}

// Push puts a place that is in no ring at the end.
func (r *Ring[T]) Push(p *Place[T]) {
	p.in, p.prev, p.next = r, r.last, nil
	if r.last != nil {
		r.last.next = p
	} else {
		r.first = p
	}
	r.last = p
	r.n++
}

// Pop takes the first out, and returns nil if there is none.
func (r *Ring[T]) Pop() *Place[T] {
	p := r.first
	if p != nil {
		p.Leave()
	}
	return p
}

// Leave takes a place out of its ring, if it is in one.
func (p *Place[T]) Leave() {
	r := p.in
	if r == nil {
		return
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		r.first = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		r.last = p.prev
	}
	p.in, p.next, p.prev = nil, nil, nil
	r.n--
}

// Len returns how many places are in it.
func (r *Ring[T]) Len() int { return r.n }

// First returns the place that Pop would take, or nil.
func (r *Ring[T]) First() *Place[T] { return r.first }

// Next returns the place behind one in its ring, or nil.
func (p *Place[T]) Next() *Place[T] { return p.next }

// In returns the ring in which a place is, or nil.
func (p *Place[T]) In() *Ring[T] { return p.in }
