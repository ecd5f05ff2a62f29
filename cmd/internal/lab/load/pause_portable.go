//go:build !linux

package load

import "time"

// NewPause returns a sleep for the pacer. The runtime's timers are coarse on some systems; the schedule lag
// shows by how much.
func NewPause() (pause func(time.Duration), done func()) {
	return time.Sleep, func() {}
}
