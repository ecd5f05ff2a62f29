//go:build unix

package tcp

import "syscall"

// writeOnce writes to a non-blocking socket. A full socket buffer is not an error.
func writeOnce(fd uintptr, p []byte) (int, error) {
	for {
		n, err := syscall.Write(int(fd), p)
		switch err {
		case nil:
			return n, nil
		case syscall.EINTR:
		case syscall.EAGAIN:
			return 0, nil
		default:
			return 0, err
		}
	}
}
