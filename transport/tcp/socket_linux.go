package tcp

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// limitUnacked ends a connection whose data stays unacknowledged for d. Without it, a peer that lost its
// power is noticed only when the socket's buffer is full or when the kernel gives up after a quarter of an
// hour. Keep-alive does not probe while data is outstanding.
func limitUnacked(conn *net.TCPConn, d time.Duration) {
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(d.Milliseconds()))
		})
	}
}

// limitUnsent makes the kernel take no more bytes from this program while it holds n that it has not sent. A
// socket buffer grows to megabytes otherwise, and nothing overtakes what is in it.
func limitUnsent(conn *net.TCPConn, n int) {
	if raw, err := conn.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, n)
		})
	}
}
