//go:build !linux

package tcp

// writePieces is writeOnce for several pieces.
func writePieces(fd uintptr, pieces [][]byte) (n int, err error) {
	for _, p := range pieces {
		wrote, err := writeOnce(fd, p)
		if n += wrote; err != nil || wrote < len(p) {
			return n, err
		}
	}
	return n, nil
}
