//go:build !linux

package tcp

import (
	"net"
	"time"
)

// limitUnacked has no portable form. The write deadline and keep-alive detect a half-open connection.
func limitUnacked(*net.TCPConn, time.Duration) {}

// limitUnsent has no portable form. The size of the socket's send buffer bounds what a pulse cannot overtake.
func limitUnsent(conn *net.TCPConn, n int) { _ = conn.SetWriteBuffer(n) }
