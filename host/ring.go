package host

// ring is a list of groups that wait for something. A group is in it through a place, which it holds itself,
// so that putting it in, taking it out and asking whether it is in cost no memory and no search. The owner of
// the ring has its lock.
type ring[T any] struct {
	first, last *place[T]
	n           int
}

// place is the position of an owner in a ring. An owner has one for each ring in which it may be.
type place[T any] struct {
	owner      T
	in         *ring[T] // nil: in none
	next, prev *place[T]
}

// push puts a place that is in no ring at the end.
func (r *ring[T]) push(p *place[T]) {
	p.in, p.prev, p.next = r, r.last, nil
	if r.last != nil {
		r.last.next = p
	} else {
		r.first = p
	}
	r.last = p
	r.n++
}

// pop takes the first out, and returns nil if there is none.
func (r *ring[T]) pop() *place[T] {
	p := r.first
	if p != nil {
		p.leave()
	}
	return p
}

// leave takes a place out of its ring, if it is in one.
func (p *place[T]) leave() {
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
