//go:build !linux

package tcp

import (
	"net"
	"time"
)

// limitUnacked has no portable form. The write deadline and keep-alive detect a half-open connection.
func limitUnacked(*net.TCPConn, time.Duration) {}
