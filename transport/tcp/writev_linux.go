package tcp

import "golang.org/x/sys/unix"

// writePieces is writeOnce for several pieces, with one system call.
func writePieces(fd uintptr, pieces [][]byte) (int, error) {
	if len(pieces) == 1 {
		return writeOnce(fd, pieces[0])
	}
	for {
		n, err := unix.Writev(int(fd), pieces[:min(len(pieces), maxPieces)])
		switch err {
		case nil:
			return n, nil
		case unix.EINTR:
		case unix.EAGAIN:
			return 0, nil
		default:
			return 0, err
		}
	}
}

// maxPieces is how many pieces the kernel takes in one call. What is left is written after that.
const maxPieces = 1024
