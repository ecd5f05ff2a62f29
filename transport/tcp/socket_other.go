//go:build !linux

package tcp

import (
	"net"
	"time"
)

// limitUnacked has no portable form: elsewhere a half-open connection is found by the write deadline and keep-alive.
func limitUnacked(*net.TCPConn, time.Duration) {}
