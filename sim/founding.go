package sim

// isFounded reports whether every group is founded.
func (w *world) isFounded() bool {
	for _, g := range w.ghosts {
		if !g.founded {
			return false
		}
	}
	return true
}
