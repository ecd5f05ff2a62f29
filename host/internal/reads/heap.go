package reads

// heap is the reads that wait for an index, the lowest first.
type heap []*Read

func (h heap) first() *Read {
	if len(h) == 0 {
		return nil
	}
	return h[0]
}

func (h *heap) push(r *Read) {
	*h = append(*h, r)
	h.up(len(*h) - 1)
}

// remove takes a read out, if it is in.
func (h *heap) remove(r *Read) {
	i := r.waitsAt - 1
	if i < 0 {
		return
	}
	r.waitsAt = 0
	last := len(*h) - 1
	moved := (*h)[last]
	(*h)[last] = nil
	if *h = (*h)[:last]; last == 0 {
		*h = nil // an idle group keeps nothing
	}
	if i < last {
		(*h)[i] = moved
		h.up(i)
		h.down(moved.waitsAt - 1)
	}
}

func (h heap) up(i int) {
	r := h[i]
	for i > 0 && h[(i-1)/2].at.Index > r.at.Index {
		h.set(i, h[(i-1)/2])
		i = (i - 1) / 2
	}
	h.set(i, r)
}

func (h heap) down(i int) {
	r := h[i]
	for {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1].at.Index < h[child].at.Index {
			child++
		}
		if child >= len(h) || h[child].at.Index >= r.at.Index {
			break
		}
		h.set(i, h[child])
		i = child
	}
	h.set(i, r)
}

func (h heap) set(i int, r *Read) { h[i], r.waitsAt = r, i+1 }
